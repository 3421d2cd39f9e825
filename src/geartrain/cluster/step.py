"""A stage as a step of the Kubeflow pipeline: what all shells in `components/` have in common.

Kubeflow's launcher ends with 1 whatever a step ended with, so the reason has to be in the log: the last line that a
step writes says the kind of failure and the exit code (`failures.evidence` reads it). Artifacts of Kubeflow come in as
they are; nothing here imports kfp.
"""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from geartrain import logs, preemption
from geartrain.artifacts import read_manifest, write_json
from geartrain.cluster.pinned import furnished, parse_pins
from geartrain.config import parse_config
from geartrain.errors import EXIT_INFRASTRUCTURE, GeartrainError, UserError
from geartrain.home import home
from geartrain.lineage.origin import IMAGE, RUN_ID
from geartrain.metrics import flatten
from geartrain.stages.stage import Metrics

LAUNCH_ONLY = "GEARTRAIN_LAUNCH_ONLY"
"""Variable that is set where the step's pod is too small to run the stage itself."""
NOTE = "failure.json"
"""File in `home()`: how the last step that failed on this machine failed."""
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
GPU = "nvidia.com/gpu"
DEVICES = frozenset({"gpus", "processes_per_node"})
"""Settings that have to agree, so both are the run's or both the task's."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
NOTHING: Mapping[str, Any] = {}
Launch = Callable[..., Mapping[str, Any]]
"""`stage_job.run_as_job`."""


class Artifact(Protocol):
    """What is used of Kubeflow's artifacts: `path` is where it lies on this disk, `uri` where it is kept."""

    uri: str
    metadata: dict[str, Any]

    @property
    def path(self) -> str:
        """Folder on this machine."""
        ...


class Numbers(Protocol):
    """What is used of Kubeflow's metrics."""

    def log_metric(self, name: str, value: float) -> None:
        """Show a number."""
        ...


def run_or_launch(
    run: Callable[..., Metrics],
    record: Mapping[str, Any],
    inputs: Mapping[str, Artifact],
    output: Artifact,
    metrics: Numbers,
    marks: Mapping[str, str],
    *,
    data: Mapping[str, Any] = NOTHING,
    cluster: Mapping[str, Any],
    task_config: Any,
) -> None:
    """Run a stage in this process, or where `cluster` describes one, as a training job.

    Args:
        run, record, inputs, output, metrics, marks, data: as of `run_step`.
        cluster, task_config: as of `launch_step`; an empty `cluster` describes none.

    Raises:
        SystemExit: it failed on purpose; the code says whether a retry may help.
    """
    name: str = run.spec.name  # type: ignore[attr-defined]  # set by @stage
    if cluster:
        from geartrain.cluster.stage_job import run_as_job  # loads the client of Kubernetes

        told = {"data": data, "cluster": cluster, "task_config": task_config}
        launch_step(run_as_job, name, record, inputs, output, metrics, marks, **told)
        return
    require_room(name)
    run_step(run, record, inputs, output, metrics, marks, data=data)


def run_step(
    run: Callable[..., Metrics],
    record: Mapping[str, Any],
    inputs: Mapping[str, Artifact],
    output: Artifact,
    metrics: Numbers,
    marks: Mapping[str, str],
    *,
    data: Mapping[str, Any] = NOTHING,
) -> Metrics:
    """Run a stage in this process, and show what it made.

    Args:
        run: the stage, `geartrain.stages.NAME.run`.
        record: its part of the configuration.
        inputs: the artifacts that it reads, by name.
        output: the artifact that it writes.
        metrics: takes its numbers.
        marks: what the output is made from (`dataset_digest`, `image_digest` …), for the output's metadata.
        data: what the run is pinned to (`pinned.Pin` by key of the configuration); the stage reads its own copy.

    Raises:
        SystemExit: it failed on purpose; the code says whether a retry may help.
    """
    name: str = run.spec.name  # type: ignore[attr-defined]  # set by @stage
    with reported(name):
        if "image_digest" in marks:
            os.environ[IMAGE] = marks["image_digest"]  # for lineage; a step is a process of its own
        config = parse_config(record, source=f"task {name}")
        read = {key: Path(item.path).absolute() for key, item in inputs.items()}
        made = Path(output.path).absolute()
        with furnished(config, run.spec.files, parse_pins(data)):  # type: ignore[attr-defined]
            numbers = run(config, read, {name: made})
        manifest = read_manifest(made)
    output.metadata.update({**marks, "digest": manifest.digest, "code": manifest.code})
    _show(numbers, metrics)
    return numbers


