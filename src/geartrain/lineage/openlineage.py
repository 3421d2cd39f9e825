"""The one door to `openlineage`: events as its own models build them, and the sending of them to a receiver.

It is imported where an event is built or sent, and nowhere else. Our own facets are described by `facets.schema.json`,
beside this module.
"""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import attr


@contextmanager
def _models_alone() -> Iterator[None]:
    """Keep `openlineage.client` from loading its senders, three quarters of its import, when a model is imported."""
    name = "openlineage.client"
    found = None if name in sys.modules else importlib.util.find_spec(name)
    if found is None:
        yield
        return
    package = ModuleType(name)
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules[name] = package
    try:
        yield
    finally:
        del sys.modules[name]  # whoever sends imports the package as it is, with the models that are loaded


with _models_alone():
    from openlineage.client import event_v2, facet_v2
    from openlineage.client.serde import Serde
    from openlineage.client.uuid import generate_new_uuid

PRODUCER = "https://geartrain.dev/geartrain"
SCHEMA = "https://geartrain.dev/geartrain/schemas/1-0-0/facets.schema.json"
"""Where our own facets are described; the file is in the package."""

facet_v2.set_producer(PRODUCER)
_AS_THEY_ARE = frozenset({"stage", "code", "environment", "resources", "metrics", "error", "recovery", "withdrawal"})
"""Names of our run facets, without the prefix `geartrain_`."""


def new_run_id() -> str:
    """Return a fresh run id: a UUID that grows with time."""
    return str(generate_new_uuid())


