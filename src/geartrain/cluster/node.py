"""One node of a training job: inputs in, torchrun, the artifact out. What the container of a TrainJob runs.

Every node does this at the same time. Work in progress lies in `GEARTRAIN_HOME`, on a volume that outlives the pod, so
that a job whose pods were lost goes on from its last checkpoint. The node of rank 0 publishes the artifact and then
the note of it; a node that finds the note at its start has nothing left to do.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from geartrain import workspace
from geartrain.cluster.patience import Clock, StoppedError
from geartrain.cluster.pinned import bring, parse_pins, place, require_named
from geartrain.cluster.section import Request, parse_section
from geartrain.cluster.storage import Storage
from geartrain.cluster.workers import Nodes, read_nodes, run_workers, torchrun
from geartrain.config import Config, parse_config
from geartrain.engines import process_environment
from geartrain.errors import EXIT_USER, GeartrainError, InfrastructureError, UserError
from geartrain.home import home
from geartrain.places import MissingError, locate
from geartrain.sources import named_files
from geartrain.stages.stage import StageSpec, load_stage

SOURCE = "the TrainJob's request"
TERMINATION_LOG = "GEARTRAIN_TERMINATION_LOG"
_TERMINATION_FILE = "/dev/termination-log"
_LONGEST_MESSAGE = 2000
"""Characters; Kubernetes keeps 4096 bytes."""
Say = Callable[[str], None]


def read_request(text: str, storage: Storage) -> Request:
    """Return the request that a text is, or that lies where it says: a local file or an object.

    Raises:
        UserError: there is none, or a key of it is unknown, missing or wrong.
    """
    if text.lstrip().startswith("{"):
        try:
            return parse_section(Request, json.loads(text), source=SOURCE)
        except ValueError as error:
            raise UserError(f"{SOURCE}: no JSON ({error})") from error
    note = storage.read_note(text)
    if note is None:
        raise MissingError(f"--request {text}: there is no such file or object, and it is no JSON object itself")
    return parse_section(Request, note, source=text)


def run_node(request: Request, storage: Storage, clock: Clock, say: Say, environment: Mapping[str, str]) -> None:
    """Do this node's part of a job.

    Args:
        request: what the job is to do.
        storage: where artifacts lie.
        clock: knows whether SIGTERM has come; `patience.until_terminated()`.
        say: gets a line of text for each step.
        environment: this process's; names nodes, work folder and cache.

    Raises:
        UserError: configuration, inputs, or a worker ended with exit code 2.
        InfrastructureError: anything else; the same job goes on from its last checkpoint.
    """
    nodes = read_nodes(environment)
    spec, config = check_request(request, nodes.nodes * nodes.processes, source=SOURCE)
    work = home(environment=environment).absolute()
    try:
        if published(request, storage) is not None:
            say(f"{request.stage}: is published already; nothing to do")
            return
        inputs = {name: storage.bring(uri, _cache(environment)) for name, uri in sorted(request.inputs.items())}
        say(f"{request.stage}: node {nodes.rank} of {nodes.nodes} has its inputs")
        pins = parse_pins(request.data)
        copies = {key: bring(pin, storage, _cache(environment) / "pinned") for key, pin in pins.items()}
        output = work / "output" / spec.name
        _train(request, config, inputs, copies, output, work, nodes, clock, environment)
        if nodes.rank == 0:
            uri = storage.publish(output, request.output)
            storage.write_note(request.result, {"stage": spec.name, "uri": uri})
            say(f"{request.stage}: published {uri}")
            shutil.rmtree(output, ignore_errors=True)
    except StoppedError as error:
        raise InfrastructureError("stopped by SIGTERM; the same job goes on from here") from error


def published(request: Request, storage: Storage) -> str | None:
    """Return the URI of the artifact that a request has led to, if that is there and whole.

    Raises:
        UserError: nobody may look.
    """
    if storage.read_note(request.result) is None:
        return None
    try:
        return find_published(request, storage)
    except UserError:
        return None


def find_published(request: Request, storage: Storage) -> str:
    """Return the URI of the artifact that a request has led to.

    Raises:
        UserError: there is none, it is not whole, or it was made from something else; the message says which.
    """
    note = storage.read_note(request.result)
    if note is None:
        raise MissingError(f"{request.result}: nothing is published yet")
    uri = str(note.get("uri"))
    manifest = storage.inspect(uri)
    parameters = load_stage(request.stage).parameters(parse_config(request.record, source=SOURCE))
    # an URI may have got other contents meanwhile
    inputs = {name: storage.manifest(source).digest for name, source in request.inputs.items()}
    inputs |= {key: pin.sha256 for key, pin in parse_pins(request.data).items()}
    given = {name: manifest.inputs.get(name) for name in inputs}  # other files lie where the pods run, not here
    if (manifest.stage, manifest.parameters, given) != (request.stage, parameters, inputs):
        raise UserError(f"{uri}: was made from other parameters or inputs than are asked for now")
    return uri


def check_request(request: Request, ranks: int, *, source: str) -> tuple[StageSpec, Config]:
    """Return stage and configuration of a request that can be run on so many ranks.

    Raises:
        UserError: stage, configuration, inputs or the number of ranks are wrong.
    """
    spec = load_stage(request.stage)
    config = parse_config(request.record, source=source)
    if set(request.inputs) != set(spec.inputs):
        raise UserError(f"{source}: stage {spec.name} reads {sorted(spec.inputs)}, not {sorted(request.inputs)}")
    pins = parse_pins(request.data)
    require_named(pins, config)
    for uri in (*request.inputs.values(), *(pin.uri for pin in pins.values()), request.output, request.result):
        locate(uri)  # hours later would be late
    if ranks > 1 and not spec.together:
        raise UserError(
            f"{source}: stage {spec.name} runs in one process, not in {ranks}: nodes 1 and processes_per_node 1."
        )
    return spec, config


def whole_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole configuration from the sections that a stage reads; a workspace's are checked against each other.

    Those that are missing have no effect; where their defaults do not fit to what is given, they get values that do.
    """
    config = parse_config(dict(record), source=SOURCE)
    asked = [config.policy.tasks_per_iteration if "policy" in record else 1]
    asked += [config.collect.tasks if "collect" in record else 1]
    train = config.tasks.train if "tasks" in record else max(config.tasks.train, *asked)
    neutral = {
        "environment": {"name": "twophase"},  # needs no raw data
        "tasks": {"train": train},
        "collect": {"tasks": min(train, config.collect.tasks)},
        "policy": {"tasks_per_iteration": min(train, config.policy.tasks_per_iteration)},
    }
    return {**neutral, **record}