def launch_step(
    launch: Launch,
    stage: str,
    record: Mapping[str, Any],
    inputs: Mapping[str, Artifact],
    output: Artifact,
    metrics: Numbers,
    marks: Mapping[str, str],
    *,
    data: Mapping[str, Any] = NOTHING,
    cluster: Mapping[str, Any],
    task_config: Any = None,
) -> None:
    """Run a stage as a training job of the cluster. Its output stays where the job put it; nothing is copied here.

    Args:
        launch: `geartrain.cluster.stage_job.run_as_job`.
        stage: name of the stage.
        record, inputs, output, metrics, marks, data: as of `run_step`.
        cluster: size and place of the job.
        task_config: what the pipeline set on the task (Kubeflow's TaskConfig); `cluster` overrides it.

    Raises:
        SystemExit: it failed on purpose; the code says whether a retry may help.
    """
    with reported(stage):
        run_id = os.environ.get(RUN_ID)
        if not run_id:
            raise UserError(f"no {RUN_ID}: a job is named after the run of Kubeflow that wants it. Compile anew.")
        parse_config(record, source=f"task {stage}")
        # attempt 1: the launcher itself adopts or counts on, whichever attempt of the step this is
        told = dict(
            launch(
                stage=stage,
                record=record,
                inputs={name: item.uri for name, item in inputs.items()},
                data=data,
                output=output.uri,
                cluster=with_task_config(cluster, task_config),
                run_id=run_id,
                attempt=1,
                say=say,
            )
        )
        if not isinstance(told.get("uri"), str) or not told["uri"]:
            raise UserError(f"the job of stage {stage} named no uri of what it made; is its image of another version?")
    output.uri = told["uri"]
    # where a job publishes, the last part of the address is the digest; numbers would come back as floats
    tail = told["uri"].rstrip("/").rpartition("/")[2]
    known: dict[str, Any] = {name: told[name] for name in ("uri", "trainjob") if name in told}
    output.metadata.update({**marks, **known, **({"digest": tail} if _SHA256.fullmatch(tail) else {})})
    _show(told, metrics)


def with_task_config(cluster: Mapping[str, Any], task_config: Any) -> dict[str, Any]:
    """Return the settings of a job (`section.ClusterSection`) with what the task carries where they say nothing of it.

    Args:
        cluster: the settings that the run was given.
        task_config: Kubeflow's TaskConfig: resources and placement in a pod's own words; None has none.
    """
    resources = getattr(task_config, "resources", None) or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    told = {name: str(amounts[name]) for name in ("cpu", "memory") if name in amounts}
    placed = {name: getattr(task_config, name, None) for name in ("node_selector", "tolerations")}
    devices = int(amounts.get(GPU, 0))
    shared = {"gpus": devices, "processes_per_node": devices} if devices and not DEVICES & cluster.keys() else {}
    return {**told, **shared, **{name: value for name, value in placed.items() if value}, **cluster}


def require_room(task: str) -> None:
    """Refuse to run a stage in a pod that was made to launch jobs only. Raises SystemExit, as `run_step`."""
    if os.environ.get(LAUNCH_ONLY):
        with reported(task):
            raise UserError(
                f"this pipeline was compiled for a site where {task} runs as a training job, and its own pod is too "
                "small for it: give the parameter `cluster`, or compile with GEARTRAIN_SITE=dev."
            )


@contextmanager
def reported(task: str) -> Iterator[None]:
    """Turn an error that geartrain raises on purpose into a last line of the log and an exit code.

    Any other error keeps its traceback. Both leave a note, which the exit task of a local run reads.
    """
    with suppress(ValueError):  # not the main thread: nobody sends it signals
        preemption.listen()
    if logs.POD in os.environ:
        logs.set_up()
    logs.bind(stage=task)
    try:
        yield
    except GeartrainError as error:
        _end(task, error, error.exit_code)
    except OSError as error:
        if error.errno not in DISK:
            _note(task, error, 1)
            raise
        _end(task, error, EXIT_INFRASTRUCTURE)
    except Exception as error:
        _note(task, error, 1)
        raise


def say(message: str) -> None:
    """Write a line to the step's log, at once."""
    logs.say(message)


def _show(numbers: Mapping[str, Any], metrics: Numbers) -> None:
    for name, value in flatten(numbers).items():
        metrics.log_metric(name, value)


def _end(task: str, error: Exception, code: int) -> None:
    """Say why, on as many lines as it takes, and once more on the last one."""
    message, name = str(error), type(error).__name__
    kind = "InfrastructureError" if code == EXIT_INFRASTRUCTURE else name
    _note(task, error, code)
    sys.stdout.flush()
    if "\n" in message:
        say(message)
    # the kind first: whoever reads the log cuts long messages
    logs.say(f"{kind}, exit code {code}: {task}: {' '.join(message.split())}", level=logs.ERROR)
    raise SystemExit(code) from None


def _note(task: str, error: Exception, code: int) -> None:
    record = {"task": task, "kind": type(error).__name__, "exit_code": code, "message": " ".join(str(error).split())}
    with suppress(OSError):
        write_json(home() / NOTE, record)
