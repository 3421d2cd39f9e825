"""Runs, for people: which tasks did what, why the first one failed, whether trying again may help, how to end it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from geartrain.cluster.interface import NotFoundError
from geartrain.cluster.naming import selector
from geartrain.cluster.records import Run, Task, UnavailableError
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_USER, GeartrainError, InfrastructureError, UserError

EXIT_FAULT = 1
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 5.0, 60.0, 1.5
PATIENCE = 20
"""Polls in a row that may fail before waiting is given up; each has been repeated by the client already."""
PLUMBING = re.compile(r"root|root-driver|.*-driver|executor(\(\d+\))?|system-\S+|\S+\(\d+\)")
"""Nodes that Kubeflow adds to each task: what decides on the cache, the pod, its repetitions."""
ATTEMPT = re.compile(r"\S+\(\d+\)")


class Server(Protocol):
    """What this module asks of Kubeflow; `kubeflow.Kubeflow` answers it."""

    def run(self, run_id: str) -> Run:
        """Return a run with its tasks."""
        ...

    def terminate(self, run_id: str) -> None:
        """End a run; ended already is fine."""
        ...

    def retry(self, run_id: str) -> None:
        """Run the failed tasks again."""
        ...

    def node_log(self, run_id: str, node: str) -> str:
        """Return the log of one node."""
        ...


class Jobs(Protocol):
    """The TrainJobs of one namespace; the cluster interface of the launcher is one."""

    def find(self, selector: str) -> Sequence[Mapping[str, Any]]:
        """Return the TrainJobs with these labels."""
        ...

    def delete(self, name: str, uid: str) -> None:
        """Delete a TrainJob and what it made; an error if it is gone."""
        ...


@dataclass(frozen=True)
class Reason:
    """Why a task failed."""

    task: str
    kind: str
    """user (to mend, a retry changes nothing), infrastructure (may pass) or fault (of the program, or unknown)."""
    message: str
    hint: str

    @property
    def code(self) -> int:
        """The exit code that stands for it."""
        return {"user": EXIT_USER, "infrastructure": EXIT_INFRASTRUCTURE}.get(self.kind, EXIT_FAULT)


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
    nodes: tuple[Task, ...]
    """The task's own node and those of its pods, in the order of their start."""


SIGNS = (
    (r"OOMKilled", "user", "out of memory: raise the task's row in pipelines/resources.py"),
    (
        r"ImagePullBackOff|ErrImagePull|InvalidImageName",
        "user",
        "the image cannot be pulled: check its digest and the pull secret",
    ),
    (
        r"CreateContainerConfigError",
        "user",
        "a secret or config map that the pod names is not there: `geartrain doctor`",
    ),
    (r"exceeded quota|Unschedulable|Insufficient", "infrastructure", "no room on the cluster: wait, or ask for quota"),
    (
        r"Evicted|Preempt|NodeLost|node .*(lost|not ready)|pod (was )?deleted|imminent node shutdown",
        "infrastructure",
        "the node was lost",
    ),
    (
        r"connection refused|timed? ?out|deadline exceeded|Unavailable|TLS handshake",
        "infrastructure",
        "the network or a service did not answer",
    ),
)
"""Signs in a message that say what is behind it, tried after the exit code, in order; source: ours."""
CODES = {
    EXIT_USER: ("user", "the stage says what to mend: `geartrain logs`"),
    EXIT_INFRASTRUCTURE: ("infrastructure", "disk, network or node trouble"),
    76: ("infrastructure", "waited too long in the queue"),
    137: ("infrastructure", "killed from outside"),
    143: ("infrastructure", "told to stop from outside"),
}


def explain(task: str, message: str) -> Reason:
    """Return what a failure's message means. An exit code says most; out of memory is 137 too, and is no bad luck."""
    code = re.search(r"exit code (\d+)", message)
    signs = [(kind, hint) for sign, kind, hint in SIGNS if re.search(sign, message, re.IGNORECASE)]
    if signs and (code is None or int(code[1]) not in (EXIT_USER, EXIT_INFRASTRUCTURE, 76)):
        kind, hint = signs[0]
    elif code is not None and int(code[1]) in CODES:
        kind, hint = CODES[int(code[1])]
    elif task.endswith("-driver"):
        kind, hint = (
            "infrastructure",
            "Kubeflow's own node failed; it is not retried by itself (kubeflow/pipelines#14266)",
        )
    else:
        kind, hint = "fault", "not a kind that is known to pass: `geartrain logs` first"
    return Reason(task, kind, message or "no message", hint)


