"""Events are OpenLineage's, and say who read what, by content."""

import json
import os
import subprocess
import sys
import uuid
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openlineage.client import event_v2

from geartrain.lineage import events, origin
from geartrain.lineage.events import Data

RUN = "5f0c7c4e-9b1d-4a55-8a38-6f1f0b9a2a11"
PARENT = "0b7e6a52-51a5-4c0e-9a55-0f4c5b0e7a01"
DIGESTS = {"one": "1" * 64, "two": "2" * 64}
FACETS = {
    "parameters": {"seed": 0, "policy": {"recipe": "grpo", "lists": [1, 2], "nothing": {}, "text": "a.b"}},
    "stage": {"name": "policy", "key": "a" * 64, "attempt": 2},
    "resources": {"seconds": 1.0, "cpu_seconds": 2.0, "peak_memory_bytes": 3},
    "metrics": {"values": {"success": 0.5}},
    "error": {"type": "UserError", "message": "why"},
    "recovery": {"reason": "a crash"},
    "withdrawal": {"digest": "d" * 64, "action": "withdraw", "record": f"{'d' * 64}.json", "sha256": "e" * 64},
}
INPUTS = [
    Data("raw", DIGESTS["one"], "source", "data/raw/x.json", "MIT", "pkg:pypi/x@1"),
    Data("tasks", DIGESTS["two"], path="data/tasks", manifest="f" * 64),
]


