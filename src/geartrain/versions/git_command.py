"""Git as a command that may not be there: a project of DVC need not be in git, nor a machine have it."""

import subprocess
from pathlib import Path


def ask(*arguments: str, folder: Path | None = None) -> str | None:
    """Return what git answers, without white space around it; None if it refuses, or there is no git."""
    command = ["git", *(["-C", str(folder)] if folder is not None else []), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