def rows(run: Run) -> list[Row]:
    """Return the tasks of the pipeline in the order of their start; a driver that failed is one, too."""
    known = {key: task for task in run.tasks for key in (task.id, task.pod) if key}
    shown = [task for task in run.tasks if _failed_driver(task) or not (_plumbing(task) or _is_top(task, known))]
    parents = {task.id: task.parent for task in run.tasks}
    names = {task.id for task in shown}
    return [_row(task, known, parents, names) for task in sorted(shown, key=_when)]


def _row(task: Task, known: Mapping[str, Task], parents: Mapping[str, str], names: set[str]) -> Row:
    inner = sorted(_inner(task, known), key=_when)
    attempts = [node for node in inner if ATTEMPT.fullmatch(node.name)] or [node for node in inner if node.started]
    failed = [node.error for node in [*reversed(inner), task] if node.state == "FAILED" and node.error]
    depth, above = 0, parents.get(task.id, "")
    while above:
        depth, above = depth + (above in names), parents.get(above, "")
    ended = task.ended or max((node.ended for node in inner if node.ended), default=None)
    return Row(
        name=task.name,
        state=task.state,
        depth=depth,
        started=task.started,
        ended=ended if task.state not in ("RUNNING", "PENDING") else None,
        attempts=max(1, len(attempts)),
        error=failed[0] if failed else task.error,
        nodes=(task, *inner),
    )


def _inner(task: Task, known: Mapping[str, Task]) -> Iterator[Task]:
    """Yield the pods of a task. A child may also be the task that comes next: its driver ends the search."""
    seen = {task.id}
    waiting = list(task.children)
    while waiting:
        child = known.get(waiting.pop())
        if child is None or child.id in seen or not _plumbing(child) or child.name.endswith("-driver"):
            continue
        seen.add(child.id)
        waiting += child.children
        yield child


def _plumbing(task: Task) -> bool:
    return PLUMBING.fullmatch(task.name) is not None


def _is_top(task: Task, known: Mapping[str, Task]) -> bool:
    """Tell whether a node stands for the whole workflow: it is named after that, and the root hangs on it."""
    return any(known[child].name in ("root", "root-driver") for child in task.children if child in known)


def _failed_driver(task: Task) -> bool:
    return task.name.endswith("-driver") and task.state == "FAILED"


def _when(task: Task) -> tuple[str, str]:
    return (task.started.isoformat() if task.started else "9", task.name)


def first_failure(run: Run) -> Reason | None:
    """Return why the task that failed first did; None if nothing failed."""
    failed = [row for row in rows(run) if row.state == "FAILED"]
    if failed:
        row = min(failed, key=lambda row: (row.ended.isoformat() if row.ended else "9", row.depth * -1, row.name))
        return explain(row.name, row.error)
    return explain("the run itself", run.error) if run.state == "FAILED" else None


def outcome(run: Run) -> int:
    """Return the exit code of a run that has ended: 0; 2 to mend (or cancelled); 75 may pass; 1 anything else."""
    if run.state in ("SUCCEEDED", "SKIPPED"):
        return 0
    if run.state == "CANCELED":
        return EXIT_USER
    reason = first_failure(run)
    return EXIT_FAULT if reason is None else reason.code


def wait(server: Server, run_id: str, *, sleep: Callable[[float], None], say: Callable[[str], None]) -> Run:
    """Poll until a run has ended, ever less often, and say when a task changes its state; return the run.

    Raises:
        InfrastructureError: the server did not answer for many polls; the run goes on.
    """
    pause, failures, told = FIRST_PAUSE, 0, dict[str, str]()
    while True:
        try:
            run = server.run(run_id)
        except UnavailableError as error:
            failures += 1
            if failures == PATIENCE:
                raise InfrastructureError(
                    f"{error} The run goes on: `geartrain status {run_id}` looks again."
                ) from error
        else:
            failures = 0
            for row in rows(run):
                if told.get(row.name) != row.state:
                    told[row.name], pause = row.state, FIRST_PAUSE
                    say(f"{row.name}: {row.state.lower()}")
            if not run.active:
                return run
        sleep(pause)
        pause = min(LONGEST_PAUSE, pause * GROWTH)


