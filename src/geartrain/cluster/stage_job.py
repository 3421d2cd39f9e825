"""A stage of the pipeline as a TrainJob on several nodes: what a Kubeflow step calls instead of running the stage.

The step holds no GPU and touches no weights: it creates or adopts the job, waits, and verifies what the pods have
published. A step that is repeated finds what is published, and waits for what is under way.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from geartrain.artifacts import fingerprint
from geartrain.cluster import api, naming
from geartrain.cluster.budgets import Budgets
from geartrain.cluster.launcher import SUBMITTED, Outcome, Watch, launch
from geartrain.cluster.node import check_request, find_published, published
from geartrain.cluster.owner import find_owner
from geartrain.cluster.patience import Clock, StoppedError, until_terminated
from geartrain.cluster.pinned import parse_pins
from geartrain.cluster.section import GPU, ClusterSection, LoneSection, Request, parse_section
from geartrain.cluster.storage import Storage
from geartrain.cluster.trainjob import Owner, Placement, Resources, TrainingJob
from geartrain.config import Config
from geartrain.errors import EXIT_QUEUE, EXIT_USER, GeartrainError, InfrastructureError, QueueError, UserError
from geartrain.lineage import origin
from geartrain.places import locate
from geartrain.sources import read_keys
from geartrain.stages.stage import load_stage

INLINE_BYTES = 64 * 1024
"""Longest request that is an argument of the container: Linux allows 128 KiB for one."""
MOST_BYTES = 1024 * 1024
"""Longest request at all; a configuration has 10 KiB or so."""
Say = Callable[[str], None]


def run_as_job(
    *,
    stage: str,
    record: Mapping[str, Any],
    inputs: Mapping[str, str],
    output: str,
    data: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any],
    run_id: str,
    attempt: int,
    say: Say,
) -> dict[str, Any]:
    """Run a stage on a cluster; return its metrics, and where things lie. Only in the main thread.

    Under "uri" is its artifact, under "trainjob" the manifest of the job that was submitted for it; beside that one, as
    `….status.json`, how the last launcher saw it end.

    Args:
        stage: its name, such as "policy".
        record: of the configuration: `seed`, `threads` and the sections that the stage reads.
        inputs: name -> URI of an artifact, such as `s3://bucket/key` or a path that step and pods share.
        data: what the run is pinned to; `pinned.Pin` by key.
        output: URI prefix; the artifact becomes `<output>/<run>/<digest>`.
        cluster: what the job asks for; see `section.ClusterSection`.
        run_id: of the KFP run; jobs of one run and stage are adopted by one another's launchers.
        attempt: number of the first TrainJob, 1 or more.
        say: gets a line of text for each change.

    Raises:
        UserError: a person has to mend something; exit code 2.
        InfrastructureError: the same call may succeed later; exit code 75. An unfinished job goes on meanwhile, and is
            adopted.
        QueueError: the queue was too long; exit code 76.
    """
    source = f"cluster settings of stage {stage}"
    kind = ClusterSection if load_stage(stage).together else LoneSection
    section = parse_section(kind, cluster, source=source)
    request = make_request(stage, record, inputs, output, run_id, data)
    _, config = check_request(request, section.nodes * section.processes_per_node, source=f"stage {stage}")
    try:
        with until_terminated() as clock:
            return _see_through(request, section, config, run_id, attempt, clock, say)
    except StoppedError as error:
        raise InfrastructureError(f"stage {stage}: stopped by SIGTERM; the next launcher goes on from here") from error


def make_request(
    stage: str,
    record: Mapping[str, Any],
    inputs: Mapping[str, str],
    output: str,
    run_id: str,
    data: Mapping[str, Any] | None = None,
) -> Request:
    """Return what the pods are told: a pure function of its arguments, so that a repeated step tells them the same.

    Raises:
        UserError: an URI is of a scheme that is not read or written, or a pin is none.
    """
    sources = {name: locate(uri).uri for name, uri in inputs.items()}
    prefix = f"{locate(output).uri}/{naming.label_value(run_id)}"
    given = parse_pins(data or {})
    pins = {key: given[key].model_dump() for key in read_keys(load_stage(stage).files, given)}
    key = fingerprint([stage, dict(record), sources, *([pins] if pins else [])])[:16]
    return Request(
        stage=stage,
        record=dict(record),
        inputs=sources,
        data=pins,
        output=prefix,
        result=f"{prefix}/{stage}-{key}.json",
    )


def beside(request: Request, name: str) -> str:
    """Return the URI of a note about a request, next to the one of its result."""
    return f"{request.result.removesuffix('.json')}.{name}"


def make_job(
    request: Request,
    section: ClusterSection,
    config: Config,
    run_id: str,
    attempt: int,
    argument: str,
    owner: Owner | None = None,
) -> TrainingJob:
    """Return the job that runs a request; `argument` is the request, or where it lies; it is deleted with its `owner`.

    Raises:
        UserError: something of it cannot work on the cluster.
    """
    from geartrain.placement import VARIABLE  # loads torch, as the stage itself does

    devices = {GPU: str(section.gpus)} if section.gpus else {}
    amounts = {"cpu": section.cpu, "memory": section.memory, **devices}
    home = f"{section.work}/{naming.label_value(run_id)}/{request.stage}"
    tolerations = [toleration.model_dump(exclude_none=True) for toleration in section.tolerations]
    return TrainingJob(
        run=run_id,
        stage=request.stage,
        image=section.image,
        command=("geartrain",),
        args=("node", "--request", argument),
        nodes=section.nodes,
        processes_per_node=section.processes_per_node,
        attempt=attempt,
        resources=Resources(requests=amounts, limits=amounts),
        environment={
            "OMP_NUM_THREADS": str(config.threads),
            **({VARIABLE: "cuda"} if section.gpus else {}),  # a pod that does not find its GPU says so
            **section.variables,
            **_told(run_id, section.image),
            "GEARTRAIN_HOME": home,
        },
        queue=section.queue,
        priority_class=section.priority_class,
        placement=Placement(section.node_selector, tolerations),
        # a backstop for a job whose launcher is gone for good
        deadline_seconds=math.ceil(section.start_seconds + section.run_seconds),
        owner=owner,
    )


def _see_through(
    request: Request, section: ClusterSection, config: Config, run_id: str, attempt: int, clock: Clock, say: Say
) -> dict[str, Any]:
    storage = Storage(clock)
    for uri in request.inputs.values():
        storage.manifest(uri)  # what is not there is found out before a GPU is waited for
    there = published(request, storage)
    if there is None:
        argument = _pass_on(request, storage)
        make_job(request, section, config, run_id, attempt, argument)  # what cannot work never reaches the cluster
        connected = api.connect(section.namespace, kubeconfig=os.environ.get("KUBECONFIG") or None)
        owner, why = find_owner(connected, os.environ)
        if owner is None:
            say(f"{request.stage}: the job will have no owner ({why}); `geartrain reap` deletes it after its run")
        job = make_job(request, section, config, run_id, attempt, argument, owner)
        budgets = Budgets(section.queue_seconds, section.start_seconds, section.run_seconds)
        watch = Watch(budgets, poll_seconds=section.poll_seconds)
        outcome = launch(
            job,
            connected,
            lambda: find_published(request, storage),
            clock,
            watch=watch,
            record=lambda name, note: storage.write_note(beside(request, name), note),
            say=say,
        )
        if outcome.exit_code:
            raise _failure(outcome)
        there = find_published(request, storage)
    else:
        say(f"{request.stage}: is published already: {there}")
    submitted = beside(request, SUBMITTED)
    known = {"trainjob": submitted} if storage.read_note(submitted) is not None else {}
    return {**storage.manifest(there).metrics, **known, "uri": there}


def _told(run_id: str, image: str) -> dict[str, str]:
    """Return what lineage says of a training pod: run, image, and where the launcher runs too."""
    here = {name: os.environ[name] for name in (origin.NAMESPACE, origin.CLUSTER) if os.environ.get(name)}
    return {**here, origin.RUN_ID: run_id, origin.IMAGE: image.rpartition("@")[2]}


def _pass_on(request: Request, storage: Storage) -> str:
    """Return a request as an argument of the container; a long one is put beside the output, and named."""
    note = request.model_dump(mode="json")
    text = json.dumps(note, sort_keys=True, separators=(",", ":"), allow_nan=False)
    size = len(text.encode())
    if size > MOST_BYTES:
        raise UserError(
            f"stage {request.stage}: configuration and names of inputs have {size} bytes, the limit is {MOST_BYTES}. "
            "Put long data into an artifact or a file of the image, and name it"
        )
    if size <= INLINE_BYTES:
        return text
    uri = beside(request, "request.json")
    storage.write_note(uri, note)
    return uri


def _failure(outcome: Outcome) -> GeartrainError:
    log = outcome.log.strip()
    message = outcome.reason + (f"\nlast lines of rank 0:\n{log}" if log else "")
    kinds: dict[int, type[GeartrainError]] = {EXIT_USER: UserError, EXIT_QUEUE: QueueError}
    return kinds.get(outcome.exit_code, InfrastructureError)(message)
