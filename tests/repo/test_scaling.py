"""docs/scaling.md quotes the tables that its script prints."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_are_the_scripts() -> None:
    command = [sys.executable, "benchmarks/scaling_model.py"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    assert printed in (ROOT / "docs/scaling.md").read_text("utf-8")
