"""How a training pod is doing, read from what the cluster says of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from geartrain.cluster.interface import Manifest, PodState

INDEX = "batch.kubernetes.io/job-completion-index"
"""Label in which a Job numbers its pods; torchrun's node rank is the same number."""


def newest_by_rank(pods: Sequence[Manifest]) -> Sequence[Manifest]:
    """Return one pod per rank, in their order: a restarted job leaves older pods of the same rank behind."""
    newest: dict[int | None, Manifest] = {}
    for pod in sorted(pods, key=lambda pod: str(_part(pod, "metadata").get("creationTimestamp"))):
        newest[_rank(pod)] = pod
    return [newest[rank] for rank in sorted(newest, key=lambda rank: (rank is None, rank or 0))]


def pod_state(pod: Manifest, container: str) -> PodState:
    """Return what a pod's status says of one of its containers, or of the pod where that did not start."""
    status = _part(pod, "status")
    name = str(_part(pod, "metadata").get("name"))
    states = [
        _part(entry, "state")
        for entry in status.get("containerStatuses") or []
        if isinstance(entry, Mapping) and entry.get("name") == container
    ]
    state = states[0] if states else {}
    ended, waiting = _part(state, "terminated"), _part(state, "waiting")
    code = ended.get("exitCode")
    found = ended or waiting or _unscheduled(status) or status
    reason, message = str(found.get("reason") or ""), str(found.get("message") or "").strip()
    return PodState(name, _rank(pod), code if isinstance(code, int) else None, reason, message)


def _unscheduled(status: Mapping[str, Any]) -> Mapping[str, Any]:
    for condition in status.get("conditions") or []:
        if isinstance(condition, Mapping) and (condition.get("type"), condition.get("status")) == (
            "PodScheduled",
            "False",
        ):
            return condition
    return {}


def _rank(pod: Manifest) -> int | None:
    text = str(_part(_part(pod, "metadata"), "labels").get(INDEX, ""))
    return int(text) if text.isascii() and text.isdecimal() else None


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = value.get(key)
    return part if isinstance(part, Mapping) else {}
