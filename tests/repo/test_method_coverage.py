"""docs/method-coverage.md holds every item of the articles and papers once, and names only what is there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from geartrain.config import Config
from geartrain.methods import METHODS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/geartrain"
TEXT = (ROOT / "docs/method-coverage.md").read_text()
ITEMS = [
    f"{method}-{prefix}{number}"
    for method, prefix, last in (
        *(("GEAR", "", 130), ("GEAR", "P", 8), ("SGCD", "", 55), ("SGCD", "P", 12)),
        *(("RLAR", "", 83), ("RLAR", "P", 11)),
    )
    for number in range(1, last + 1)
]
MISTAKES = [f"{letter}{number}" for letter, last in (("A", 15), ("B", 15), ("S", 13)) for number in range(1, last + 1)]
ROWS = re.findall(r"^\| ((?:GEAR|SGCD|RLAR)-\w+) \| (.+?) \| (\w+) \| (.+) \|$", TEXT, re.MULTILINE)
ENTRIES = re.findall(r"^- \*\*([ABS]\d+)\*\* (.*?)(?=^- \*\*|^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`([^`]+)`")
REASON = re.compile(r"(not ours|not yet|later): \w+")


def test_every_item_is_there_once() -> None:
    named = re.findall(r"^\| ((?:GEAR|SGCD|RLAR)-\S+) ", TEXT, re.MULTILINE)
    assert sorted(named) == sorted(ITEMS)
    assert [row[0] for row in ROWS] == named, "every row has four cells"
    assert [name for name, _ in ENTRIES] == MISTAKES


@pytest.mark.parametrize(("item", "asks", "far", "where"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_says_where_or_why_not(item: str, asks: str, far: str, where: str) -> None:
    words = NAME.sub("", where)
    assert far in {"yes", "part", "planned", "no"}
    assert asks[0] != "`", "what is asked for, in words"
    if far in {"yes", "part"}:
        assert NAME.search(where), "name what serves it"
    if far == "part":
        assert len(re.findall(r"\w{2,}", words)) >= 2, "say what is missing"
    if far == "planned":
        assert "planned: " in words
    if far == "no":
        assert REASON.match(where), "say why not"


@pytest.mark.parametrize(("mistake", "text"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_a_mistake_is_shown_by_a_test(mistake: str, text: str) -> None:
    assert "::" in text or "Cannot be ours: " in text


@pytest.mark.parametrize("name", sorted(set(NAME.findall(TEXT))))
def test_a_name_is_that_of_something(name: str) -> None:
    first, _, rest = name.partition(".")
    if "::" in name:
        path, _, test = name.partition("::")
        assert test in {node.name for node in _body(ROOT / "tests/unit" / path) if isinstance(node, ast.FunctionDef)}
    elif name == "geartrain" or name.startswith("geartrain "):
        assert name.removeprefix("geartrain").strip() in {"", *_commands()}
    elif "/" in name or name.endswith(".yaml"):
        assert (ROOT / name).exists()
    elif first in METHODS:
        assert not rest or rest in METHODS[first].settings
    elif first in Config.model_fields:
        parts = name.split(".")
        assert _is_key(Config, parts) or _is_defined(PACKAGE, parts), "a section may be called as a package is"
    else:
        assert _is_defined(PACKAGE, name.split("."))


def _body(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


def _commands() -> set[str]:
    """Return the words after `geartrain` that run something."""
    found = set()
    for node in [*_body(PACKAGE / "cli.py"), *_body(PACKAGE / "diagnose_command.py")]:
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            call = ast.unparse(decorator)
            if match := re.fullmatch(r"(app|config_app)\.command\((?:'(\w+)')?.*\)", call):
                found.add(("config " if match[1] == "config_app" else "") + (match[2] or node.name))
    return found


def _is_key(schema: Any, parts: list[str]) -> bool:
    """Return whether a path of keys lies in a section, or in any of a union of sections."""
    if not parts:
        return True
    sections = [kind for kind in (schema, *get_args(schema)) if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return any(
        parts[0] in section.model_fields and _is_key(section.model_fields[parts[0]].annotation, parts[1:])
        for section in sections
    )


def _is_defined(folder: Path, parts: list[str]) -> bool:
    """Return whether a dotted name is a module below `folder`, or is defined in one; nothing is imported."""
    if not parts:
        return True
    if (folder / parts[0]).is_dir():
        return _is_defined(folder / parts[0], parts[1:])
    module = folder / f"{parts[0]}.py"
    return module.is_file() and _holds(_body(module), parts[1:])


def _holds(body: list[ast.stmt], parts: list[str]) -> bool:
    return not parts or any(name == parts[0] and _holds(inner, parts[1:]) for name, inner in _definitions(body))


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[str, list[ast.stmt]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node.name, node.body
        elif isinstance(node, ast.FunctionDef):
            yield node.name, []
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((target.id, []) for target in targets if isinstance(target, ast.Name))
