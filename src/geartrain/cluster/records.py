"""What Kubeflow Pipelines knows of runs and schedules, as plain records.

Nothing here imports kfp: whoever decides something about runs and schedules is tested without a server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from geartrain.cluster.interface import TroubleError

FINISHED = frozenset({"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"})
"""States that a run does not leave by itself; every other one, known or not, counts as at work."""


class UnavailableError(TroubleError):
    """No usable answer of Kubeflow: refused, cut, too late, too busy, or a fault of the server."""

    def __init__(self, message: str, *, maybe_done: bool) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done
        """Whether the server may have carried the request out all the same."""


@dataclass(frozen=True)
class Server:
    """What the API server says of itself; `version` is "unknown" where the image carries none."""

    version: str
    multi_user: bool


@dataclass(frozen=True)
class Version:
    """A compiled pipeline as it is stored; `spec` is None where the server did not send it along."""

    pipeline_id: str
    id: str
    name: str
    spec: Any = None


@dataclass(frozen=True)
class Task:
    """A node of a run, one of Kubeflow's own (drivers, retries) or one of the pipeline's tasks."""

    id: str
    name: str
    state: str
    error: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    parent: str = ""
    pod: str = ""
    children: tuple[str, ...] = ()
    """Ids or pod names: Kubeflow gives either."""


@dataclass(frozen=True)
class Run:
    """A run; times are UTC."""

    id: str
    name: str
    state: str
    description: str = ""
    created: datetime | None = None
    finished: datetime | None = None
    error: str = ""
    recurring_run: str = ""
    pipeline_id: str = ""
    version_id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[Task, ...] = ()

    @property
    def active(self) -> bool:
        """Whether it may still use the cluster."""
        return self.state not in FINISHED


@dataclass(frozen=True)
class Recurring:
    """A recurring run: what Kubeflow calls a schedule."""

    id: str
    name: str
    cron: str
    enabled: bool
    description: str = ""
    created: datetime | None = None
    pipeline_id: str = ""
    version_id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    max_concurrency: int = 1
    no_catchup: bool = True
    service_account: str = ""
