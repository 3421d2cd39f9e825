"""What the launcher and the reaper ask of a cluster, and the errors that they may get; `api.py` answers them.

An error is either final (`UserError`: a person has to mend something) or trouble (`TroubleError`: ask again).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from geartrain.errors import InfrastructureError, UserError

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON."""


class NotFoundError(UserError):
    """The object is not there, or the kind of object is not known to the cluster."""


class ConflictError(UserError):
    """An object of that name exists, or it is not the one that was meant."""


class ForbiddenError(UserError):
    """The service account lacks a permission, or a policy of the cluster refuses the request."""


class InvalidError(UserError):
    """The cluster refuses the object: its schema, a webhook or a rule."""


class TroubleError(InfrastructureError):
    """The API server did not answer as it should; the same request may succeed later."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds that the server asks us to wait, if it said so."""


class GoneError(TroubleError):
    """410: a list's continuation is too old; start the list again."""


class ThrottledError(TroubleError):
    """429: the server asks for patience."""


class ServerFaultError(TroubleError):
    """5xx, or an answer that is no JSON."""


class NoAnswerError(TroubleError):
    """No connection, or no answer in time."""


@dataclass(frozen=True)
class Event:
    """What a controller said about a job."""

    kind: str
    """Kind of the object that it is about: `TrainJob`, or `Workload` for what Kueue says."""
    reason: str
    message: str
    time: str
    """When it was said last, RFC 3339; empty if unknown."""


@dataclass(frozen=True)
class PodState:
    """How a training pod is doing."""

    name: str
    rank: int | None
    """Index of the node, 0 is the one that leads."""
    exit_code: int | None
    """Of the training container, once it has ended."""
    reason: str
    """Why it ended (`OOMKilled`) or does not start (`ImagePullBackOff`, `Unschedulable`); empty if there is none."""
    message: str


class Cluster(Protocol):
    """TrainJobs of one namespace. Every call may raise a TroubleError or ForbiddenError."""

    def create(self, manifest: Manifest) -> Manifest:
        """Create a TrainJob. Raises ConflictError if the name is taken, InvalidError, NotFoundError without CRD."""
        ...

    def get(self, name: str) -> Manifest:
        """Return a TrainJob. Raises NotFoundError."""
        ...

    def find(self, selector: str) -> Sequence[Manifest]:
        """Return the TrainJobs with these labels."""
        ...

    def delete(self, name: str, uid: str) -> None:
        """Delete a TrainJob and what it made. Raises NotFoundError; ConflictError if that name is another job now."""
        ...

    def pods(self, name: str) -> Sequence[PodState]:
        """Return the training pods of a TrainJob that are still known, by rank; of several of a rank the newest."""
        ...

    def log_tail(self, name: str, lines: int) -> str:
        """Return the last lines of the leading node's log. Raises NotFoundError if there is no such pod."""
        ...

    def events(self, name: str) -> Sequence[Event]:
        """Return what was said about a TrainJob and its Kueue Workload, oldest first."""
        ...
