"""A live record that is read on as it grows: how far a stage is, its iterations, how it ended."""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from geartrain import live

RECENT = 12
"""Reports of progress that tell how fast it goes."""


@dataclass(frozen=True)
class Progress:
    """How far a piece of work is."""

    label: str
    done: int
    total: int | None
    status: str
    left: float | None
    """Seconds to its end at the pace of late; None: nobody knows."""


class Tail:
    """One file of `geartrain.live`; `refresh` reads what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._clear()

    def _clear(self) -> None:
        self.began: live.Line | None = None
        """The latest `begin`; a resumed stage has several."""
        self.ended: live.Line | None = None
        """The `end` of what began last; None: it has not said one."""
        self.checkpoint: live.Line | None = None
        self.updated = 0.0
        """Time of the last line, unix seconds."""
        self.attempts = 0
        self.iterations: dict[int, live.Line] = {}
        """By index; of an iteration that was done again the last."""
        self.arrived: list[int] = []
        """Indices in the order of their lines: who has seen the first n is told the rest."""
        self._spent = 0.0
        self._progress: dict[str, deque[live.Line]] = {}
        self._label = ""

    def refresh(self) -> None:
        """Read the lines that were written since. A file that is gone, or cannot be read, says nothing new."""
        try:
            if self.path.stat().st_size < self._position:
                self._position = 0
                self._clear()
            for line, after in live.follow(self.path, self._position):
                self._position = after
                if line is not None:
                    self._take(line)
        except OSError:
            return

    @property
    def seconds(self) -> float:
        """Seconds that its attempts have taken in all, up to the last line."""
        return self._spent + (self.updated - self.began["time"] if self.began else 0.0)

    @property
    def parameters(self) -> dict[str, Any]:
        """The configuration that it runs with, as far as it depends on it."""
        return dict(self.began.get("parameters") or {}) if self.began else {}

    def progress(self) -> Progress | None:
        """Return how far the work is that was last reported on."""
        reports = self._progress.get(self._label)
        if not reports:
            return None
        last = reports[-1]
        done, total = int(last["done"]), last.get("total")
        left = None
        pace = _pace(reports)
        if pace is None and self.attempts == 1 and self.began and done:  # one report: all that is known is the start
            pace = (last["time"] - self.began["time"]) / done
        if total is not None and 0 < done < total and pace is not None:
            left = pace * (total - done)
        return Progress(self._label, done, total, str(last.get("status") or ""), left)

    def records(self) -> list[dict[str, Any]]:
        """Return the history so far, in order."""
        return [self.iterations[index]["record"] for index in sorted(self.iterations)]

    def _take(self, line: live.Line) -> None:
        kind = line["kind"]
        if kind == "begin":
            self._spent = self.seconds
            self.began, self.ended, self.attempts = line, None, self.attempts + 1
            self._progress.clear()
        elif kind == "end":
            self.ended = line
        elif kind == "checkpoint":
            self.checkpoint = line
        elif kind == "progress":
            self._label = line["label"]
            self._progress.setdefault(self._label, deque(maxlen=RECENT)).append(line)
        elif kind == "iteration":
            self.iterations[line["index"]] = line
            self.arrived.append(line["index"])
        self.updated = max(self.updated, float(line["time"]))


def _pace(reports: Sequence[live.Line]) -> float | None:
    """Return the median seconds per unit of late: what a resumed run counts at once does not make it fast."""
    steps = [
        (second["time"] - first["time"]) / (second["done"] - first["done"])
        for first, second in pairwise(reports)
        if second["done"] > first["done"]
    ]
    return statistics.median(steps) if steps else None
