"""The compiled pipeline as objects of Kubernetes, for GitOps: `Pipeline` and `PipelineVersion`.

Kubeflow 2.17 can keep definitions in the cluster's own database (its KEP-11551); runs and schedules it cannot. A
version's name says what it holds, so applying twice changes nothing, and a version is never changed.
"""

from pathlib import Path
from typing import Any

import yaml

from geartrain.artifacts import write_atomically
from geartrain.cluster.naming import PART_OF_LABEL, PIPELINE, PIPELINE_LABEL
from geartrain.cluster.package import read_package
from pipelines.compiled import read_compiled

API_VERSION = "pipelines.kubeflow.org/v2beta1"
LABELS = {PART_OF_LABEL: PIPELINE, PIPELINE_LABEL: PIPELINE}


def native(path: Path, *, namespace: str) -> list[dict[str, Any]]:
    """Return the two objects that hold a compiled pipeline.

    `kfp` can write them as well, but without labels; its compiler names a version by hand, and ours after its content,
    as `geartrain submit` does. A test holds the two renderings together.
    """
    package, compiled = read_package(path), read_compiled(path)
    described = {"description": text} if (text := compiled.spec["pipelineInfo"].get("description")) else {}
    pipeline = {"displayName": package.name, **described}
    version = {
        "displayName": package.version_name,
        "pipelineName": package.name,
        "pipelineSpec": compiled.spec,
        **({"platformSpec": compiled.platform} if compiled.platform else {}),
        **described,
    }
    return [
        _object("Pipeline", package.name, namespace, pipeline),
        _object("PipelineVersion", package.version_name, namespace, version),
    ]


def write_native(path: Path, target: Path, *, namespace: str) -> None:
    """Write the objects that hold the compiled pipeline in `path` to `target`."""
    write_atomically(target, yaml.safe_dump_all(native(path, namespace=namespace), sort_keys=True))


def _object(kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": dict(LABELS)}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
