"""What a TrainJob is doing, read from what the cluster says of it.

Conditions are read as a set: their order says nothing, those we do not know are passed over, and one that is not
"True" does not hold. A job that is Failed *and* Complete has failed: the launcher of opendatahub-io/ilab-on-ocp waited
for either and did not look which, so that failed trainings ended as green steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from geartrain.cluster import naming
from geartrain.cluster.interface import Manifest
from geartrain.cluster.trainjob import NODE


class Phase(Enum):
    """Where a job stands."""

    SUSPENDED = "Suspended"
    """Kueue has not admitted it, or has taken its place back (a preemption, which is no failure: jobset#1117)."""
    PENDING = "Pending"
    """Admitted, its pods are not all running."""
    RUNNING = "Running"
    FAILED = "Failed"
    COMPLETE = "Complete"

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, for good or ill."""
        return self in (Phase.FAILED, Phase.COMPLETE)


@dataclass(frozen=True)
class Observation:
    """A job at one moment."""

    phase: Phase
    reason: str = ""
    """Reason of the condition that decided, such as `DeadlineExceeded`; empty if none did."""
    message: str = ""
    since: float | None = None
    """When the job was created, or suspended or resumed last; seconds since the epoch, by the server's clock. None if
    the server has not said so yet."""


def observe(job: Manifest) -> Observation:
    """Return the phase that a TrainJob is in."""
    conditions = {
        str(condition.get("type")): condition
        for condition in _list(_part(job, "status").get("conditions"))
        if isinstance(condition, Mapping)
    }
    holding = {kind: condition for kind, condition in conditions.items() if condition.get("status") == "True"}
    since = timestamp(conditions.get("Suspended", {}).get("lastTransitionTime"))
    since = since if since is not None else created(job)
    for phase in (Phase.FAILED, Phase.COMPLETE, Phase.SUSPENDED):
        if phase.value in holding:
            condition = holding[phase.value]
            return Observation(phase, str(condition.get("reason", "")), str(condition.get("message", "")), since)
    if _part(job, "spec").get("suspend") is True:  # the controller has not written the condition yet
        return Observation(Phase.SUSPENDED)
    return Observation(Phase.RUNNING if _is_running(job) else Phase.PENDING, since=since)


def _is_running(job: Manifest) -> bool:
    """Whether all pods of the training are up: Trainer counts a child job as ready only then."""
    for child in _list(_part(job, "status").get("jobsStatus")):
        if isinstance(child, Mapping) and child.get("name") == NODE:
            return int(child.get("ready") or 0) + int(child.get("succeeded") or 0) > 0
    return False


def is_live(job: Manifest) -> bool:
    """Whether a job trains, or may yet."""
    return not observe(job).phase.is_over


def is_leaving(job: Manifest) -> bool:
    """Whether a job is being deleted; until it is gone its pods may still write."""
    return _part(job, "metadata").get("deletionTimestamp") is not None


def name_of(job: Manifest) -> str:
    """Return a job's name."""
    return str(job["metadata"]["name"])


def uid_of(job: Manifest) -> str:
    """Return the id that tells a job from a later one of the same name."""
    return str(job["metadata"]["uid"])


def hash_of(job: Manifest) -> str | None:
    """Return the hash of the spec that a job was made from, if it says so."""
    value = _part(_part(job, "metadata"), "annotations").get(naming.SPEC_HASH)
    return None if value is None else str(value)


def attempt_of(job: Manifest) -> int:
    """Return which attempt a job is; 0 if it does not say."""
    text = str(_part(_part(job, "metadata"), "annotations").get(naming.ATTEMPT, ""))
    return int(text) if text.isdecimal() else 0


def run_of(job: Manifest) -> str | None:
    """Return the run that a job belongs to, as its label has it."""
    value = _part(_part(job, "metadata"), "labels").get(naming.RUN_LABEL)
    return None if value is None else str(value)


def created(job: Manifest) -> float | None:
    """Return when a job was created, seconds since the epoch, by the server's clock."""
    return timestamp(_part(job, "metadata").get("creationTimestamp"))


def finished(job: Manifest) -> float | None:
    """Return when a job ended, seconds since the epoch; None if it has not, or does not say when."""
    times = [
        timestamp(condition.get("lastTransitionTime"))
        for condition in _list(_part(job, "status").get("conditions"))
        if isinstance(condition, Mapping)
        and condition.get("type") in (Phase.FAILED.value, Phase.COMPLETE.value)
        and condition.get("status") == "True"
    ]
    return max((time for time in times if time is not None), default=None)


def timestamp(text: object) -> float | None:
    """Return an RFC 3339 time as seconds since the epoch; None if it is none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = value.get(key)
    return part if isinstance(part, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
