"""Prometheus' own judge of rules: `promtool`, of Debian's package prometheus."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.servers import find_program


def check_rules(rules: str, folder: Path) -> str:
    """Return what promtool finds wrong with a rule file; empty if nothing."""
    path = folder / "rules.yaml"
    path.write_text(rules)
    done = subprocess.run(
        [find_program("promtool", "prometheus"), "check", "rules", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def run_tests(rules: str, tests: list[dict[str, Any]], folder: Path, *, every: str = "1m") -> str:
    """Return how the rules differ from what tests expect of them; empty if they do not.

    Args:
        rules: text of a rule file.
        tests: as promtool takes them.
        folder: to write to.
        every: time between two evaluations.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yaml").write_text(rules)
    (folder / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": every, "tests": tests}, sort_keys=False)
    )
    command = [find_program("promtool", "prometheus"), "test", "rules", "tests.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr
