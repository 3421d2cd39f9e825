"""The workspaces below a folder: the project's own, those in `runs/`, the cells of studies."""

import os
from collections.abc import Iterator
from pathlib import Path

from geartrain.errors import UserError
from geartrain.stages.stage import FOLDERS
from geartrain.workspace import PARAMS

OWN = "."
"""Name of the folder that was asked for, where it is a workspace itself."""
DEPTH = 6
"""Folders below the one that was asked for: `runs/STUDY/cells/ENVIRONMENT/seed-N/VARIANT` is found."""
_NOT_INSIDE = frozenset(path.parts[0] for path in FOLDERS.values())
"""Folders of a workspace in which no other one lies."""


def find_workspaces(root: Path) -> dict[str, Path]:
    """Return name -> folder of every workspace below a folder, the folder itself first; a name is the path from it.

    In a workspace others are looked for in `runs/` alone.
    """
    own = _is_workspace(root)
    start = root / "runs" if own else root
    below = {folder.relative_to(root).as_posix(): folder for folder in _walk(start, DEPTH)} if start.is_dir() else {}
    return {**({OWN: root} if own else {}), **dict(sorted(below.items()))}


def require_workspaces(root: Path) -> dict[str, Path]:
    """Return what `find_workspaces` does. Raises UserError where there is none."""
    if not root.is_dir():
        raise UserError(f"{root}: no such folder. `geartrain run --dir {root}` makes a workspace.")
    found = find_workspaces(root)
    if not found:
        raise UserError(f"{root}: no workspace here or below. `geartrain run --profile smoke` makes one in a minute.")
    return found


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    if _is_workspace(folder):
        yield folder
    if not depth:
        return
    try:
        inside = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in inside:
        if not entry.name.startswith(".") and entry.name not in _NOT_INSIDE:
            yield from _walk(folder / entry.name, depth - 1)


def _is_workspace(folder: Path) -> bool:
    return (folder / PARAMS).is_file()
