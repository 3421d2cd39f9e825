"""What is done with runs: wait for one, say why it failed, try again if that may help, end it, read its logs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from geartrain.cluster.failures import EXIT_FAULT, Reason, evidence, explain
from geartrain.cluster.interface import NotFoundError
from geartrain.cluster.naming import selector
from geartrain.cluster.records import Run, UnavailableError
from geartrain.cluster.task_rows import rows
from geartrain.errors import EXIT_USER, GeartrainError, InfrastructureError, UserError
from geartrain.logs import readable

FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 5.0, 60.0, 1.5
PATIENCE = 20
"""Polls in a row that may fail before waiting is given up; each has been repeated by the client already."""


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


def first_failure(run: Run, read_log: Callable[[str], str | None] | None = None) -> Reason | None:
    """Return why the task that failed first did; None if nothing failed.

    Args:
        read_log: returns the log of a node, or None; it is asked where the server says no reason, so without it most
            failures are of unknown kind.
    """
    failed = [row for row in rows(run) if row.state == "FAILED"]
    if not failed:
        return explain("the run itself", run.error) if run.state == "FAILED" else None
    row = min(failed, key=lambda row: (row.ended.isoformat() if row.ended else "9", -row.depth, row.name))
    reason = explain(row.name, row.error)
    if reason.kind != "fault" or read_log is None:
        return reason
    log = read_log(row.pods[-1].pod or row.pods[-1].id)
    told = evidence(log) if log else ""
    return explain(row.name, f"{row.error} {told}".strip()) if told else reason


def log_reader(server: Server, run_id: str) -> Callable[[str], str | None]:
    """Return what reads the log of a run's node; None where there is none, or it cannot be had."""

    def read(node: str) -> str | None:
        try:
            return readable(server.node_log(run_id, node))
        except GeartrainError:
            return None

    return read


def outcome(run: Run, reason: Reason | None) -> int:
    """Return the exit code of a run that has ended: 0; 2 to mend (or cancelled); 75 may pass; 1 anything else."""
    if run.state in ("SUCCEEDED", "SKIPPED"):
        return 0
    if run.state == "CANCELED":
        return EXIT_USER
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
    reason = first_failure(run, log_reader(server, run_id))
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
        for node in row.pods:
            try:
                text = readable(server.node_log(run_id, node.pod or node.id))
            except NotFoundError:
                text = "no log: the pod is gone and none was archived\n"
            yield f"{row.name} ({node.name}, {node.state.lower()})", text
