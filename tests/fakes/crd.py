"""Hold an object against a CustomResourceDefinition, as strictly as `kubectl apply --validate=strict`.

An API server drops a field that its schema does not have, without a word; here that is an error. Rules in CEL are not
evaluated.
"""

import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from geartrain.cluster import trainjob

CRDS = Path(os.environ.get("GEARTRAIN_CRDS") or Path(__file__).parents[3] / "shared/crds")
"""CustomResourceDefinitions that are no part of the repository; where somebody put them, they are asked as well."""

KINDS = {"object": Mapping, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def schema_of(crd: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """Return the schema of one version of a CRD."""
    (found,) = [entry for entry in crd["spec"]["versions"] if entry["name"] == version]
    return found["schema"]["openAPIV3Schema"]


def misfits(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Say where a value does not fit a structural schema."""
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield f"{path}: {value!r} is neither integer nor text"
    elif "type" in schema:
        number = schema["type"] in ("integer", "number")
        if not isinstance(value, KINDS[schema["type"]]) or (number and isinstance(value, bool)):
            yield f"{path}: {value!r} is no {schema['type']}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        yield from _text(value, schema, path)
    elif isinstance(value, Mapping):
        yield from _fields(value, schema, path)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{path}: more than {schema['maxItems']} items"
        for index, item in enumerate(value):
            yield from misfits(item, schema.get("items", {}), f"{path}[{index}]")
    elif isinstance(value, int | float) and value < schema.get("minimum", value):
        yield f"{path}: {value} is below {schema['minimum']}"


def _text(value: str, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{path}: has {len(value)} characters"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: {value!r} does not match {schema['pattern']}"


def _fields(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", False)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: missing"
    free = schema.get("x-kubernetes-preserve-unknown-fields") or not ("properties" in schema or others)
    for name, part in value.items():
        if name in known:
            yield from misfits(part, known[name], f"{path}.{name}")
        elif isinstance(others, Mapping):
            yield from misfits(part, others, f"{path}.{name}")
        elif not (others or free):
            yield f"{path}.{name}: unknown field, the API server would drop it"


def problems_of_train_job(body: Mapping[str, Any], folder: Path = CRDS) -> list[str]:
    """Return what is wrong with a TrainJob: in our own rules, in Trainer's models, in its CRD where that is there."""
    found = [*trainjob.problems(body), *lost_by_models(body)]
    for schema in _train_jobs(folder):
        found += misfits(body, schema)
    return found


def lost_by_models(body: Mapping[str, Any]) -> list[str]:
    """Return the fields that Trainer's own models do not give back as they got them: `from_dict` alone hides them."""
    from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob  # takes a second

    model = TrainerV1alpha1TrainJob.from_dict(dict(body))
    assert model is not None
    return _differences(body, json.loads(model.to_json()))


def _differences(sent: Any, got: Any, path: str = "") -> list[str]:
    if isinstance(sent, Mapping) and isinstance(got, Mapping):
        names = sorted(sent.keys() | got.keys())
        return [text for name in names for text in _differences(sent.get(name), got.get(name), f"{path}.{name}")]
    if isinstance(sent, list) and isinstance(got, list) and len(sent) == len(got):
        pairs = enumerate(zip(sent, got, strict=True))
        return [text for index, (one, other) in pairs for text in _differences(one, other, f"{path}[{index}]")]
    return [] if sent == got and type(sent) is type(got) else [f"{path}: {sent!r} became {got!r}"]


@functools.cache
def _train_jobs(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the schemas of TrainJob that a folder holds."""
    found = (crd for path in sorted(folder.glob("**/*.yaml")) for crd in yaml.safe_load_all(path.read_text()))
    ours = [crd for crd in found if crd and crd.get("spec", {}).get("names", {}).get("kind") == trainjob.KIND]
    return tuple(schema_of(crd, trainjob.VERSION) for crd in ours)
