"""The audit log of rewards: one JSON line per question to a tool, without secrets, by one writer, of bounded size.

A line holds task, group, sibling, policy_version, tool, kind, outcome ("value", "n/a", "failed"), raw value, seconds
(its share of its batch), requests, tokens, price, and why.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geartrain.errors import UserError
from geartrain.rewards.outcome import Failed, NotApplicable, Outcome, Value, raw, reason
from geartrain.rewards.tools import Tool
from geartrain.scrubbing import scrub
from geartrain.trajectory import Trajectory

WHY_CHARACTERS = 300
_BREAKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"}


class AuditLog:
    """Appends to `path`; when that is full it becomes `path` with `.1` in place of the one before.

    Raises:
        UserError: another process writes to it.
    """

    def __init__(self, path: Path, *, megabytes: float = 50.0) -> None:
        self.path = path
        self._limit = int(megabytes * 1e6) // 2
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = path.with_suffix(path.suffix + ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise UserError(f"{path}: another process writes this audit log. Give this one another path.") from error
        _end_last_line(path)
        self._file = path.open("a", encoding="utf-8")

    def write(
        self,
        tool: Tool,
        trajectories: Sequence[Trajectory],
        outcomes: Sequence[Outcome],
        *,
        seconds: float,
    ) -> None:
        """Write what a tool said of a batch that took `seconds`."""
        share = seconds / max(1, len(trajectories))
        for trajectory, outcome in zip(trajectories, outcomes, strict=True):
            line = json.dumps(_record(tool, trajectory, outcome, share), ensure_ascii=False, allow_nan=False)
            self._append(scrub(line).translate(_BREAKS) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Let another process write."""
        self._file.close()
        self._lock.close()

    def __enter__(self) -> "AuditLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: str) -> None:
        if self._file.tell() + len(line.encode()) > self._limit and self._file.tell():
            self._file.close()
            os.replace(self.path, self.path.with_suffix(self.path.suffix + ".1"))
            self._file = self.path.open("a", encoding="utf-8")
        self._file.write(line)


def _record(tool: Tool, trajectory: Trajectory, outcome: Outcome, seconds: float) -> dict[str, Any]:
    told: dict[str, Any] = {
        "task": trajectory.task_id,
        "group": trajectory.group_id,
        "sibling": trajectory.sibling,
        "policy_version": trajectory.policy_version,
        "tool": tool.name,
        "kind": tool.kind,
        "outcome": {Value: "value", NotApplicable: "n/a", Failed: "failed"}[type(outcome)],
        "raw": raw(outcome),
        "seconds": round(seconds, 6),
    }
    if not isinstance(outcome, NotApplicable) and outcome.spent.requests:
        spent = outcome.spent
        told |= {
            "requests": spent.requests,
            "tokens_in": spent.tokens_in,
            "tokens_out": spent.tokens_out,
            "price": spent.price,
        }
    return {**told, "why": reason(outcome)[:WHY_CHARACTERS]}


def _end_last_line(path: Path) -> None:
    """End a line that a kill has cut, so that the next is whole."""
    if path.is_file() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
