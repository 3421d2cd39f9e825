"""Every stage shows how far it is."""

import re
from pathlib import Path

import pytest

from geartrain.stages.stage import ORDER

STAGES = Path(__file__).parents[2] / "src/geartrain/stages"


@pytest.mark.parametrize("name", ORDER)
def test_a_stage_shows_progress(name: str) -> None:
    assert re.search(r"\b(bar|track)\(", (STAGES / f"{name}.py").read_text())