def build_event(
    event_type: str,
    *,
    time: str,
    run_id: str,
    namespace: str,
    job: str,
    inputs: Sequence[Mapping[str, str]],
    outputs: Sequence[Mapping[str, str]],
    facets: Mapping[str, Any],
    parent: Mapping[str, str] | None,
    source: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Return a run event as OpenLineage writes it, JSON-ready.

    Args:
        event_type: START, COMPLETE, FAIL or ABORT.
        time: ISO 8601 with a zone.
        run_id: a UUID.
        namespace, job: which job it is a run of.
        inputs, outputs: fields of `events.Data`.
        facets: name -> content; `parameters` becomes `executionParameters`, `error` also `errorMessage`.
        parent: `run`, `namespace` and `job` of the run that this one is a part of; it is the root too.
        source: `repository` and `commit` of the code, where known.

    Raises:
        ValueError: a run id is no UUID, or the time is none.
    """
    found = run_facets(facets)
    if parent is not None:
        found["parent"] = _parent(parent)
    job_facets: dict[str, Any] = {
        "jobType": facet_v2.job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="GEARTRAIN", jobType="TASK"
        )
    }
    if source is not None:
        job_facets["sourceCodeLocation"] = facet_v2.source_code_location_job.SourceCodeLocationJobFacet(
            type="git",
            url=f"{source['repository']}/tree/{source['commit']}",
            repoUrl=source["repository"],
            version=source["commit"],
        )
    event = event_v2.RunEvent(
        eventTime=time,
        eventType=event_v2.RunState[event_type],
        run=event_v2.Run(run_id, found),
        job=event_v2.Job(namespace, job, job_facets),
        inputs=[event_v2.InputDataset(**_dataset(item), inputFacets=None) for item in inputs],
        outputs=_outputs(outputs),
        producer=PRODUCER,
    )
    return dict(Serde.to_dict(event))


def run_facets(facets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run facets of an event under their full names, JSON-ready; see `build_event` for what is known."""
    unknown = facets.keys() - _AS_THEY_ARE - {"parameters"}
    assert not unknown, f"facets.schema.json describes no {sorted(unknown)}"
    found: dict[str, Any] = {f"geartrain_{name}": _own(name, facets[name]) for name in _AS_THEY_ARE & facets.keys()}
    if "parameters" in facets:
        pairs = flatten_parameters(facets["parameters"])
        parameters = [facet_v2.execution_parameters_run.ExecutionParameter(key=k, value=v) for k, v in pairs.items()]
        found["executionParameters"] = facet_v2.execution_parameters_run.ExecutionParametersRunFacet(parameters)
    if "error" in facets:
        message = str(facets["error"].get("message", ""))
        found["errorMessage"] = facet_v2.error_message_run.ErrorMessageRunFacet(message, "python")
    return {name: facet if isinstance(facet, dict) else Serde.to_dict(facet) for name, facet in found.items()}


def datasets(data: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return outputs of an event, JSON-ready, from fields of `events.Data`."""
    return [dict(Serde.to_dict(item)) for item in _outputs(data)]


def flatten_parameters(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested parameters under dotted names, each value as JSON; an empty map is a value."""
    flat: dict[str, str] = {}
    for key, value in parameters.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten_parameters(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, sort_keys=True)
    return flat


def receiver(url: str, *, key: str | None, timeout: float) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that posts one event to a receiver (`URL/api/v1/lineage`) with OpenLineage's own transport.

    It tries a few times by itself where that may help, and raises OSError (of `requests`) if the event was not taken.
    """
    from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider

    auth = TokenProvider({}) if key is None else ApiKeyTokenProvider({"apiKey": key})
    # never again by itself after an answer was lost: the receiver may have the event, and whoever calls decides
    retry = {"total": 3, "connect": 3, "read": 0, "backoff_factor": 0.3, "status_forcelist": [502, 503, 504]}
    config = HttpConfig(url=url, timeout=timeout, retry={**retry, "allowed_methods": ["POST"]}, auth=auth)
    transport = HttpTransport(config)

    def post(event: Mapping[str, Any]) -> None:
        transport.emit(dict(event))  # type: ignore[arg-type]  # it turns models into such a map itself

    return post


def refusal(error: OSError) -> tuple[int, str] | None:
    """Return (status, text) of the answer that an error of `receiver` carries; None if there was none."""
    response = getattr(error, "response", None)
    return None if response is None else (int(response.status_code), str(response.text))


@attr.define
class ArtifactDatasetFacet(facet_v2.DatasetFacet):
    """Where in a workspace an artifact lies (a path without the machine's part), and the sha256 of its manifest."""

    path: str
    manifest: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}#/$defs/ArtifactDatasetFacet"


def chain_facet() -> dict[str, str]:
    """Return the constant part of the facet that ties an event to the one before."""
    return {"_producer": PRODUCER, "_schemaURL": f"{SCHEMA}#/$defs/ChainRunFacet"}


def _own(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{SCHEMA}#/$defs/{name.capitalize()}RunFacet", **content}


def _parent(parent: Mapping[str, str]) -> facet_v2.parent_run.ParentRunFacet:
    module = facet_v2.parent_run
    return module.ParentRunFacet(
        run=module.Run(parent["run"]),
        job=module.Job(parent["namespace"], parent["job"]),
        root=module.Root(module.RootRun(parent["run"]), module.RootJob(parent["namespace"], parent["job"])),
    )


def _outputs(data: Sequence[Mapping[str, str]]) -> list[event_v2.OutputDataset]:
    return [event_v2.OutputDataset(**_dataset(item), outputFacets=None) for item in data]


def _dataset(data: Mapping[str, str]) -> dict[str, Any]:
    facets: dict[str, Any] = {
        "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet(f"sha256:{data['digest']}"),
        "datasetType": facet_v2.dataset_type_dataset.DatasetTypeDatasetFacet(data["kind"].upper()),
    }
    if data["path"] or data["manifest"]:
        facets["geartrain_artifact"] = ArtifactDatasetFacet(data["path"], data["manifest"] or None)
    if data["origin"]:
        facets["dataSource"] = facet_v2.datasource_dataset.DatasourceDatasetFacet(data["name"], data["origin"])
    if data["licence"]:
        tag = facet_v2.tags_dataset.TagsDatasetFacetFields("license", data["licence"], source="GEARTRAIN")
        facets["tags"] = facet_v2.tags_dataset.TagsDatasetFacet([tag])
    return {"namespace": data["namespace"], "name": data["name"], "facets": facets}
