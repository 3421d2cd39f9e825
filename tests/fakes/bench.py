"""A launcher on a bench: a clock that moves when it is slept on, and a server on which a job's life is scripted."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from geartrain.cluster.api import Kubernetes
from geartrain.cluster.budgets import Budgets
from geartrain.cluster.launcher import Outcome, Watch, launch
from geartrain.cluster.patience import Clock
from geartrain.cluster.trainjob import TrainingJob, manifest
from tests.fakes.kubernetes_server import KubernetesServer, set_conditions

IMAGE = f"registry.example/geartrain/gpu@sha256:{'a' * 64}"
START = 1_795_953_600.0
"""2026-11-29T12:00:00Z, which the server writes into all it makes."""


class FakeTime:
    """A clock; `pauses` is what was slept."""

    def __init__(self) -> None:
        self.now = START
        self.pauses: list[float] = []
        self.stop_after: int | None = None
        """SIGTERM arrives with this pause."""

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def clock(self) -> Clock:
        return Clock(
            lambda: self.now - START,
            lambda: self.now,
            self.sleep,
            lambda: self.stop_after is not None and len(self.pauses) >= self.stop_after,
        )


SUSPENDED = set_conditions(("Suspended", "True", "Suspended"))
PENDING = set_conditions(("Suspended", "False", "Resumed"))
RUNNING = set_conditions(("Suspended", "False", "Resumed"), ready=1)
COMPLETE = set_conditions(("Suspended", "False", "Resumed"), ("Complete", "True", "AllJobsCompleted"))
FAILED = set_conditions(("Failed", "True", "JobsFailed"))
WATCH = Watch(Budgets(queue_seconds=7200, start_seconds=600, run_seconds=3600), poll_seconds=15, errors=3)


def whole() -> None:
    """An output that is whole."""


class Bench:
    """A server and a launcher; what happens to a job is scripted, one change for each time it is looked at."""

    def __init__(self, server: KubernetesServer, cluster: Kubernetes, job: TrainingJob, time: FakeTime) -> None:
        self.server, self.cluster, self.job, self.time = server, cluster, job, time
        self.said: list[str] = []

    def play(self, *changes: Callable[[dict[str, Any]], object], name: str | None = None) -> None:
        self.server.script[name or self.job.name] = deque(changes)

    def put(self, job: TrainingJob, *changes: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Have a job there before the launcher comes."""
        self.server._create(manifest(job))
        for change in changes:
            change(self.server.jobs[job.name])
        return self.server.jobs[job.name]

    def launch(self, **changes: Any) -> Outcome:
        usual: dict[str, Any] = {"verify": whole, "watch": WATCH, "say": self.said.append}
        usual |= changes
        return launch(self.job, self.cluster, usual.pop("verify"), self.time.clock(), **usual)

    def created(self) -> list[str]:
        return [asked.body["metadata"]["name"] for asked in self.server.requests if asked.method == "POST"]

    def deleted(self) -> list[str]:
        return [asked.path for asked in self.server.requests if asked.method == "DELETE"]

    def name_of(self, attempt: int) -> str:
        """Name of an attempt of the job."""
        return replace(self.job, attempt=attempt).name
