"""The metrics of a workspace from its live files, while stages come and go."""

import heapq
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from geartrain import live
from geartrain.telemetry.readings import Readings


@dataclass
class _File:
    position: int = 0
    began: float = 0.0
    """When its work was last begun; the newest of a stage is the stage's."""
    open: bool = False
    """Whether that has not ended."""


class Follower:
    """Takes in what stages have told since it last looked; what was killed is noticed by its lock."""

    def __init__(self, home: Path, readings: Readings) -> None:
        """Follow the stages whose work in progress lies in `home`; it need not be there yet."""
        self._live = home / live.FOLDER
        self._readings = readings
        self._files: dict[Path, _File] = {}

    def look(self) -> None:
        """Read on; lines of several files are taken in the order of their times, and none is kept."""
        paths = sorted(self._live.glob("*.jsonl"))
        for path, line in heapq.merge(*map(self._new, paths), key=lambda pair: pair[1]["time"]):
            self._take(path, line)
        for path, file in self._files.items():
            if file.open and not live.is_held(path):
                self._end_lost(path, file)

    def _new(self, path: Path) -> Iterator[tuple[Path, live.Line]]:
        file = self._files.setdefault(path, _File())
        try:
            for line, after in live.follow(path, file.position):
                file.position = after
                if line is None:
                    self._readings.miss()
                else:
                    yield path, line
        except FileNotFoundError:  # it was removed
            pass
        except OSError:  # it may not be read, say: at every look
            self._readings.miss()

    def _take(self, path: Path, line: live.Line) -> None:
        file, stage = self._files[path], live.stage_of(path)
        if line["kind"] == "begin":
            for other, rival in self._files.items():
                rival.open = rival.open and live.stage_of(other) != stage
            file.began, file.open = line["time"], True
        elif line["kind"] == "end":
            file.open = False
        self._readings.tell(stage, line)

    def _end_lost(self, path: Path, file: _File) -> None:
        with suppress(OSError):  # it was removed
            if any(live.follow(path, file.position)):  # its end was written before the lock was let go: the next look
                return
        file.open = False
        self._readings.lose(live.stage_of(path))
