"""A compiled pipeline: which one it is, by content, and which parameters it takes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from geartrain.cluster.jobs import JOBS
from geartrain.cluster.step import LAUNCH_ONLY
from geartrain.errors import UserError

SHORT = 12
"""Hexadecimal digits of a digest that go into names: 48 bits."""
SIZE_LIMIT = 300_000
"""Bytes. Argo's object is about three times as large, and etcd takes 1.5 MiB (kubeflow/pipelines#13738)."""


@dataclass(frozen=True)
class Package:
    """One compiled pipeline; equal content has an equal digest, whatever the file's layout."""

    path: Path
    name: str
    digest: str
    shape: str
    """Digest of the content without default values, for comparing it with what a server stored; see `same_content`."""
    inputs: Mapping[str, Mapping[str, Any]]
    """Parameter: its `parameterType`, and `defaultValue` or `isOptional` where the pipeline gives one."""

    launching: Mapping[str, str] = field(default_factory=dict)
    """Stage -> parameter, of the steps that can only launch a job (`step.LAUNCH_ONLY`)."""

    @property
    def defaults(self) -> dict[str, Any]:
        """Parameters for which the pipeline has a value of its own."""
        return {name: about["defaultValue"] for name, about in self.inputs.items() if "defaultValue" in about}

    @property
    def version_name(self) -> str:
        """Name of the pipeline version that holds this content."""
        return f"{self.name}-{self.digest[:SHORT]}"


def read_package(path: Path) -> Package:
    """Read what `geartrain compile` wrote.

    Raises:
        UserError: no such file, not a compiled pipeline, or too large for the cluster.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file. `geartrain compile` writes it.")
    if path.stat().st_size > SIZE_LIMIT:
        size = path.stat().st_size
        raise UserError(
            f"{path}: {size} bytes; above {SIZE_LIMIT} the run may not fit into the cluster's database and cannot be"
            " retried (kubeflow/pipelines#13738). Move inlined code or data out of the pipeline."
        )
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document is not None]
        name = documents[0]["pipelineInfo"]["name"]
        parameters = documents[0]["root"].get("inputDefinitions", {}).get("parameters", {})
        launching = _launching(documents[0])
    except (yaml.YAMLError, UnicodeDecodeError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a compiled pipeline ({error}). `geartrain compile` writes one.") from error
    spec = stored_form(documents)
    digest, shape = spec_digest(spec), spec_digest(_pruned(spec))
    return Package(path=path, name=name, digest=digest, shape=shape, inputs=parameters, launching=launching)


def _launching(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the stages whose steps have no room to run them, with the parameters that describe their jobs."""
    executors = spec.get("deploymentSpec", {}).get("executors", {})
    labels = {stage: f"exec-{stage.replace('_', '-')}" for stage in JOBS}
    variables = {
        stage: executors.get(label, {}).get("container", {}).get("env") or () for stage, label in labels.items()
    }
    return {
        stage: JOBS[stage] for stage, given in variables.items() if any(item["name"] == LAUNCH_ONLY for item in given)
    }


def same_content(stored: Any, package: Package) -> bool:
    """Tell whether a stored pipeline is this one.

    The server parses what is uploaded and writes it anew, and protobuf's JSON leaves out what has its default value: so
    values that are false, 0 or empty are passed over.
    """
    return spec_digest(_pruned(stored)) == package.shape


def stored_form(documents: list[Any]) -> Any:
    """Return the documents as Kubeflow gives them back: the spec alone, or the spec and the platform's settings."""
    if len(documents) == 1:
        return documents[0]
    return {"pipeline_spec": documents[0], "platform_spec": documents[1]}


def spec_digest(spec: Any) -> str:
    """Return the SHA-256 of a pipeline's content, in hexadecimal; 1 and 1.0 are the same, as in protobuf's JSON."""
    return hashlib.sha256(canonical(spec).encode()).hexdigest()


def canonical(value: Any) -> str:
    """Return `value` as JSON in one spelling: keys sorted, whole numbers without a point."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _pruned(value: Any) -> Any:
    if isinstance(value, Mapping):
        pruned = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in pruned.items() if item or item is None}
    if isinstance(value, list | tuple):
        return [_pruned(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def arguments(package: Package, configuration: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run's parameters: the sections of a validated configuration, and what was given beside them.

    `configuration` carries no None: Kubeflow takes no null.

    Raises:
        UserError: the pipeline takes no such parameter, or needs one that nobody gave.
    """
    given = {**configuration, **extra}
    unknown = sorted(set(given) - set(package.inputs))
    if unknown:
        raise UserError(
            f"{package.path}: the compiled pipeline has no parameter {', '.join(unknown)}; it has"
            f" {', '.join(sorted(package.inputs))}. Was it compiled from another version? `geartrain compile` again."
        )
    optional = package.defaults.keys() | {name for name, about in package.inputs.items() if about.get("isOptional")}
    missing = sorted(set(package.inputs) - set(given) - optional)
    if missing:
        hint = " (--dataset-rev gives dataset_rev)" if "dataset_rev" in missing else ""
        raise UserError(f"{package.path}: the pipeline needs {', '.join(missing)}{hint}; nothing gives it.")
    return given


def differences(new: Any, old: Any, *, prefix: str = "") -> list[str]:
    """Return one line per leaf in which two nested mappings differ: "policy.iterations: 3 (default 30)"."""
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        lines: list[str] = []
        for key in sorted({*new, *old}, key=str):
            inner = f"{prefix}.{key}" if prefix else str(key)
            if key not in old:
                lines.append(f"{inner}: {_short(new[key])} (default: none)")
            elif key not in new:
                lines.append(f"{inner}: none (default {_short(old[key])})")
            else:
                lines += differences(new[key], old[key], prefix=inner)
        return lines
    same = canonical(new) == canonical(old)
    return [] if same else [f"{prefix}: {_short(new)} (default {_short(old)})"]


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
