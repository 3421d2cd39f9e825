"""Lineage events: who read what and wrote what, as OpenLineage run events in the journal.

A version of a dataset or model is known by its content: the digest in its manifest, or of its bytes. So the same graph
comes out whichever machine wrote its part of it. `openlineage` builds the events, `journal` keeps them.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from geartrain.lineage import journal, mirror, origin
from geartrain.lineage.journal import read_events

__all__ = ["Data", "EventType", "abort_unfinished", "emit", "new_run_id", "read_events", "stage_of", "unfinished"]

EventType = Literal["START", "COMPLETE", "FAIL", "ABORT"]
ENDS = frozenset({"COMPLETE", "FAIL", "ABORT"})
NAMESPACE = "geartrain://artifacts"
"""Of datasets and models: their digests mean the same everywhere."""
SHA256 = "sha256:"
Facets = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Data:
    """A version of a dataset, of a model, or of a file from outside."""

    name: str
    digest: str
    """sha256, hex."""
    kind: str = "dataset"
    """"dataset", "model", "report" or "source" (from outside)."""
    path: str = ""
    """Where it lies in a workspace."""
    licence: str = ""
    origin: str = ""
    """URI of where it is from."""
    manifest: str = ""
    """sha256 (hex) of its manifest; "" for what has none. The digest says what it is, this how it was made."""


def new_run_id() -> str:
    """Return a fresh run id (UUID, as OpenLineage asks)."""
    from geartrain.lineage import openlineage

    return openlineage.new_run_id()


def emit(
    log: Path,
    event_type: EventType,
    *,
    run_id: str,
    job: str,
    inputs: Mapping[str, str] | Iterable[Data],
    outputs: Mapping[str, str] | Iterable[Data],
    facets: Facets | None = None,
) -> dict[str, Any]:
    """Record one event, on disk when this returns, and return it.

    Code, image, namespace and parent run are found in the process's environment. With GEARTRAIN_LINEAGE set, the
    writer's file is copied there too: events outlive the pod.

    Args:
        log: the lineage folder.
        event_type: what has become of the run.
        run_id: a UUID.
        job: name of the stage.
        inputs, outputs: what it reads and has written; a map is of names to digests (sha256, hex).
        facets: `parameters`, `stage`, `resources`, `metrics`, `error` (type, message), `recovery`, `withdrawal`.

    Raises:
        InfrastructureError: the copy could not be written, and the run has not begun yet.
    """
    from geartrain.lineage import openlineage

    environment = os.environ
    event = openlineage.build_event(
        event_type,
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        run_id=run_id,
        namespace=origin.job_namespace(environment),
        job=f"{origin.PIPELINE}.{job}",
        inputs=_described(inputs),
        outputs=_described(outputs),
        facets={**origin.code_facets(environment), **(facets or {})},
        parent=origin.parent_run(environment),
        source=origin.source_location(environment),
    )
    return _record(log, event)


def stage_of(event: Mapping[str, Any]) -> str:
    """Return the stage that an event is about: the last part of its job's name."""
    return str(event["job"]["name"]).rpartition(".")[2]


def error_of(event: Mapping[str, Any]) -> dict[str, str]:
    """Return `type` and `message` of the error that an event tells of; empty if it tells of none."""
    return dict(event["run"].get("facets", {}).get("geartrain_error", {}))


def parent_of(event: Mapping[str, Any]) -> str | None:
    """Return the id of the run that an event's run is a part of, such as Kubeflow's."""
    parent = event["run"].get("facets", {}).get("parent") or {}
    found = parent.get("run", {}).get("runId")
    return None if found is None else str(found)


def parameters_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an event's run, nested as its configuration was."""
    nested: dict[str, Any] = {}
    for item in (event["run"].get("facets", {}).get("executionParameters") or {}).get("parameters") or ():
        place = nested
        *sections, last = str(item["key"]).split(".")
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = json.loads(item["value"])
    return nested


def digests(event: Mapping[str, Any], side: Literal["inputs", "outputs"]) -> dict[str, str]:
    """Return name -> digest (hex) of what an event names as inputs or outputs."""
    found = {}
    for item in event.get(side) or ():
        version = (item.get("facets") or {}).get("version", {}).get("datasetVersion", "")
        found[str(item["name"])] = str(version).removeprefix(SHA256)
    return found


def manifests(event: Mapping[str, Any]) -> dict[str, str]:
    """Return name -> sha256 of the manifest with which a run has read each of its inputs that has one."""
    told = {str(item["name"]): (item.get("facets") or {}).get("geartrain_artifact", {}) for item in event["inputs"]}
    return {name: str(facet["manifest"]) for name, facet in told.items() if facet.get("manifest")}


def names_output(event: Mapping[str, Any], digest: str, manifest: str) -> bool:
    """Tell whether an event names an output of that digest and that manifest; older ones name no manifest."""
    for item in event.get("outputs") or ():
        facets = item.get("facets") or {}
        told = (facets.get("geartrain_artifact") or {}).get("manifest")
        version = (facets.get("version") or {}).get("datasetVersion")
        if version == f"{SHA256}{digest}" and told in (None, manifest):
            return True
    return False


def unfinished(events: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return run id -> START of every run that has begun and said no end."""
    begun: dict[str, dict[str, Any]] = {}
    ended = set()
    for event in events:
        run = event["run"]["runId"]
        if event["eventType"] in ENDS:
            ended.add(run)
        elif event["eventType"] == "START":
            begun[run] = event
    return {run: event for run, event in begun.items() if run not in ended}


def abort_unfinished(log: Path, message: str) -> list[str]:
    """Append ABORT for every run that has begun and said no end; return their stages. Nobody may be at work on them."""
    begun = unfinished(read_events(log))
    for event in begun.values():
        end(log, event, "ABORT", {"error": {"type": "Unfinished", "message": message}})
    return [stage_of(event) for event in begun.values()]


def end(
    log: Path, started: Mapping[str, Any], event_type: EventType, facets: Facets, outputs: Iterable[Data] = ()
) -> None:
    """Record the end of a run that another process began: what its START says, and what is known of the end."""
    from geartrain.lineage import openlineage

    run_facets = {key: value for key, value in started["run"].get("facets", {}).items() if key != journal.CHAIN}
    event = {
        **started,
        "eventType": event_type,
        "eventTime": datetime.now(UTC).isoformat(timespec="microseconds"),
        "run": {**started["run"], "facets": {**run_facets, **openlineage.run_facets(facets)}},
        "outputs": openlineage.datasets(_described(outputs)),
    }
    _record(log, event)


def _record(log: Path, event: dict[str, Any]) -> dict[str, Any]:
    from geartrain.lineage import openlineage

    event["run"]["facets"][journal.CHAIN] = openlineage.chain_facet()
    copy = mirror.from_environment(log, os.environ)
    if copy is None:
        return journal.append(log, event)
    needed = event["eventType"] == "START"  # nothing is lost yet; later a failure would cost the work itself
    return journal.append(log, event, usable=copy.usable, then=copy.carry if needed else copy.try_to_carry)


def _described(data: Mapping[str, str] | Iterable[Data]) -> list[dict[str, str]]:
    items = [Data(*pair) for pair in data.items()] if isinstance(data, Mapping) else list(data)
    return [{**asdict(item), "namespace": NAMESPACE} for item in sorted(items, key=lambda item: item.name)]
