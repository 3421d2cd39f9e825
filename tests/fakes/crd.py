"""Hold an object against a CustomResourceDefinition, as strictly as `kubectl apply --validate=strict`.

An API server drops a field that its schema does not have, without a word; here that is an error. Rules in CEL are not
evaluated.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

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
