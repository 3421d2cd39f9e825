"""README and CONTRIBUTING name only what is there, and the picture is the graph."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CREATED_BY_A_RUN = {"reports/index.html", "models/policy", "models/warm_start", "dvc.lock", ".venv/bin"}
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?|[\w-]+\.(?:md|yaml|toml|lock)|[\w.]+/)`")


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_path_named_exists(document: str) -> None:
    text = (ROOT / document).read_text().replace("/NAME.py", "/")
    named = {path for path in PATH.findall(text) if path not in CREATED_BY_A_RUN}
    results = {"data/", "models/", "reports/"}
    inside = {path for path in named if not (ROOT / path).exists()}
    # a name without a folder may be that of a file in the folder which its row or sentence names
    absent = {
        path
        for path in inside - results
        if not any(ROOT.glob(f"{folder}{path}") for folder in ("*/", "src/geartrain/"))
    }
    assert named
    assert absent == set()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_named_exists(document: str) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"`make ([a-z0-9 -]+)`", (ROOT / document).read_text())
    assert {target for words in named for target in words.split()} <= targets


def test_the_picture_is_the_graph(declarations: dict[str, Any]) -> None:
    drawn = set(re.findall(r"^  (\w+) --> (\w+)$", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert drawn == {(source, name) for name, declared in declarations.items() for source in declared.inputs}
