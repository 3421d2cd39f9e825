"""Every public fault of the kinds A, B and C has a test of its kind that exists, or a reason why it cannot apply."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NUMBERS = {
    "A": [1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16, 18, 19, 20, 21],
    "B": [1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 17, 18, 19, 21, 22, 23, 24, 25, 26, 27, 29],
    "C": [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 17, 18, 20, 21, 22, 24, 25, 26, 27, 29, 30, 31, 32],
}
EXPECTED = [f"{letter}{number}" for letter, numbers in NUMBERS.items() for number in numbers]
ENTRY = re.compile(r"^- \*\*([A-Z]\d+)\*\* (.*?)(?=^- \*\*|^## |\Z)", re.MULTILINE | re.DOTALL)
ENTRIES = ENTRY.findall((ROOT / "docs/fault-coverage.md").read_text())


def test_every_fault_appears_once_and_in_order() -> None:
    assert [name for name, _ in ENTRIES] == EXPECTED


@pytest.mark.parametrize(("fault", "text"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_a_fault_has_a_test_that_exists_or_a_reason(fault: str, text: str) -> None:
    named = re.findall(r"`([^`]+)`", text)
    assert named or "Cannot apply: " in text, "name a test, or say why the fault cannot be ours"
    for place in named:
        path, separator, test = place.partition("::")
        assert separator, f"{place}: expected file::test"
        tree = ast.parse((ROOT / "tests/unit" / path).read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, place
