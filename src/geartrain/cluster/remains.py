"""What runs leave on the volume that training jobs share: `<work>/<run>/<stage>`, with checkpoints and lineage events.

Checkpoints are for a retry, which may come days after a run has failed; then they go. Lineage events stay. A stage that
was killed, or whose job was deleted, may have said START and no more: when nobody can be at work on it, it gets ABORT.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from geartrain.cluster import naming
from geartrain.cluster.interface import Cluster, TroubleError
from geartrain.cluster.reaper import Lookup, RunState, Verdict, state_of
from geartrain.cluster.reasons import duration
from geartrain.home import LINEAGE
from geartrain.lineage import events, mirror, origin
from geartrain.stages.stage import ORDER

_DAY = 86400.0
_CANCELLED = "run {run} was cancelled by `geartrain cancel`"
_ENDED = "run {run} is {state}, and the stage ended without a word: it was cancelled or killed"


def clean(
    work: Path, cluster: Cluster, lookup: Lookup, *, keep_days: float, wall: float, dry_run: bool = False
) -> list[Verdict]:
    """Delete what ended runs left on a volume long ago, and end what they left open in their lineage.

    Nothing is touched of a run that is active, of which nothing is known, or that has a TrainJob, be it one that is
    being deleted: its pods may still write.

    Args:
        work: the volume; what does not look like a run's folder is passed over.
        cluster: where the jobs are.
        lookup: state of a run.
        keep_days: how long something is kept after it was written to last.
        wall: the time, seconds since the epoch.
        dry_run: decide and report, change nothing.

    Raises:
        ForbiddenError: the service account may not list jobs.
    """
    verdicts = []
    for folder in sorted(work.iterdir()):
        if not _is_run(folder):
            continue
        try:
            verdicts.append(_settle(folder, cluster, lookup, keep_days, wall, dry_run=dry_run))
        except (TroubleError, OSError) as error:
            verdicts.append(Verdict(str(folder), folder.name, False, "was not looked at", f"failed: {error}"))
    return verdicts


def end_lost(uri: str, cluster: Cluster, lookup: Lookup, *, dry_run: bool = False) -> list[Verdict]:
    """End what pods of ended runs left open in the lineage that they copied to a place: they were killed.

    Only of this cluster and namespace: another's runs are not ours to ask for.

    Args:
        uri: what GEARTRAIN_LINEAGE names; the ends are written there too.
        cluster, lookup, dry_run: as of `clean`.

    Raises:
        UserError: the place cannot be read.
        InfrastructureError: the store did not answer.
    """
    verdicts, here = [], origin.job_namespace(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder)
        if not mirror.pull(log, uri, missing_ok=True):
            return []
        for event in events.unfinished(events.read_events(log)).values():
            run = events.parent_of(event)
            if run is None or event["job"]["namespace"] != here or cluster.find(naming.selector(run=run)):
                continue
            state = state_of(lookup, run)
            if state not in (RunState.OVER, RunState.GONE):
                continue
            message = _ENDED.format(run=run, state=state.value)
            if not dry_run:
                events.end(log, event, "ABORT", {"error": {"type": "Unfinished", "message": message}})
            name, outcome = f"{uri}: {events.stage_of(event)}", "" if dry_run else "ended"
            verdicts.append(Verdict(name, run, False, message, outcome))
    return verdicts


def end_cancelled(uri: str, run: str) -> list[str]:
    """End what a run that was just cancelled left open in the lineage that its pods copied to a place; return stages.

    A pod that is still ending may say an end of its own: of two, the one that tells of more counts.

    Raises:
        UserError: the place cannot be read.
        InfrastructureError: the store did not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder)
        mirror.pull(log, uri, missing_ok=True)
        begun = [
            event for event in events.unfinished(events.read_events(log)).values() if events.parent_of(event) == run
        ]
        for event in begun:
            events.end(log, event, "ABORT", {"error": {"type": "Cancelled", "message": _CANCELLED.format(run=run)}})
        return [events.stage_of(event) for event in begun]


def _settle(folder: Path, cluster: Cluster, lookup: Lookup, keep_days: float, wall: float, *, dry_run: bool) -> Verdict:
    run = folder.name

    def verdict(reason: str, *, delete: bool = False, outcome: str = "") -> Verdict:
        return Verdict(str(folder), run, delete, reason, outcome)

    # jobs before the state: a retry makes a run active before it makes a job
    if cluster.find(naming.selector(run=run)):
        return verdict(f"run {run} has a TrainJob")
    state = state_of(lookup, run)
    if state is RunState.ACTIVE:
        return verdict(f"run {run} is active")
    if state is RunState.UNKNOWN:
        return verdict(f"KFP does not say whether run {run} is active")
    if not dry_run:
        _end_lineage(folder, state)
    left = list(_remains(folder))
    if not left:
        return verdict("only lineage events are left")
    age = wall - max(_touched(path) for path in left)
    if age <= keep_days * _DAY:
        return verdict(f"run {run} is {state.value}; written to {duration(max(age, 0.0))} ago")
    reason = f"run {run} is {state.value}, and nothing was written for {duration(age)}"
    if dry_run:
        return verdict(reason, delete=True)
    for path in left:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return verdict(reason, delete=True, outcome="deleted")


def _is_run(folder: Path) -> bool:
    """Whether a folder is one that `stage_job` named: Kubeflow's id of a run, and stages in it."""
    try:
        UUID(folder.name)
    except ValueError:
        return False
    if folder.is_symlink() or not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    return bool(names) and set(names) <= set(ORDER)


def _remains(folder: Path) -> Iterator[Path]:
    """Yield what lies in the folders of the stages beside their lineage."""
    for stage in folder.iterdir():
        yield from (path for path in stage.iterdir() if path.name != LINEAGE)


def _touched(path: Path) -> float:
    """Return when something at or below a path was written last, seconds since the epoch."""
    below = path.rglob("*") if path.is_dir() and not path.is_symlink() else ()
    times: list[float] = [found.lstat().st_mtime for found in (path, *below)]
    return max(times)


def _end_lineage(folder: Path, state: RunState) -> None:
    message = _ENDED.format(run=folder.name, state=state.value)
    for stage in folder.iterdir():
        events.abort_unfinished(stage / LINEAGE, message)
