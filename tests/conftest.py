"""What every test runs under: in CI a skipped test is a failed one, and goldens are rewritten only on request."""

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
ROOT = Path(__file__).parents[1]
os.environ.setdefault("GEARTRAIN_DEVICE", "cpu")  # bit for bit is the CPU's promise; tests/gpu asks for another


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="rewrite golden files instead of comparing; not in CI")


def pytest_configure(config: pytest.Config) -> None:
    if IN_CI and config.getoption("--regenerate"):
        raise pytest.UsageError("--regenerate is refused in CI: a person changes a golden file, and reads the diff")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("gpu") is None:
        report.outcome, report.longrepr = "failed", f"skipped in CI, where nothing may be missing: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    report = yield
    if IN_CI and report.skipped:
        report.outcome, report.longrepr = "failed", f"skipped in CI, where nothing may be missing: {report.longrepr}"
    return report
