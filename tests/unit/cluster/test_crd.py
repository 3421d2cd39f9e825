"""The strict reading of a CRD finds what an API server refuses, and what it drops silently."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from geartrain.cluster.trainjob import TrainingJob, manifest
from tests.fakes import crd

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]+$"},
        "count": {"type": "integer", "minimum": 1},
        "list": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
        "amounts": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "mode": {"enum": ["a", "b"]},
        "metadata": {"type": "object"},
    },
}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"name": "abc", "count": 1, "list": ["x"], "amounts": {"gpu": 8}, "free": {"any": 1}, "mode": "a"}, []),
        ({"name": "abc", "metadata": {"labels": {}}}, []),
        ({}, [".name: missing"]),
        ({"name": "a", "nmae": 1}, [".nmae: unknown field, the API server would drop it"]),
        ({"name": "abcd"}, [".name: has 4 characters"]),
        ({"name": "A"}, [".name: 'A' does not match ^[a-z]+$"]),
        ({"name": "a", "count": True}, [".count: True is no integer"]),
        ({"name": "a", "count": "1"}, [".count: '1' is no integer"]),
        ({"name": "a", "count": 0}, [".count: 0 is below 1"]),
        ({"name": "a", "list": ["x"] * 3}, [".list: more than 2 items"]),
        ({"name": "a", "list": [1]}, [".list[0]: 1 is no string"]),
        ({"name": "a", "amounts": {"gpu": 1.5}}, [".amounts.gpu: 1.5 is neither integer nor text"]),
        ({"name": "a", "mode": "c"}, [".mode: 'c' is none of ['a', 'b']"]),
    ],
)
def test_misfits(value: Any, found: list[str]) -> None:
    definition = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": SCHEMA}}]}}
    assert list(crd.misfits(value, crd.schema_of(definition, "v1"))) == found


def test_a_definition_in_the_folder_is_asked(tmp_path: Path, job: TrainingJob) -> None:
    body = manifest(job)
    assert crd.problems_of_train_job(body, tmp_path) == []
    spec = {"type": "object", "properties": {"trainer": {"type": "object"}, "runtimeRef": {"type": "object"}}}
    schema = {"type": "object", "properties": {"apiVersion": {}, "kind": {}, "metadata": {}, "spec": spec}}
    version = {"name": "v1alpha1", "schema": {"openAPIV3Schema": schema}}
    definition = {"spec": {"names": {"kind": "TrainJob"}, "versions": [version]}}
    (tmp_path / "more").mkdir()
    (tmp_path / "more/trainjobs.yaml").write_text(yaml.safe_dump_all([None, definition]))
    crd._train_jobs.cache_clear()
    assert crd.problems_of_train_job(body, tmp_path) == [
        ".spec.runtimePatches: unknown field, the API server would drop it"
    ]
