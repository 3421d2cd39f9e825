"""What has come of the pipeline's tasks, and which jobs queue: for metrics that no pod lives long enough to tell.

A step's pod is gone before it is scraped, and a job that queues has no pod at all. Kubeflow remembers how tasks ended,
the cluster which job waits; both are told as lines of `geartrain.live`, so that one mapping makes metrics of all.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from geartrain.cluster import naming
from geartrain.cluster.interface import ForbiddenError, Manifest, NotFoundError
from geartrain.cluster.phase import Phase, created, observe
from geartrain.cluster.records import Run
from geartrain.cluster.task_rows import rows
from geartrain.errors import GeartrainError
from geartrain.live import Line
from geartrain.telemetry.labels import STAGE
from geartrain.telemetry.readings import Readings

AT_FIRST, LATER = 100, 20
"""Newest runs that are looked at: by an exporter that starts, for what was last complete may be long ago; and then."""
_ENDS: Mapping[str, str] = {"SUCCEEDED": "complete", "FAILED": "failed"}


class Server(Protocol):
    """What is asked of Kubeflow; each call may raise InfrastructureError."""

    def list_runs(self) -> Iterator[Run]:
        """Yield the runs, newest first, without their tasks."""
        ...

    def run(self, run_id: str) -> Run:
        """Return a run with its tasks."""
        ...


class Jobs(Protocol):
    """What is asked of the cluster."""

    def find(self, selector: str) -> Sequence[Manifest]:
        """Return the TrainJobs with these labels. Raises InfrastructureError."""
        ...


class Outcomes:
    """Tells readings what it has not told yet. Whoever starts anew learns all of it again: nothing is kept."""

    def __init__(
        self, server: Server, jobs: Jobs, readings: Readings, *, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """Look at nothing yet; `say` gets a line when something does not answer, and when it does again."""
        self._server, self._jobs, self._readings, self._say = server, jobs, readings, say
        self._over: set[str] = set()
        self._told: set[tuple[str, str, float]] = set()
        self._queued: set[str] = set()
        self._first, self._trouble = True, ""

    def look(self) -> None:
        """Tell what has ended since, and how long jobs have queued. What does not answer is counted as an error."""
        try:
            self._take_ends()
            self._take_queue(time.time())
        except GeartrainError as error:
            self._readings.miss()
            if not self._trouble:
                self._say(f"{error}; what was known of runs and queue is told until it answers")
            self._trouble = str(error)
            return
        if self._trouble:
            self._say("Kubeflow and the cluster answer again")
        self._trouble = ""

    def _take_ends(self) -> None:
        new: list[tuple[str, str, Line]] = []
        over: set[str] = set()
        for listed in islice(self._server.list_runs(), AT_FIRST if self._first else LATER):
            if listed.id not in self._over and (run := self._open(listed.id)) is not None:
                new += [(run.id, stage, line) for stage, line in ends(run)]
                over |= set() if run.active else {run.id}
        for run_id, stage, line in sorted(new, key=lambda entry: entry[2]["time"]):
            key = (run_id, stage, line["time"])
            if key not in self._told:
                self._told.add(key)
                self._readings.tell(stage, line)
        self._over |= over
        self._told = {key for key in self._told if key[0] not in self._over}
        self._first = False

    def _open(self, run_id: str) -> Run | None:
        try:
            return self._server.run(run_id)
        except (NotFoundError, ForbiddenError):  # deleted since, or somebody else's
            return None

    def _take_queue(self, now: float) -> None:
        waits = queued(self._jobs.find(naming.selector()), now)
        for stage in self._queued - waits.keys():
            self._readings.tell(stage, {"time": now, "kind": "queue", "seconds": None})
        for stage, seconds in waits.items():
            self._readings.tell(stage, {"time": now, "kind": "queue", "seconds": seconds})
        self._queued = set(waits)


def ends(run: Run) -> Iterator[tuple[str, Line]]:
    """Yield (stage, line of its end) for each task of a run that has ended and is a stage."""
    for row in rows(run):
        stage, outcome = row.name.replace("-", "_"), _ENDS.get(row.state)
        if stage in STAGE.values and outcome is not None and row.started is not None and row.ended is not None:
            seconds = (row.ended - row.started).total_seconds()
            yield stage, {"time": row.ended.timestamp(), "kind": "end", "outcome": outcome, "seconds": seconds}


def queued(jobs: Iterable[Manifest], now: float) -> dict[str, float]:
    """Return seconds by stage that the job which waits longest for its place has waited, since it asked for it last."""
    found: dict[str, float] = {}
    for body in jobs:
        stage = str((body["metadata"].get("labels") or {}).get(naming.STAGE_LABEL, ""))
        seen = observe(body)
        since = seen.since if seen.since is not None else created(body)
        if seen.phase is Phase.SUSPENDED and since is not None and stage in STAGE.values:
            found[stage] = max(found.get(stage, 0.0), now - since)
    return found
