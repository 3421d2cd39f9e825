"""Does a manifest fit its API? One check per kind, strict: a field that the API does not know is a problem.

The API server prunes such a field without a word, and so do most models; hence the comparison of what a model was
given with what it gives back.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from cloudcoil.models.prometheus_operator import v1 as monitoring
from jsonschema import Draft202012Validator
from kubeflow_trainer_api import models as trainer
from pydantic import ValidationError

from tests.deploy.policies.pods import Document, title
from tests.deploy.schemas import SCHEMAS
from tests.fakes.crd import CRDS

KUBERNETES = ("1.33", "1.36")
"""Oldest and newest release that docs/cluster.md names."""


def problems(document: Document, crds: Path = CRDS) -> list[str]:
    """Return what is wrong with a document, in words; a kind that nobody can check is wrong as well."""
    group = document["apiVersion"].rpartition("/")[0]
    check = _CHECKS.get((group, document["kind"])) or (_core if "." not in group or ".k8s.io" in group else None)
    strict = _definitions(crds).get((document["apiVersion"], document["kind"]))
    if strict is not None:
        return [*(check(document) if check else ()), *_by_schema(strict, document)]
    return check(document) if check else [f"{title(document)}: no check knows {document['apiVersion']}"]


def _core(document: Document) -> list[str]:
    """Kinds of Kubernetes itself, against its own schemas."""
    found = []
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{title(document)} ({version}): {error}")
        except kubernetes_validate.SchemaNotFoundError:
            found.append(f"{title(document)}: Kubernetes {version} knows no {document['apiVersion']}")
    return found


def _runtime(document: Document) -> list[str]:
    """A TrainingRuntime with its JobSet by Trainer's models, and each job in it as the Job that it becomes."""
    found = _by_model(trainer.TrainerV1alpha1TrainingRuntime, document)
    for entry in document["spec"]["template"]["spec"]["replicatedJobs"]:
        metadata = {**entry["template"].get("metadata", {}), "name": entry["name"]}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": entry["template"]["spec"]}
        found += _core(job)
    return found


def _by_model(model: Any, document: Document) -> list[str]:
    """Compare a document with what an OpenAPI model keeps of it."""
    try:
        kept = model.from_dict(document).to_dict()
    except (ValidationError, ValueError) as error:
        return [f"{title(document)}: {error}"]
    return [f"{title(document)}: {path}" for path in lost(document, kept)]


def _monitoring(document: Document) -> list[str]:
    """Objects of the Prometheus operator; its models take any key, so the keys are compared."""
    try:
        model = getattr(monitoring, document["kind"]).model_validate(document)
    except ValidationError as error:
        return [f"{title(document)}: {error}"]
    kept = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return [f"{title(document)}: {path}" for path in lost(document, kept)]


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """Return the paths at which `kept` lacks or changes what was `given`; quantities count by their text."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [found for key, value in given.items() for found in lost(value, kept.get(key), f"{path}/{key}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        pairs = enumerate(zip(given, kept, strict=True))
        return [found for index, (one, other) in pairs for found in lost(one, other, f"{path}/{index}")]
    return [] if given == kept or str(given) == str(kept) else [f"{path}: {given!r} is unknown or changed to {kept!r}"]


def _by_schema(schema: dict[str, Any], document: Document) -> list[str]:
    return [
        f"{title(document)}: /{'/'.join(map(str, error.path))}: {error.message}"
        for error in Draft202012Validator(schema).iter_errors(document)
    ]


@functools.cache
def _definitions(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return (apiVersion, kind) -> strict schema, of every CRD in `folder`."""
    schemas = {}
    for path in sorted(folder.glob("**/*.yaml")):
        for crd in yaml.safe_load_all(path.read_text()):
            if isinstance(crd, dict) and crd.get("kind") == "CustomResourceDefinition":
                for version in crd["spec"]["versions"]:
                    key = (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"])
                    schemas[key] = closed(version["schema"]["openAPIV3Schema"], top=True)
    return schemas


def closed(schema: dict[str, Any], *, top: bool = False) -> dict[str, Any]:
    """Return a CRD's schema in which an object takes only the fields that it declares.

    Kubernetes' own marks become JSON Schema: int-or-string, and objects that keep unknown fields.
    """
    result = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("anyOf", None)
        result["type"] = ["integer", "string"]
    if "properties" in schema:
        result["properties"] = {name: closed(child) for name, child in schema["properties"].items()}
        if top:
            result["properties"]["metadata"] = {"type": "object"}
        if not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
            result["additionalProperties"] = False
    if isinstance(schema.get("items"), dict):
        result["items"] = closed(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = closed(schema["additionalProperties"])
    result.pop("nullable", None)
    result.pop("default", None)
    return result


_CHECKS: dict[tuple[str, str], Callable[[Document], list[str]]] = {
    ("trainer.kubeflow.org", "TrainingRuntime"): _runtime,
    ("trainer.kubeflow.org", "TrainJob"): functools.partial(_by_model, trainer.TrainerV1alpha1TrainJob),
    ("monitoring.coreos.com", "PodMonitor"): _monitoring,
    ("monitoring.coreos.com", "PrometheusRule"): _monitoring,
    **{key: functools.partial(_by_schema, schema) for key, schema in SCHEMAS.items()},
}
