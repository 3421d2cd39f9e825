"""Modules stay small and are named after what they hold."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "components", "pipelines", "tests", "data", "benchmarks")
SOURCES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
FORBIDDEN = {"utils", "util", "common", "helpers", "helper", "misc", "base", "core", "manager"}
MODULE_LINES, FUNCTION_LINES = 400, 60


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_and_functions_fit_on_the_page(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert {node.name: _lines(node) for node in functions if _lines(node) > FUNCTION_LINES} == {}


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, its docstring not counted: that may be as long as it has something to say."""
    first = function.body[0]
    docstring = 0 if ast.get_docstring(function) is None else first.end_lineno - first.lineno + 1
    return function.end_lineno - function.lineno + 1 - docstring


def test_no_module_or_folder_is_a_drawer() -> None:
    names = {path.stem for path in SOURCES} | {path.parent.name for path in SOURCES}
    assert names & FORBIDDEN == set()


def test_tests_are_no_packages() -> None:
    # with an __init__.py, tests/components would shadow components
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_one_function_says_where_the_home_of_a_workspace_is() -> None:
    """Whoever looks for it in its own way looks elsewhere one day: reads are in `home.py`, others only pass it on."""
    reading = re.compile(r"environ(ment)?(\.get)?[(\[]\s*[\"']GEARTRAIN_HOME|[\"']\.geartrain[\"']")
    found = {path.name for path in (ROOT / "src").rglob("*.py") if reading.search(path.read_text(encoding="utf-8"))}
    assert found == {"home.py", "stage.py"}, "`stages.homes` names the project's own as well"
