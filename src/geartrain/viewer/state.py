"""The state of a workspace: which stage is at work, how far, since when; what is done, what failed and why."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from geartrain import live
from geartrain.artifacts import MANIFEST
from geartrain.home import home
from geartrain.stages.stage import FOLDERS, ORDER
from geartrain.viewer.tail import Progress, Tail

State = Literal["done", "running", "failed", "interrupted", "killed", "waiting"]


@dataclass(frozen=True)
class StageState:
    """How a stage of a workspace is."""

    name: str
    state: State
    seconds: float | None = None
    """What it has taken, all attempts together; None: not known."""
    progress: Progress | None = None
    reason: str = ""
    """Why it failed."""
    attempts: int = 0


class Watched:
    """A workspace that is looked at again and again; `refresh` reads what is new."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = home(folder)
        self._tails: dict[Path, Tail] = {}
        self.latest: dict[str, Tail] = {}
        """By stage: its latest live record."""

    def refresh(self) -> None:
        """Look for new records, and read on in those that count."""
        newest: dict[str, tuple[float, Path]] = {}
        for path in (self.home / live.FOLDER).glob("*-*.jsonl"):
            stage = live.stage_of(path)
            try:
                newest[stage] = max(newest.get(stage, (0.0, path)), (path.stat().st_mtime, path))
            except OSError:
                continue
        self.latest = {stage: self._tail(newest[stage][1]) for stage in ORDER if stage in newest}
        for tail in self.latest.values():
            tail.refresh()

    def _tail(self, path: Path) -> Tail:
        return self._tails.setdefault(path, Tail(path))

    def stages(self) -> list[StageState]:
        """Return the state of every stage, in their order."""
        return [self._state(name) for name in ORDER]

    @property
    def updated(self) -> float:
        """When something last happened, unix seconds; 0: never."""
        last = [tail.updated for tail in self.latest.values()]
        return max([*last, *(_changed(self.folder / path / MANIFEST) for path in FOLDERS.values())])

    def changed(self) -> Any:
        """Return something that is another when a stage has begun, ended, or published since."""
        told = [(tail.path.name, tail.attempts, tail.ended is None) for tail in self.latest.values()]
        return told, [_changed(self.folder / path / MANIFEST) for path in FOLDERS.values()]

    def parameters(self) -> dict[str, Any]:
        """Return the settings that the stages ran with, as their live records say, by section."""
        return {key: value for tail in self.latest.values() for key, value in tail.parameters.items()}

    def episodes(self) -> Path:
        """Return the folder of the episodes that the latest `policy` has recorded; it need not be there."""
        from geartrain.credit_table import FOLDER

        tail = self.latest.get("policy")
        return (tail.path.with_suffix("") if tail else self.home / live.FOLDER / "policy") / FOLDER

    def _state(self, name: str) -> StageState:
        made, tail = _changed(self.folder / FOLDERS[name] / MANIFEST), self.latest.get(name)
        if tail is None or tail.began is None:
            return StageState(name, "done" if made else "waiting")
        seen = StageState(name, "done" if made else "waiting", tail.seconds, tail.progress(), attempts=tail.attempts)
        if made > tail.updated:
            return seen
        if tail.ended is None:
            if live.is_at_work(tail.path, tail.updated):
                return replace(seen, state="running", seconds=time.time() - tail.updated + tail.seconds)
            return replace(seen, state="killed")
        outcome = tail.ended.get("outcome")
        if outcome == "complete":
            return seen
        reason = str(tail.ended.get("reason") or "")
        return replace(seen, state="interrupted" if outcome == "interrupted" else "failed", reason=reason)


def current(stages: Sequence[StageState]) -> StageState | None:
    """Return the stage that is at work, or that ended the run; None: nothing has begun, or all is done."""
    for wanted in ("running", "failed", "killed", "interrupted"):
        for stage in stages:
            if stage.state == wanted:
                return stage
    return None


def alarms_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the alarms that the last iteration raises, each as "name: reason"."""
    found = records[-1].get("alarms") if records else None
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def _changed(path: Path) -> float:
    """Return when a file was last written, unix seconds; 0: it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
