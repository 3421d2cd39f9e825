"""A workspace whose lineage is whole."""

from pathlib import Path

import pytest

from tests.fakes.recorded import INPUTS, make


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace of three artifacts and one raw file, whose lineage is whole."""
    monkeypatch.chdir(tmp_path)
    raw = tmp_path / "data/raw/chinook.json"
    raw.parent.mkdir(parents=True)
    raw.write_text("[]")
    for stage in INPUTS:
        make(stage)
    return tmp_path
