"""The tasks of a run, one row each, out of the nodes that Kubeflow and Argo make of them.

A task `policy` is a node `policy-driver`, a node `policy`, and below it `executor`, with `executor(0)`, `executor(1)`
… for each attempt. An Argo node's children are what comes below it and what comes after it alike.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from geartrain.cluster.records import Run, Task

PLUMBING = re.compile(r"root|.*-driver|executor(\(\d+\))?|system-\S+|\S+\(\d+\)")
"""Nodes that Kubeflow adds to each task: what decides on the cache, the pod, its repetitions."""
ATTEMPT = re.compile(r"\S+\(\d+\)")
OMITTED = "RUNTIME_STATE_UNSPECIFIED"
"""What Kubeflow makes of Argo's "Omitted": it was not needed, or came after a failure."""


@dataclass(frozen=True)
class Row:
    """One task of the pipeline, with what Kubeflow's own nodes tell about it."""

    name: str
    state: str
    depth: int
    started: datetime | None
    ended: datetime | None
    attempts: int
    error: str
    """What the server says of the failure: in 2.17 nothing."""
    nodes: tuple[Task, ...]
    """The task's own node and those of its pods, in the order of their start."""

    @property
    def pods(self) -> tuple[Task, ...]:
        """The nodes that are pods, one per attempt, oldest first; a driver that failed is its own."""
        tries = tuple(node for node in self.nodes[1:] if ATTEMPT.fullmatch(node.name))
        return tries or tuple(node for node in self.nodes[1:] if node.pod) or self.nodes[:1]


def rows(run: Run) -> list[Row]:
    """Return the tasks of the pipeline in the order of their start; a driver that failed is one, too."""
    known: dict[str, Task] = {}
    for task in run.tasks:
        for key in (_tail(task.pod), task.pod, task.id):
            if key:
                known[key] = task
    shown = [task for task in run.tasks if _failed_driver(task) or not (_plumbing(task) or _is_top(task, known))]
    parents = {task.id: task.parent for task in run.tasks}
    names = {task.id for task in shown}
    return [_row(task, known, parents, names) for task in sorted(shown, key=_when)]


def _row(task: Task, known: Mapping[str, Task], parents: Mapping[str, str], names: set[str]) -> Row:
    inner = sorted(_inner(task, known), key=_when)
    attempts = [node for node in inner if ATTEMPT.fullmatch(node.name)]
    failed = [node.error for node in [*reversed(inner), task] if node.state == "FAILED" and node.error]
    depth, above = 0, parents.get(task.id, "")
    while above:
        depth, above = depth + (above in names), parents.get(above, "")
    ended = task.ended or max((node.ended for node in inner if node.ended), default=None)
    return Row(
        name=task.name,
        state="OMITTED" if task.state == OMITTED else task.state,
        depth=depth,
        started=task.started,
        ended=None if task.state in ("RUNNING", "PENDING") else ended,
        attempts=max(1, len(attempts)),
        error=failed[0] if failed else task.error,
        nodes=(task, *inner),
    )


def _inner(task: Task, known: Mapping[str, Task]) -> Iterator[Task]:
    """Yield the nodes below a task. A child may also be the task that comes next: its driver ends the search."""
    seen = {id(task)}
    waiting = list(task.children)
    while waiting:
        child = _find(waiting.pop(), known)
        if child is None or id(child) in seen or not _plumbing(child) or child.name.endswith("-driver"):
            continue
        seen.add(id(child))
        waiting += child.children
        yield child


def _find(key: str, known: Mapping[str, Task]) -> Task | None:
    """Return the node that a child's key means: an Argo node's id, where the node itself has the name of its pod.

    Both end in the same number: `flow-123` is `flow-system-container-impl-123`.
    """
    return known.get(key) or known.get(_tail(key))


def _tail(name: str) -> str:
    number = name.rpartition("-")[2]
    return number if number.isdigit() else ""


def _plumbing(task: Task) -> bool:
    return PLUMBING.fullmatch(task.name) is not None


def _is_top(task: Task, known: Mapping[str, Task]) -> bool:
    """Tell whether a node stands for the whole workflow: it is named after that, and the root hangs on it."""
    children = [_find(child, known) for child in task.children]
    return any(child is not None and child.name in ("root", "root-driver") for child in children)


def _failed_driver(task: Task) -> bool:
    return task.name.endswith("-driver") and task.state == "FAILED"


def _when(task: Task) -> tuple[str, str]:
    return (task.started.isoformat() if task.started else "9", task.name)
