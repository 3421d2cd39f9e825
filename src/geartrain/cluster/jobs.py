"""Which stages of a run are trained by training jobs, and the file that describes these jobs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geartrain.cluster.section import ClusterSection, LoneSection, parse_section
from geartrain.config_file import read_record
from geartrain.errors import UserError

JOBS = {"policy": "cluster", "reward_model": "reward_model_cluster", "critic": "critic_cluster"}
"""Stage that a job may train -> the pipeline's parameter that describes it; empty trains in the step's own pod. One
parameter each: the critic is not trained again because the policy got more nodes."""
SIZES = frozenset({"nodes", "processes_per_node", "gpus", "cpu", "memory"})
"""Settings of the policy's job that the other jobs do not take over."""


class ClusterFile(ClusterSection):
    """The job of the policy, and those of other stages. What these do not say, but for sizes, is as for the policy."""

    reward_model: dict[str, Any] | None = None
    """Job of the stage `reward_model`: {} or what differs. Without it the stage runs in the pod of its step, where it
    shares no queue, and begins anew when the pod is lost."""
    critic: dict[str, Any] | None = None
    """Job of the stage `critic`, in the same way."""


def read_jobs(path: Path) -> dict[str, dict[str, Any]]:
    """Return what a file says of training jobs, checked: parameter of a run -> its value.

    Only what the file says itself: for the rest, what the pipeline set on a task comes before the defaults.

    Raises:
        UserError: no such file, or something in it is wrong; see `parse_section`.
    """
    record = read_record(path, hint="It holds what the training job asks for: image, nodes, gpus, …")
    whole = parse_section(ClusterFile, record, source=str(path))
    shared = {name: value for name, value in record.items() if name not in SIZES | JOBS.keys()}
    jobs = {JOBS["policy"]: _told(whole)}
    for stage, parameter in JOBS.items():
        given = None if stage == "policy" else getattr(whole, stage)
        if given is not None:
            jobs[parameter] = _told(parse_section(LoneSection, {**shared, **given}, source=f"{path}: {stage}"))
    return jobs


def require_jobs(launching: Mapping[str, str], given: Mapping[str, Any], *, source: str) -> None:
    """Refuse a run in which a step that can only launch a job is told of none.

    Args:
        launching: stage -> parameter, of the steps whose pods have room for a launcher only.
        given: parameters of the run, defaults included.
        source: names the pipeline.

    Raises:
        UserError: the first such stage, and what to give.
    """
    for stage, parameter in launching.items():
        if not given.get(parameter):
            raise UserError(
                f"{source}: was compiled for a site where {stage} runs as a training job, and nothing describes that "
                "job. Give --cluster FILE (or GEARTRAIN_CLUSTER; in a schedule the key `cluster`) with its image and "
                "size: image, nodes, gpus, … (docs/cluster.md, Settings). Or compile with GEARTRAIN_SITE=dev, where it "
                "runs in its own pod."
            )


def _told(section: ClusterSection) -> dict[str, Any]:
    told = section.model_dump(mode="json", exclude_unset=True, exclude_none=True, exclude=set(JOBS))
    # Kubeflow takes no null, and by default a job waits in a queue
    return {**told, "queue": ""} if section.queue is None else told
