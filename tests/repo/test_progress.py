"""Every stage shows how far it is, and whatever is said while something works goes one way."""

import re
from pathlib import Path

import pytest

from geartrain.stages.stage import ORDER

PACKAGE = Path(__file__).parents[2] / "src/geartrain"
STAGES = PACKAGE / "stages"


@pytest.mark.parametrize("name", ORDER)
def test_a_stage_shows_progress(name: str) -> None:
    assert re.search(r"\b(bar|track)\(", (STAGES / f"{name}.py").read_text())


def test_nobody_prints_to_stderr_past_the_log() -> None:
    """A line that is no JSON breaks a collector, and no secret is taken out of it."""
    past = re.compile(r"print\([^\n]*file=sys\.stderr|sys\.stderr\.write|logging\.basicConfig|traceback\.print_exc")
    found = [str(path) for path in PACKAGE.rglob("*.py") if past.search(path.read_text("utf-8"))]
    assert found == [str(PACKAGE / "logs.py")]
