"""Why a job waits or failed, in words for people, from what controllers and pods say."""

import re
from collections.abc import Sequence

from geartrain.cluster.interface import Event, PodState

LOCAL_QUEUE, CLUSTER_QUEUE = "geartrain", "geartrain-gpu"
_SHORT = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed")
_LONGEST = 300


def why_queued(events: Sequence[Event], queue: str | None) -> str:
    """Return what a suspended job waits for, from the last word of Kueue; empty if it has said nothing.

    Source: ours; the message is Kueue's, of its scheduler's event `Pending`.
    """
    said = [event for event in events if event.kind == "Workload"]
    pending = [event for event in said if event.reason == "Pending"] or said
    if not pending:
        return ""
    place = f"ClusterQueue {CLUSTER_QUEUE}" if queue == LOCAL_QUEUE else f"LocalQueue {queue}"
    short = [f"{amount} {resource}" for resource, _, amount in _SHORT.findall(pending[-1].message)]
    if short:
        return f"{place} short of {', '.join(dict.fromkeys(short))}"
    return f"{place}: {_cut(pending[-1].message)}"


def why_not_started(pods: Sequence[PodState]) -> str:
    """Return what keeps the first pod that has a reason from running; empty if none says."""
    return next((_pod(pod) for pod in pods if pod.reason and pod.exit_code is None), "")


def why_failed(reason: str, message: str, pods: Sequence[PodState]) -> str:
    """Return why a job failed: the condition's words, and the container that ended worst."""
    ended = [pod for pod in pods if pod.exit_code not in (None, 0) or (pod.exit_code is None and pod.reason)]
    words = ": ".join(part for part in (reason, _cut(message)) if part) or "no reason given"
    return "; ".join(
        [words, *(_pod(pod) for pod in ended[:3]), *([f"{len(ended) - 3} more"] if len(ended) > 3 else [])]
    )


def duration(seconds: float) -> str:
    """Return a time as people say it, to two digits or so: `40 s`, `35 min`, `2 h`, `1 h 30 min`, `3 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{round(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    days, hours = divmod(hours, 24)
    return f"{days} d" + (f" {hours} h" if hours else "")


def _pod(pod: PodState) -> str:
    rank = "" if pod.rank is None else f" (rank {pod.rank})"
    what = f"exited with {pod.exit_code}" if pod.exit_code is not None else "did not run"
    why = ": ".join(part for part in (pod.reason, _cut(pod.message)) if part and part not in ("Error", "Completed"))
    return f"pod {pod.name}{rank} {what}" + (f" ({why})" if why else "")


def _cut(text: str) -> str:
    """Return text in one line; of a long one the end, where a traceback has its error."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"…{line[-_LONGEST:]}"
