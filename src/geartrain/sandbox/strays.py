"""Processes that a run left behind. None can, while a run may start none: this is for the day when it could."""

import os
import signal
from contextlib import suppress
from pathlib import Path

_MOST_ROUNDS = 1000


def children(parent: int) -> list[int]:
    """Return the processes whose parent is `parent`."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # "pid (name) state parent …", where the name may hold anything
            if int(status.read_text(errors="replace").rpartition(")")[2].split()[1]) == parent:
                found.append(int(status.parent.name))
    return found


def kill_children(parent: int) -> None:
    """Kill all below a process that adopts orphans, generation by generation."""
    for _ in range(_MOST_ROUNDS):
        found = [child for child in children(parent) if _alive(child)]
        if not found:
            return
        for child in found:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _alive(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    return False