def retry(server: Server, run_id: str, *, force: bool) -> Reason | None:
    """Run the failed tasks of a run again, if what failed may pass by itself; return why it had failed.

    Raises:
        UserError: it has not failed, or for a reason that a retry does not change (and not `force`).
    """
    run = server.run(run_id)
    if run.active:
        raise UserError(f"run {run_id} is {run.state.lower()}: there is nothing to retry. `geartrain status {run_id}`")
    if run.state != "FAILED":
        raise UserError(
            f"run {run_id} has ended as {run.state.lower()}; only a failed run can be retried. Submit anew."
        )
    reason = first_failure(run)
    if not force and (reason is None or reason.kind != "infrastructure"):
        why = f"{reason.task}: {reason.message} ({reason.hint})" if reason else "nothing says why"
        raise UserError(f"run {run_id} would most likely fail again: {why}. Mend it and submit anew, or give --force.")
    server.retry(run_id)
    return reason


def cancel(server: Server, jobs: Jobs | None, run_id: str) -> list[str]:
    """End a run and its TrainJobs, from outside; may be repeated. Return what was done, line by line.

    Exit handlers and signals cannot be counted on when Kubeflow terminates a run (kubeflow/pipelines#6101, #3364), so
    the jobs are found by the run's label. What a step that is just ending still creates is the reaper's.

    Raises:
        NotFoundError: Kubeflow knows no such run, and no TrainJob carries its label.
        InfrastructureError: the run was ended, but its TrainJobs could not be.
    """
    lines = []
    unknown = None
    try:
        run = server.run(run_id)
        if run.active:
            server.terminate(run_id)
        lines.append(f"run {run_id}: {'terminated' if run.active else 'had ended as ' + run.state.lower()}")
    except NotFoundError as error:
        unknown = error
        lines.append(f"run {run_id}: Kubeflow does not know it (any more)")
    if jobs is None:
        lines.append("TrainJobs: not looked for (no access to the cluster); `geartrain reap` deletes them later")
    else:
        deleted = _delete_jobs(jobs, run_id, lines)
        if unknown is not None and not deleted:
            raise unknown
        lines += [f"TrainJob {name}: deleted" for name in deleted] or ["TrainJobs: there are none"]
    if unknown is not None and jobs is None:
        raise unknown
    lines.append(
        "a step that is ending right now may still create one: the reaper deletes it (kubeflow/pipelines#4692)"
    )
    return lines


def _delete_jobs(jobs: Jobs, run_id: str, lines: list[str]) -> list[str]:
    """Delete the TrainJobs of a run; whether each deletion worked is seen from the list afterwards."""
    done = "; ".join(lines)
    labels = selector(run=run_id)
    trouble: GeartrainError | None = None
    try:
        found = [(str(job["metadata"]["name"]), str(job["metadata"]["uid"])) for job in jobs.find(labels)]
        for name, uid in found:
            try:
                jobs.delete(name, uid)
            except GeartrainError as error:  # gone already, perhaps
                trouble = error
        left = {job["metadata"]["uid"] for job in jobs.find(labels) if not job["metadata"].get("deletionTimestamp")}
    except GeartrainError as error:
        raise InfrastructureError(f"{done}; its TrainJobs could not be deleted: {error} Repeat the command.") from error
    if left & {uid for _, uid in found}:
        raise InfrastructureError(f"{done}; {len(left)} TrainJob(s) are still there: {trouble} Repeat the command.")
    return [name for name, _ in found]


def logs(server: Server, run_id: str, task: str | None) -> Iterator[tuple[str, str]]:
    """Yield (title, log) of a task's pods, or of every failed task (of all, if none failed).

    Raises:
        UserError: the run has no such task.
    """
    table = rows(server.run(run_id))
    if task is not None:
        chosen = [
            row for row in table if row.name.removesuffix("-driver") == task.replace("_", "-") or row.name == task
        ]
        if not chosen:
            names = ", ".join(row.name for row in table) or "none yet"
            raise UserError(f"run {run_id} has no task {task!r} that has started; it has: {names}")
    else:
        chosen = [row for row in table if row.state == "FAILED"] or table
    for row in chosen:
        pods = [node for node in row.nodes if node.pod and (len(row.nodes) == 1 or node.id != row.nodes[0].id)]
        for node in pods or row.nodes[:1]:
            try:
                yield f"{row.name} ({node.name}, {node.state.lower()})", server.node_log(run_id, node.pod or node.id)
            except NotFoundError:
                yield (
                    f"{row.name} ({node.name}, {node.state.lower()})",
                    "no log: the pod is gone and none was archived\n",
                )