def leave_message(error: BaseException, environment: Mapping[str, str]) -> None:
    """Leave the reason where Kubernetes reads it and shows it as the container's message, if there is such a place."""
    path = Path(environment.get(TERMINATION_LOG, _TERMINATION_FILE))
    kind = "" if isinstance(error, GeartrainError) else f"{type(error).__name__}: "
    with suppress(OSError):
        if path.exists():
            path.write_text(f"{kind}{error}"[:_LONGEST_MESSAGE], "utf-8")


def _train(
    request: Request,
    config: Config,
    inputs: Mapping[str, Path],
    copies: Mapping[str, Path],
    output: Path,
    work: Path,
    nodes: Nodes,
    clock: Clock,
    environment: Mapping[str, str],
) -> None:
    # a folder for each node: they write at the same time, and in pods all have the same process id
    folder = work / "nodes" / str(nodes.rank)
    folder.mkdir(parents=True, exist_ok=True)
    named, pins = {key: path for key, path, _ in named_files(config)}, parse_pins(request.data)
    for key, copy in copies.items():
        place(named[key], pins[key], copy, folder)
    workspace.prepare(folder, whole_record(request.record), made_from=SOURCE)
    given = [f"--input={name}={path}" for name, path in inputs.items()]
    command = torchrun(["stage", request.stage, "--dir", str(folder), "--quiet", "--output", str(output), *given])
    variables = {**environment, **process_environment(config.threads, tied=True), "GEARTRAIN_HOME": str(work)}
    notes = work / "notes" / re.sub(r"[^A-Za-z0-9.-]", "-", nodes.meeting)
    ended = run_workers(command, variables, notes, nodes, clock)
    if ended.exit_code:
        raise (UserError if ended.exit_code == EXIT_USER else InfrastructureError)(ended.reason)


def _cache(environment: Mapping[str, str]) -> Path:
    """Where inputs are kept on this node; named by their digests, so that jobs may share them."""
    usual = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(environment.get("GEARTRAIN_CACHE") or Path(usual) / "geartrain").absolute()
