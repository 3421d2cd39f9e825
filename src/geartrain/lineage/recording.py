"""How a stage tells lineage of its work: START, then one end; and what a crash left unsaid, said later.

The ids of all tries lie beside the checkpoint. So the next try ends the one before, if that was killed; and one that
finds the output in place and whole, with nobody having told of it, completes the run that made it.
"""

import os
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from geartrain import logs
from geartrain.errors import GeartrainError, WithdrawnError
from geartrain.lineage import events, journal
from geartrain.lineage.events import Data
from geartrain.metrics import flatten
from geartrain.preemption import PreemptedError
from geartrain.progress import note

TRIES = "tries"
"""File of run ids, one a line, in a work folder."""
LONGEST = 10_000
"""Characters of an error's message in an event: some errors hold all that they were given."""
KILLED = "ended without a word: the process was killed, or its machine was lost"
LOST_WORD = "the output is in place and whole, and no COMPLETE told of it: the process ended between the two"
ADOPTED = "the output was found in place and whole, and no run is known that made it: nobody saw it made"


@dataclass(frozen=True)
class Task:
    """A piece of work, as lineage tells of it."""

    stage: str
    key: str
    """Digest of stage, parameters, inputs and code."""
    inputs: tuple[Data, ...]
    output: Data
    """Without its digest, which is not known yet."""
    parameters: Mapping[str, Any]
    work: Path
    """Folder that outlives a kill; the caller holds its lock."""


@dataclass
class Published:
    """What a run has written, told before its end."""

    run: str = ""
    """The run's id."""
    digest: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    manifest: str = ""
    """sha256 of its manifest."""


@contextmanager
def recorded(log: Path, task: Task) -> Iterator[Published]:
    """Record START, then COMPLETE with what was published, FAIL with the reason, or ABORT if it was asked to end."""
    started, run_id, attempt = time.monotonic(), events.new_run_id(), _new_try(log, task)
    task.work.mkdir(parents=True, exist_ok=True)
    _note(task.work / TRIES, run_id)
    known = {"parameters": task.parameters, "stage": {"name": task.stage, "key": task.key, "attempt": attempt}}
    told: dict[str, Any] = {"run_id": run_id, "job": task.stage, "inputs": task.inputs}
    events.emit(log, "START", **told, outputs=(), facets=known)
    published = Published(run_id)
    try:
        yield published
    except BaseException as error:
        ended = isinstance(error, PreemptedError) or not isinstance(error, Exception)
        message = str(error) if isinstance(error, GeartrainError) else repr(error)
        reason = {"type": type(error).__name__, "message": message[:LONGEST]}
        events.emit(log, "ABORT" if ended else "FAIL", **told, outputs=(), facets={**known, "error": reason})
        raise
    facets = {**known, "resources": _resources(started), "metrics": {"values": flatten(published.metrics)}}
    outputs = [replace(task.output, digest=published.digest, manifest=published.manifest)]
    events.emit(log, "COMPLETE", **told, outputs=outputs, facets=facets)


def refused(log: Path, task: Task, error: WithdrawnError) -> None:
    """Record that a task was not begun, for what it would have read is withdrawn: START, and FAIL with the reason.

    Nothing of it is worked on, so it is no try. What cannot be recorded is said; the refusal stands.
    """
    reason = {"type": type(error).__name__, "message": str(error)[:LONGEST]}
    stage = {"name": task.stage, "key": task.key, "attempt": len(_tries(task)) + 1}
    facets = {"parameters": task.parameters, "stage": stage}
    told: dict[str, Any] = {"run_id": events.new_run_id(), "job": task.stage, "inputs": task.inputs, "outputs": ()}
    ends: tuple[tuple[events.EventType, Mapping[str, Any]], ...] = (("START", {}), ("FAIL", {"error": reason}))
    for event_type, more in ends:
        try:
            events.emit(log, event_type, **told, facets={**facets, **more})
        except (GeartrainError, OSError) as failed:
            logs.say(f"lineage: the refusal was not recorded: {failed}", level=logs.WARNING)


def mend(log: Path, task: Task, made: Published) -> bool:
    """Record that a task is complete, if its output is in place and whole and nobody told; return whether it was so.

    If the run that made it is known, it is completed; otherwise the output gets a run of its own, which says why. An
    output that is not what a run of the same task has made is left to `geartrain lineage verify`: who put it there?
    """
    told = journal.find(log, f"{events.SHA256}{made.digest}")
    if any(
        event["eventType"] == "COMPLETE" and events.names_output(event, made.digest, made.manifest) for event in told
    ):
        return False
    facets: dict[str, Any] = {"recovery": {"reason": LOST_WORD}, "metrics": {"values": flatten(made.metrics)}}
    outputs = [replace(task.output, digest=made.digest, manifest=made.manifest)]
    same_task = journal.find(log, task.key)
    begun = list(events.unfinished(same_task).values())
    if begun:
        events.end(log, begun[-1], "COMPLETE", facets, outputs)
        return True
    if any(event["eventType"] == "COMPLETE" for event in same_task):
        note(f"{task.stage}: its output is not what its run made; `geartrain lineage verify` says more")
        return False
    facets["recovery"] = {"reason": ADOPTED}
    known = {"parameters": task.parameters, "stage": {"name": task.stage, "key": task.key, "attempt": 1}, **facets}
    run: dict[str, Any] = {"run_id": events.new_run_id(), "job": task.stage, "inputs": task.inputs, "facets": known}
    events.emit(log, "START", **run, outputs=())
    events.emit(log, "COMPLETE", **run, outputs=outputs)
    return True


def _new_try(log: Path, task: Task) -> int:
    """Return the number of this try, from 1; end the one before, if it was killed."""
    tries = _tries(task)
    if tries:
        for event in events.unfinished(journal.find(log, tries[-1])).values():
            events.end(log, event, "ABORT", {"error": {"type": "Unfinished", "message": KILLED}})
    return len(tries) + 1


def _tries(task: Task) -> list[str]:
    path = task.work / TRIES
    return path.read_text("utf-8").split() if path.is_file() else []


def _note(path: Path, run_id: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{run_id}\n")
        file.flush()
        os.fsync(file.fileno())


def _resources(started: float) -> dict[str, float]:
    """Wall seconds; CPU seconds and peak memory of this process and of the workers it waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    return {
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(cpu, 3),
        "peak_memory_bytes": max(own.ru_maxrss, children.ru_maxrss) * 1024,
    }
