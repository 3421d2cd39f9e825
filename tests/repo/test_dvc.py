"""dvc.yaml is the graph that the stages declare, and it reruns what a change can reach."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import grimp
import pytest

from geartrain.stages.stage import FOLDERS, ORDER

ROOT = Path(__file__).parents[2]
OBSERVERS = {
    *("credit_table", "errors", "home", "progress", "processes", "lineage", "metrics", "places", "pointers", "sources"),
    *("live", "logs", "reporting", "scrubbing", "supply", "withdrawals", "wording"),
}
"""Parts that say what happened, or where, end processes or refuse to start, and cannot change what is computed."""
STAGES = [pytest.param(name, id=name) for name in ORDER]


def test_stages_and_order(dvc: dict[str, Any], declarations: dict[str, Any]) -> None:
    assert tuple(dvc) == ORDER
    assert set(declarations) == set(ORDER) == set(FOLDERS)


@pytest.mark.parametrize("name", STAGES)
def test_reads_and_writes_what_it_declares(name: str, dvc: dict[str, Any], declarations: dict[str, Any]) -> None:
    stage, declared = dvc[name], declarations[name]
    assert stage["cmd"] == f"python -m geartrain stage {name} --quiet"
    assert stage["outs"] == [str(FOLDERS[name])]
    assert stage["params"] == ["seed", "threads", *declared.sections]
    data = [path for path in stage["deps"] if not path.startswith("src/")]
    others = {"tasks": ["data/raw/chinook.json"], "preferences": ["data/feature_repo"]}.get(name, [])
    assert data == [str(FOLDERS[other]) for other in declared.inputs] + others


@pytest.mark.parametrize("name", STAGES)
def test_depends_on_the_code_that_it_imports(name: str, dvc: dict[str, Any], imports: grimp.ImportGraph) -> None:
    module = f"geartrain.stages.{name}"
    reached = {module, *imports.find_upstream_modules(module)}
    expected = sorted({path for path in map(_place, reached) if path})
    code = [path for path in dvc[name]["deps"] if path.startswith("src/")]
    assert code == expected, "\n".join(["the list should be:", *(f"      - {path}" for path in expected)])


def test_ignore_rules_reach_no_output() -> None:
    names = ("manifest.json", "quality.md", "build/x", "runs/x", "cache/x")
    outputs = [str(folder / name) for folder in FOLDERS.values() for name in names]
    command = [sys.executable, "-m", "dvc", "check-ignore", *outputs]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout == ""


def _place(module: str) -> str | None:
    """The dependency that covers a module: its top-level package, or its file."""
    package, *parts = module.split(".")
    if package != "geartrain" or not parts or parts[0] in OBSERVERS or parts == ["stages"]:
        return None
    folder = ROOT / "src/geartrain" / parts[0]
    if parts[0] == "stages" or not folder.is_dir():
        return f"src/geartrain/{'/'.join(parts)}.py"
    return f"src/geartrain/{parts[0]}"