@pytest.fixture
def event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An event with everything that one can say."""
    monkeypatch.setenv(origin.RUN_ID, PARENT)
    monkeypatch.setenv(origin.IMAGE, f"sha256:{'b' * 64}")
    monkeypatch.setenv("GEARTRAIN_GIT_COMMIT", "c" * 40)
    monkeypatch.setenv("GEARTRAIN_GIT_REPOSITORY", "https://token@example.org/team/geartrain.git")
    outputs = [Data("policy", DIGESTS["one"], "model", "models/policy")]
    return events.emit(tmp_path, "COMPLETE", run_id=RUN, job="policy", inputs=INPUTS, outputs=outputs, facets=FACETS)


def test_what_is_read_back_is_what_was_emitted(event: dict[str, Any], tmp_path: Path) -> None:
    assert events.read_events(tmp_path) == [event]
    assert events.digests(event, "inputs") == {"raw": DIGESTS["one"], "tasks": DIGESTS["two"]}
    assert events.stage_of(event) == "policy"
    assert events.error_of(event) == {**events.error_of(event), **FACETS["error"]}


def test_the_models_of_openlineage_take_it_back(event: dict[str, Any]) -> None:
    run, job = event_v2.Run(**event["run"]), event_v2.Job(**event["job"])
    rebuilt = event_v2.RunEvent(
        eventTime=event["eventTime"], eventType=event_v2.RunState[event["eventType"]], producer=event["producer"],
        run=run, job=job, inputs=[event_v2.InputDataset(**item) for item in event["inputs"]],
        outputs=[event_v2.OutputDataset(**item) for item in event["outputs"]],
    )  # fmt: skip
    assert rebuilt.schemaURL == event["schemaURL"]


def test_it_fits_the_specification(event: dict[str, Any]) -> None:
    folder = Path(os.environ.get("GEARTRAIN_SCHEMAS", Path(__file__).parents[3] / "../shared/schemas"))
    found = sorted(folder.rglob("OpenLineage.json")) if folder.is_dir() else []
    if not found:  # the models' own checks, above, are what is left
        assert event["schemaURL"].startswith("https://openlineage.io/spec/2-0-2/OpenLineage.json#/")
        return
    schema = json.loads(found[0].read_text())
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(event)


def test_every_facet_names_its_producer_and_schema(event: dict[str, Any]) -> None:
    facets = [*_facets(event)]
    assert len(facets) > 12
    for name, facet in facets:
        assert facet["_producer"].startswith("https://"), name
        assert "#/$defs/" in facet["_schemaURL"], name
        assert facet["_schemaURL"].startswith("https://"), name


def test_our_own_facets_fit_the_schema_that_the_package_brings(event: dict[str, Any]) -> None:
    schema = json.loads(files("geartrain.lineage").joinpath("facets.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    own = {name: facet for name, facet in _facets(event) if name.startswith("geartrain_")}
    for facet in own.values():
        url, _, place = facet["_schemaURL"].partition("#")
        assert url == schema["$id"]
        jsonschema.validate(facet, {**schema, "$ref": f"#{place}"})
    defined = {name for name in schema["$defs"] if name.endswith("Facet") and name != "BaseFacet"}
    assert {facet["_schemaURL"].rpartition("/")[2] for facet in own.values()} == defined, "each is used"


def test_it_says_what_ran_and_for_whom(event: dict[str, Any]) -> None:
    facets = event["run"]["facets"]
    assert facets["geartrain_code"]["commit"] == "c" * 40
    assert facets["geartrain_environment"]["image"] == f"sha256:{'b' * 64}"
    assert facets["parent"]["run"]["runId"] == facets["parent"]["root"]["run"]["runId"] == PARENT
    assert event["job"]["name"] == "geartrain.policy"
    location = event["job"]["facets"]["sourceCodeLocation"]
    assert location["url"] == f"https://example.org/team/geartrain/tree/{'c' * 40}", "and no token"


def test_parameters_keep_their_types(event: dict[str, Any]) -> None:
    pairs = {
        item["key"]: json.loads(item["value"]) for item in event["run"]["facets"]["executionParameters"]["parameters"]
    }
    assert pairs == {
        "seed": 0, "policy.recipe": "grpo", "policy.lists": [1, 2], "policy.nothing": {}, "policy.text": "a.b"
    }  # fmt: skip


def test_licence_and_origin_of_what_came_from_outside_are_told(event: dict[str, Any]) -> None:
    raw = event["inputs"][0]["facets"]
    assert raw["tags"]["tags"] == [{"key": "license", "value": "MIT", "source": "GEARTRAIN"}]
    assert raw["dataSource"]["uri"] == "pkg:pypi/x@1"


def test_a_run_id_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="UUID"):
        events.emit(tmp_path, "START", run_id="r", job="tasks", inputs={}, outputs={})


@pytest.mark.parametrize(
    ("environment", "namespace"),
    [
        ({}, "local://geartrain"),
        ({"GEARTRAIN_NAMESPACE": "research"}, "local://geartrain"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "GEARTRAIN_NAMESPACE": "research"}, "kfp://cluster/research"),
        ({"KUBERNETES_SERVICE_HOST": "x", "GEARTRAIN_CLUSTER_NAME": "eu"}, "kfp://eu/default"),
        ({"OPENLINEAGE_NAMESPACE": "mine"}, "mine"),
    ],
)
def test_jobs_are_named_after_where_they_run(environment: dict[str, str], namespace: str) -> None:
    assert origin.job_namespace(environment) == namespace


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@example.org:team/repo.git", "https://example.org/team/repo"),
        ("https://user:secret@example.org/team/repo", "https://example.org/team/repo"),
        ("ssh://git@example.org:2222/team/repo.git", "https://example.org:2222/team/repo"),
        ("/srv/git/repo.git", ""),
        ("../repo", ""),
        ("", ""),
    ],
)
def test_a_repository_is_named_without_keys_and_paths(remote: str, address: str) -> None:
    assert origin.web_address(remote) == address


def test_a_run_that_said_no_end_is_aborted_once(tmp_path: Path) -> None:
    told = {"run_id": RUN, "job": "tasks", "outputs": {}}
    events.emit(tmp_path, "START", inputs={"raw": DIGESTS["one"]}, **told)  # type: ignore[arg-type]
    assert events.abort_unfinished(tmp_path, "killed") == ["tasks"]
    assert events.abort_unfinished(tmp_path, "killed") == []
    start, abort = events.read_events(tmp_path)
    assert (abort["eventType"], abort["run"]["runId"]) == ("ABORT", RUN)
    assert abort["inputs"] == start["inputs"]
    assert events.error_of(abort)["message"] == "killed"


def _facets(value: Any) -> Any:
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict) and "_producer" in inner:
                yield name, inner
            yield from _facets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _facets(inner)


STAGE = "import os; from geartrain.lineage.origin import parent_run; print(parent_run(os.environ)['run'])"
DVC = """
import os, subprocess, sys
for number in range(2):
    variables = {**os.environ, "DVC_STAGE": f"stage-{number}"}
    subprocess.run(["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, sys.argv[1]], env=variables, check=True)
"""


def test_the_stages_of_one_dvc_repro_have_one_parent_and_of_the_next_another() -> None:
    """`dvc` starts each stage through a shell, with its name in a variable, and gives no run a name."""
    command = [sys.executable, "-c", DVC, STAGE]
    variables = {name: value for name, value in os.environ.items() if name != origin.RUN_ID}
    told = [subprocess.run(command, env=variables, capture_output=True, text=True, check=True) for _ in range(2)]
    first, second = (done.stdout.split() for done in told)
    assert len(first) == 2
    assert len(set(first)) == len(set(second)) == 1
    assert first != second
    assert str(uuid.UUID(first[0])) == first[0]
