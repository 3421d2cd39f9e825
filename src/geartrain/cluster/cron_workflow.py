"""A schedule for clusters that have Argo but no recurring runs of Kubeflow: an Argo CronWorkflow that submits a run.

Everything that a run is made of lies in a ConfigMap named after its content, so the YAML in git says all; the image
brings only the command. The workflow waits for its run: `Forbid` counts workflows, not runs.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from geartrain.cluster.cron import to_argo
from geartrain.cluster.jobs import JOBS
from geartrain.cluster.naming import PART_OF_LABEL, PIPELINE, PIPELINE_LABEL
from geartrain.cluster.package import SHORT, Package
from geartrain.cluster.schedule_file import Schedule
from geartrain.errors import UserError

LABELS = {PART_OF_LABEL: PIPELINE, PIPELINE_LABEL: PIPELINE}
MOUNT = "/etc/geartrain"
TOKEN_FOLDER = "/var/run/secrets/kubeflow/pipelines"  # noqa: S105
USER = 65532
BESIDE = frozenset({"dataset_rev", "data", *JOBS.values()})
"""Parameters of a run that are no sections of its configuration."""
LATE_SECONDS = 600
"""How late a missed start may still be made up for; a slot that is older is left out (argoproj/argo-workflows#6778)."""


def render(
    schedule: Schedule,
    package: Package,
    parameters: Mapping[str, Any],
    *,
    image: str,
    endpoint: str,
    namespace: str,
    service_account: str,
) -> str:
    """Return the ConfigMap and the CronWorkflow (Argo 4) as YAML.

    Args:
        image: with `@sha256:`, so that what runs at night is what was reviewed.
        endpoint: address of the Kubeflow Pipelines API as seen from the cluster.

    Raises:
        UserError: the image has no digest, or the schedule fires on seconds.
    """
    if "@sha256:" not in image:
        raise UserError(f"image {image!r}: give it with its digest, NAME@sha256:…; a tag may be another image tonight.")
    sections = {key: value for key, value in parameters.items() if key not in BESIDE}
    files = {"params.yaml": yaml.safe_dump(sections, allow_unicode=True)}
    if schedule.cluster is not None:
        files["cluster.yaml"] = schedule.cluster.read_text("utf-8")
    if parameters.get("data"):
        files["data.json"] = json.dumps(parameters["data"], indent=2, sort_keys=True) + "\n"
    files["training.yaml"] = package.path.read_text("utf-8")
    digest = hashlib.sha256("\0".join(files.values()).encode()).hexdigest()[:SHORT]
    name = f"geartrain-schedule-{schedule.name}-{digest}"
    options = [f"--cluster={MOUNT}/cluster.yaml"] if "cluster.yaml" in files else []
    options += [f"--data=@{MOUNT}/data.json"] if "data.json" in files else []
    options += [f"--dataset-rev={schedule.dataset_rev}"] if schedule.dataset_rev else []
    content = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(name, namespace),
        "immutable": True,
        "data": files,
    }
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "CronWorkflow",
        "metadata": {
            **_metadata(schedule.name, namespace),
            "annotations": {"geartrain.dev/owner": schedule.owner, "geartrain.dev/description": schedule.description},
        },
        "spec": {
            "schedules": [to_argo(schedule.cron, source=str(schedule.path))],
            "timezone": "Etc/UTC",  # the default is the controller's, and "CET" stopped firing (argo-workflows#15653)
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": LATE_SECONDS,
            "suspend": not schedule.enabled,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "workflowSpec": _workflow(name, options, image, endpoint, namespace, service_account),
        },
    }
    return yaml.dump_all([content, workflow], Dumper=_Readable, sort_keys=False, allow_unicode=True, width=110)


class _Readable(yaml.SafeDumper):
    """Writes text of several lines as a block, so that a reviewer can read it."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Readable.add_representer(str, _text)


def _metadata(name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": dict(LABELS)}


def _workflow(
    files: str, options: Sequence[str], image: str, endpoint: str, namespace: str, account: str
) -> dict[str, Any]:
    token = {"audience": "pipelines.kubeflow.org", "expirationSeconds": 3600, "path": "token"}
    submit = {
        "name": "submit",
        "metadata": {"labels": dict(LABELS)},
        "container": _container(options, image, endpoint, namespace),
    }
    return {
        "entrypoint": "submit",
        "serviceAccountName": account,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "podGC": {"strategy": "OnWorkflowSuccess"},
        "volumes": [
            {"name": "files", "configMap": {"name": files}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
        ],
        "templates": [submit],
    }


def _container(options: Sequence[str], image: str, endpoint: str, namespace: str) -> dict[str, Any]:
    arguments = ["--params", f"{MOUNT}/params.yaml", "--package", f"{MOUNT}/training.yaml"]
    arguments += ["--wait", "--auto-retry", "1", *options]
    variables = {
        "KF_PIPELINES_ENDPOINT": endpoint,
        "KF_PIPELINES_SA_TOKEN_PATH": f"{TOKEN_FOLDER}/token",
        "GEARTRAIN_NAMESPACE": namespace,
        "HOME": "/tmp",  # noqa: S108 - an emptyDir of the pod's own
    }
    return {
        "image": image,
        "command": ["geartrain", "submit"],
        "args": arguments,
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "volumeMounts": [
            {"name": "files", "mountPath": MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
        ],
    }
