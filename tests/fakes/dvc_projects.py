"""Real DVC projects on disk, small ones; and our commands on them."""

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from geartrain import artifacts
from geartrain.data_commands import app
from geartrain.errors import GeartrainError


def shell(folder: Path, *commands: str) -> None:
    """Run commands in a folder; `dvc` is the one of this Python."""
    for command in commands:
        words = command.split()
        if words[0] == "dvc":
            words = [sys.executable, "-m", *words]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def seal(folder: Path, text: str, *, stage: str = "collect", inputs: dict[str, str] | None = None) -> str:
    """Make a small artifact; return its digest."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    (folder / "rows.jsonl").write_text("".join(f'{{"id": {number}, "text": "{text}"}}\n' for number in range(3)))
    return artifacts.write_manifest(folder, stage=stage, parameters={}, inputs=inputs or {}, metrics={}).digest


def start(folder: Path, remote: str, *, git: bool) -> Path:
    """Make a project whose remote is `remote`."""
    folder.mkdir()
    shell(folder, *(["git init -q", "dvc init -q"] if git else ["dvc init -q --no-scm"]))
    shell(folder, f"dvc remote add -q -d here {remote}")
    return folder


def say(*arguments: str) -> str:
    """Run a command of ours; return what it printed."""
    done = CliRunner().invoke(app, list(arguments))
    if isinstance(done.exception, GeartrainError):
        raise done.exception
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.output
