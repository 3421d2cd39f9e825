"""Every public fault of trainers (kinds A, B and C) and of the platform (P) has a test that exists, or a reason."""

import ast
import re
from pathlib import Path

import pytest

from geartrain.monitoring.rules import alerts
from pipelines import lint, lint_values
from tests.deploy.test_policies import POLICIES

ROOT = Path(__file__).parents[2]
NUMBERS = {
    "A": [1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16, 18, 19, 20, 21],
    "B": [1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 17, 18, 19, 21, 22, 23, 24, 25, 26, 27, 29],
    "C": [1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 17, 18, 20, 21, 22, 24, 25, 26, 27, 29, 30, 31, 32],
    "P": [*range(1, 46), "45b", *range(46, 55)],
}
PAGES = {"docs/fault-coverage.md": ("tests/unit", "ABC"), "docs/platform-coverage.md": ("tests", "P")}
ENTRY = re.compile(r"^- \*\*([A-Z]\d+b?)\*\* (.*?)(?=^- \*\*|^## |\Z)", re.MULTILINE | re.DOTALL)
ENTRIES = {page: ENTRY.findall((ROOT / page).read_text()) for page in PAGES}
OURS = {rule.name for rule in (*lint.RULES, *lint_values.RULES)} | {policy.__name__ for policy in POLICIES}


@pytest.mark.parametrize("page", PAGES)
def test_every_fault_appears_once(page: str) -> None:
    expected = [f"{letter}{number}" for letter in PAGES[page][1] for number in NUMBERS[letter]]
    assert sorted(name for name, _ in ENTRIES[page]) == sorted(expected)


@pytest.mark.parametrize(
    ("page", "text"),
    [pytest.param(page, text, id=name) for page, entries in ENTRIES.items() for name, text in entries],
)
def test_a_fault_has_a_test_that_exists_or_a_reason(page: str, text: str) -> None:
    named = re.findall(r"`([^`]+)`", text)
    tests = [place for place in named if "::" in place]
    assert tests or "Cannot apply: " in text, "name a test, or say why the fault cannot be ours"
    for place in tests:
        path, _, test = place.partition("::")
        tree = ast.parse((ROOT / PAGES[page][0] / path).read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, place


def test_a_rule_a_policy_and_an_alert_that_are_named_exist() -> None:
    text = "".join(text for _, text in ENTRIES["docs/platform-coverage.md"])
    named = {word for word in re.findall(r"`([^`]+)`", text) if "::" not in word}
    assert named <= OURS | {alert.name for alert in alerts()}
