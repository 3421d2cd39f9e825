"""SIGTERM: a node is drained, a job is preempted or cancelled. Work ends at its next safe point, and says so.

What is finished is on disk at any time (checkpoints, episodes in flight), so
there is nothing to save in the grace period: a SIGKILL loses as little. Leaving
by ourselves tells the orchestrator that a retry goes on from there (exit code
75), and the lineage that the run was ended and did not fail.
"""

import signal
from types import FrameType

from geartrain.errors import InfrastructureError

_asked = False


class PreemptedError(InfrastructureError):
    """The process was asked to end."""


def listen() -> None:
    """Note SIGTERM from now on instead of dying of it; for the main thread of a process that runs a stage."""
    signal.signal(signal.SIGTERM, _note)


def asked() -> bool:
    """Return whether SIGTERM has come."""
    return _asked


def leave_if_asked() -> None:
    """Raise Preempted if SIGTERM has come: called wherever what is finished is on disk, or can be made again."""
    if _asked:
        raise PreemptedError(
            "stopped by SIGTERM (a drained node, a preempted or cancelled job). What is finished is kept; "
            "the same command goes on from there."
        )


def _note(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True
