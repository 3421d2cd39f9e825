"""Find the job of a spec, or create it: there is never a second live one.

The name of an attempt is a function of run, stage and attempt, so that the API server decides who comes first: the
second to create it gets 409, reads and adopts. Existing jobs are listed right before, since an attempt that failed may
have been reaped while a later one trains. What is left: two launchers of one step at the same time, and somebody who
deletes a job of that step between the list and the create of one of them, while the other creates.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from geartrain.cluster import naming
from geartrain.cluster.interface import Cluster, ConflictError, Manifest, NotFoundError, TroubleError
from geartrain.cluster.phase import Phase, attempt_of, hash_of, is_leaving, is_live, name_of, observe, uid_of
from geartrain.cluster.trainjob import GROUP, PLURAL, TrainingJob, manifest, spec_hash
from geartrain.errors import UserError

MOST_ATTEMPTS = 100


@dataclass(frozen=True)
class Acquired:
    """The job to watch."""

    job: TrainingJob
    """With the number of its attempt."""
    body: Manifest
    """As the cluster has it."""
    created: bool
    """False if it was there, and is adopted."""


def acquire(job: TrainingJob, cluster: Cluster, *, spent: Collection[str] = ()) -> Acquired:
    """Adopt the job of this spec that lives, or has completed; create a new attempt if there is none.

    Jobs of the same run and stage with another spec are not touched, and their numbers not used again.

    Args:
        job: what is to be trained.
        cluster: where.
        spent: ids of completed jobs that do not count, since their output is not whole.

    Raises:
        TroubleError: the API server did not answer, or a job of this spec is being deleted and not gone yet: again.
        UserError: there is no place for the job, or too many attempts.
    """
    wanted = spec_hash(manifest(job))
    known = _list(job, cluster)
    ours = [body for body in known if hash_of(body) == wanted]
    usable = [body for body in ours if _is_usable(body, spent)]
    if usable:
        # a live one before a completed one, of several the first: what has trained longest
        body = min(usable, key=lambda body: (not is_live(body), attempt_of(body)))
        return Acquired(replace(job, attempt=max(1, attempt_of(body))), body, created=False)
    first = max([job.attempt, *(attempt_of(body) + 1 for body in known)])
    for attempt in range(first, first + MOST_ATTEMPTS):
        found = _create_or_read(replace(job, attempt=attempt), cluster)
        if found.created or (hash_of(found.body) == wanted and _is_usable(found.body, spent)):
            return found
    raise UserError(
        f"{MOST_ATTEMPTS} jobs of stage {job.stage} of run {job.run} exist with other settings or have failed; delete "
        f"them: kubectl delete trainjobs -l {naming.selector(run=job.run, stage=job.stage)}"
    )


def _list(job: TrainingJob, cluster: Cluster) -> Sequence[Manifest]:
    try:
        return cluster.find(naming.selector(run=job.run, stage=job.stage))
    except NotFoundError as error:
        raise _no_trainer(error) from error


def _create_or_read(job: TrainingJob, cluster: Cluster) -> Acquired:
    try:
        return Acquired(job, cluster.create(manifest(job)), created=True)
    except ConflictError:
        pass
    except NotFoundError as error:
        raise _no_trainer(error) from error
    try:
        return Acquired(job, cluster.get(job.name), created=False)
    except NotFoundError as error:
        raise TroubleError(f"TrainJob {job.name} existed when it was to be created, and is gone now") from error


def _no_trainer(error: NotFoundError) -> UserError:
    return UserError(
        f"{error}. Either the namespace is not there, or Kubeflow Trainer 2.3 is not installed: "
        f"`kubectl get crd {PLURAL}.{GROUP}` tells"
    )


def _is_usable(body: Manifest, spent: Collection[str]) -> bool:
    """Whether a job of our spec is one to watch. Raises TroubleError for one that goes away but may still write."""
    if is_live(body):
        if is_leaving(body):
            raise TroubleError(f"TrainJob {name_of(body)} is being deleted; another may not start beside its pods")
        return True
    return observe(body).phase is Phase.COMPLETE and uid_of(body) not in spent
