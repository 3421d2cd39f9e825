"""Delete TrainJobs that nobody waits for any more: what a cancelled or lost run left behind.

A cluster needs this from outside of runs: terminating a KFP run reaches neither its exit handler nor its launchers
(kubeflow/pipelines#6101), and a TrainJob has no time to live. It is idempotent: run it as often as you like.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from geartrain.cluster import naming
from geartrain.cluster.interface import Cluster, ConflictError, Manifest, NotFoundError, TroubleError
from geartrain.cluster.phase import finished, is_leaving, name_of, observe, run_of, uid_of
from geartrain.cluster.reasons import duration
from geartrain.errors import InfrastructureError


class RunState(Enum):
    """What KFP says of a run."""

    ACTIVE = "active"
    """It runs, or waits to."""
    OVER = "over"
    """It succeeded, failed or was cancelled."""
    GONE = "gone"
    """KFP does not know it."""
    UNKNOWN = "unknown"
    """KFP did not answer."""


Lookup = Callable[[str], RunState]
"""Returns the state of a run, by the value of its label. May raise InfrastructureError, which means UNKNOWN."""


@dataclass(frozen=True)
class Verdict:
    """What is to become of a job, and why."""

    name: str
    run: str | None
    delete: bool
    reason: str
    outcome: str = ""
    """What came of it: `deleted`, `gone already`, `failed: …`; empty for one that is kept, and in a dry run."""


@dataclass(frozen=True)
class Report:
    """What a round of reaping saw and did."""

    verdicts: tuple[Verdict, ...]
    dry_run: bool

    @property
    def counts(self) -> dict[str, int]:
        """How many jobs were seen, kept, doomed, deleted, and failed to be."""
        doomed = [verdict for verdict in self.verdicts if verdict.delete]
        return {
            "seen": len(self.verdicts),
            "kept": len(self.verdicts) - len(doomed),
            "doomed": len(doomed),
            "deleted": sum(verdict.outcome == "deleted" for verdict in doomed),
            "failed": sum(verdict.outcome.startswith("failed") for verdict in doomed),
        }


def reap(cluster: Cluster, lookup: Lookup, *, keep_hours: float, wall: float, dry_run: bool = False) -> Report:
    """Delete the jobs of ours whose run is over or gone, and those that ended long ago; none whose run is active.

    Args:
        cluster: where the jobs are.
        lookup: state of a run; asked again right before a deletion, since a run may be retried at any time.
        keep_hours: how long a finished job is kept while KFP does not say whether its run is active.
        wall: the time, seconds since the epoch.
        dry_run: decide and report, delete nothing.

    Raises:
        ForbiddenError: the service account may not list or delete.
        TroubleError: the jobs cannot be listed. Trouble with one deletion is in the report instead.
    """
    states: dict[str, RunState] = {}
    verdicts = []
    for body in sorted(cluster.find(naming.selector()), key=name_of):
        run = run_of(body)
        if run is not None and run not in states:
            states[run] = state_of(lookup, run)
        verdict = judge(body, states.get(run or "", RunState.UNKNOWN), keep_hours=keep_hours, wall=wall)
        if verdict.delete and not dry_run:
            verdict = _delete(cluster, lookup, body, verdict, keep_hours=keep_hours, wall=wall)
        verdicts.append(verdict)
    return Report(tuple(verdicts), dry_run)


def judge(body: Manifest, state: RunState, *, keep_hours: float, wall: float) -> Verdict:
    """Decide about one job, given the state of its run. Source: ours."""
    name, run, phase, ended = name_of(body), run_of(body), observe(body).phase, finished(body)
    age = None if ended is None else wall - ended
    if is_leaving(body):
        return Verdict(name, run, False, "is being deleted already")
    if run is None:
        return Verdict(name, run, False, f"has no label {naming.RUN_LABEL}: nobody can tell whose it is")
    if state is RunState.ACTIVE:
        return Verdict(name, run, False, f"run {run} is active")
    if state in (RunState.OVER, RunState.GONE):
        return Verdict(name, run, True, f"run {run} is {state.value}, the job {phase.value}")
    if phase.is_over and age is not None and age > keep_hours * 3600:
        return Verdict(name, run, True, f"{phase.value} for {duration(age)}, and KFP does not know its run as active")
    return Verdict(name, run, False, f"KFP does not say whether run {run} is active, the job is {phase.value}")


def _delete(
    cluster: Cluster, lookup: Lookup, body: Manifest, verdict: Verdict, *, keep_hours: float, wall: float
) -> Verdict:
    assert verdict.run is not None
    again = judge(body, state_of(lookup, verdict.run), keep_hours=keep_hours, wall=wall)
    if not again.delete:
        return again
    try:
        cluster.delete(name_of(body), uid_of(body))
    except (NotFoundError, ConflictError):  # somebody was first; a new job of that name is not ours to judge now
        outcome = "gone already"
    except TroubleError as error:
        outcome = f"failed: {error}"
    else:
        outcome = "deleted"
    return Verdict(again.name, again.run, True, again.reason, outcome)


def state_of(lookup: Lookup, run: str) -> RunState:
    """Return the state of a run; UNKNOWN where KFP did not answer."""
    try:
        return lookup(run)
    except InfrastructureError:
        return RunState.UNKNOWN
