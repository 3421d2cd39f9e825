"""Documents quote the tables that scripts print."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("script", "document"),
    [
        (["benchmarks/scaling_model.py"], "docs/scaling.md"),
        (["-m", "geartrain.telemetry.listing"], "docs/monitoring.md"),
        (["benchmarks/study_tables.py", "studies/results/first"], "docs/experiments.md"),
        (["benchmarks/injected_faults.py", "table"], "docs/diagnosis.md"),
    ],
)
def test_the_tables_are_the_scripts(script: list[str], document: str) -> None:
    printed = subprocess.run([sys.executable, *script], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    text = (ROOT / document).read_text("utf-8")
    for block in printed.strip().split("\n\n"):
        assert block in text, block
