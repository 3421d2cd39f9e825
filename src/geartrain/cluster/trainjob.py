"""The one file that knows Kubeflow Trainer: what we ask it to train, and how its answer is read.

Written for Trainer v2.3 (`trainer.kubeflow.org/v1alpha1`). Its override API broke in each of 2.1, 2.2 and 2.3
(kubeflow/trainer#2785, #3309), and the API server prunes the fields of old ones without a word. So a job carries
size, image, command and placement; volumes, security and restarts are facts of the platform and lie in our
TrainingRuntime. In a job's patches they would also keep Kueue from resuming it (kubeflow/trainer#3888).
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geartrain.cluster import naming
from geartrain.errors import UserError

GROUP, VERSION, PLURAL, KIND = "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"
RUNTIME = "geartrain-torch"
RUNTIME_JOBS = frozenset({"node"})
"""Replicated jobs of the runtime. A patch of any other name would not patch but add a job (kueue#14504)."""
NODE, CONTAINER = "node", "node"
PATCHABLE = frozenset({"nodeSelector", "affinity", "tolerations"})
"""Pod fields that `runtimePatches` may carry: with others Kueue cannot unsuspend the job (kubeflow/trainer#3888)."""
REMOVED = frozenset({"podSpecOverrides", "podTemplateOverrides", "ttlSecondsAfterFinished"})
"""Fields of older Trainers or of plain Jobs, which the API server would drop silently."""
FINAL_REASONS = frozenset({"TrainingRuntimeNotSupported"})
"""Reasons of a failure that no second attempt would change."""
MANAGER = "geartrain.dev/launcher"
UNPINNED = (
    "carries no digest, so that the code it names could change between two attempts; write name@sha256:…, as the push "
    "printed it"
)
"""What is wrong with an image that is not pinned."""

_DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_QUANTITY = re.compile(r"\d+(\.\d+)?([KMGTPE]i|[numkMGTPE])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST = 128
"""Most arguments, and most variables, that the schema of a TrainJob allows."""


@dataclass(frozen=True)
class Resources:
    """What one node gets, in Kubernetes' units: `{"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}`."""

    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Placement:
    """Where pods may run, in the words of a pod's spec."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Owner:
    """The object, in the same namespace, with which a job is garbage collected: the Workflow of its run."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class TrainingJob:
    """What is to be trained, for whom, and where. Checked when it is made.

    Raises:
        UserError: something cannot work on the cluster; the message lists all of it.
    """

    run: str
    """Id of the KFP run."""
    stage: str
    image: str
    """By digest: `registry/name@sha256:…`."""
    command: Sequence[str]
    nodes: int
    processes_per_node: int
    args: Sequence[str] = ()
    attempt: int = 1
    """Number of the first attempt; the launcher counts on from here."""
    resources: Resources = field(default_factory=Resources)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Plain values, stored in clear with the job. A secret is mounted by the TrainingRuntime."""
    queue: str | None = None
    """Kueue's LocalQueue; None starts the job at once."""
    priority_class: str | None = None
    placement: Placement = field(default_factory=Placement)
    deadline_seconds: int | None = None
    """Most seconds of training since it was last resumed; Trainer then fails the job."""
    owner: Owner | None = None

    def __post_init__(self) -> None:
        wrong = [problem for problem in (*_wrong_values(self), *_wrong_resources(self.resources)) if problem]
        if wrong:
            raise UserError("\n".join([f"job of stage {self.stage!r}: {len(wrong)} problem(s)", *wrong]))

    @property
    def name(self) -> str:
        """Name of the TrainJob of this attempt."""
        return naming.job_name(self.run, self.stage, self.attempt)


def manifest(job: TrainingJob) -> dict[str, Any]:
    """Return the TrainJob to submit; a pure function of the job."""
    labels = naming.labels(job.run, job.stage)
    queue = {naming.QUEUE_LABEL: job.queue} if job.queue else {}
    priority = {naming.PRIORITY_LABEL: job.priority_class} if job.priority_class else {}
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "spec": _spec(job)}
    marks = {naming.SPEC_HASH: spec_hash(body), naming.ATTEMPT: str(job.attempt)}
    metadata: dict[str, Any] = {
        "name": job.name,
        "labels": {**labels, **queue, **priority},
        "annotations": marks,
    }
    if job.owner is not None:
        owner = job.owner
        metadata["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        ]
    return {**body, "metadata": metadata}


def spec_hash(body: Mapping[str, Any]) -> str:
    """Return the sha256 of what a job trains and how.

    The name (it counts attempts) and the owner (a retried run may have another) say nothing about that; labels and
    annotations neither. The server adds defaults to a spec, so a job is compared by its annotation, not computed anew.
    """
    part = {key: body[key] for key in ("apiVersion", "kind", "spec")}
    return hashlib.sha256(json.dumps(part, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_pinned(image: str) -> bool:
    """Whether a name of an image says which bytes it means."""
    return _DIGEST.fullmatch(image) is not None


def problems(body: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a TrainJob that our runtime and Kueue are to handle, whoever wrote it."""
    spec = body.get("spec", {})
    found = [f"spec.{key}: Trainer 2.3 has no such field and drops it silently" for key in sorted(REMOVED & set(spec))]
    processes = spec.get("trainer", {}).get("numProcPerNode", 1)
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        found.append(f"spec.trainer.numProcPerNode: {processes!r} is no integer of at least 1")
    for patch in spec.get("runtimePatches", ()):
        template = patch.get("trainingRuntimeSpec", {}).get("template", {})
        for replicated in template.get("spec", {}).get("replicatedJobs", ()):
            name = replicated.get("name")
            if name not in RUNTIME_JOBS:
                found.append(f"runtimePatches: {RUNTIME} has no replicated job {name!r}; the patch would add one")
            pod = replicated.get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
            found += [f"runtimePatches: {key} keeps Kueue from unsuspending it" for key in sorted(set(pod) - PATCHABLE)]
    return found


def _spec(job: TrainingJob) -> dict[str, Any]:
    trainer: dict[str, Any] = {
        "image": job.image,
        "command": list(job.command),
        "args": list(job.args),
        "env": [{"name": name, "value": job.environment[name]} for name in sorted(job.environment)],
        "numNodes": job.nodes,
        "numProcPerNode": job.processes_per_node,
    }
    resources = {"requests": dict(job.resources.requests), "limits": dict(job.resources.limits)}
    trainer["resourcesPerNode"] = {key: value for key, value in resources.items() if value}
    spec: dict[str, Any] = {
        "runtimeRef": {"apiGroup": GROUP, "kind": "TrainingRuntime", "name": RUNTIME},
        "trainer": {key: value for key, value in trainer.items() if value},
        "runtimePatches": [_patch(job)],
    }
    if job.deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = job.deadline_seconds
    return spec


def _patch(job: TrainingJob) -> dict[str, Any]:
    """Labels for the pods, so that policies and metrics find them, and where they may run; nothing else."""
    place = {
        "nodeSelector": dict(job.placement.node_selector),
        "tolerations": [dict(toleration) for toleration in job.placement.tolerations],
        "affinity": dict(job.placement.affinity),
    }
    pod: dict[str, Any] = {"metadata": {"labels": naming.labels(job.run, job.stage)}}
    if any(place.values()):
        pod["spec"] = {key: value for key, value in place.items() if value}
    replicated = {"name": NODE, "template": {"spec": {"template": pod}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated]}}}}


def _wrong_values(job: TrainingJob) -> list[str]:
    found = []
    if not is_pinned(job.image):
        found.append(f"  image {job.image!r} {UNPINNED}")
    for name in ("nodes", "processes_per_node", "attempt"):
        value = getattr(job, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            found.append(f"  {name} is {value!r}; it has to be an integer of at least 1")
    if job.deadline_seconds is not None and job.deadline_seconds < 1:
        found.append(f"  deadline_seconds is {job.deadline_seconds}; it has to be at least 1, or None")
    if not job.command:
        found.append("  command is empty; name what the container runs, such as ['torchrun', …]")
    sizes = {key: len(getattr(job, key)) for key in ("command", "args", "environment")}
    found += [f"  {key} has {size} entries; a TrainJob allows {_MOST}" for key, size in sizes.items() if size > _MOST]
    for name, value in job.environment.items():
        if not _VARIABLE.fullmatch(name):
            found.append(f"  environment: {name!r} is no name of a variable")
        if not isinstance(value, str):
            found.append(f"  environment: {name} is {value!r}; quote it, a variable is text")
        if name.startswith("PET_"):
            found.append(f"  environment: Trainer sets {name} itself and refuses a job that does; remove it")
    return found


def _wrong_resources(resources: Resources) -> list[str]:
    found = []
    for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, amount in amounts.items():
            if not isinstance(amount, str) or not _QUANTITY.fullmatch(amount):
                found.append(f"  resources.{kind}: {name} is {amount!r}; write text such as '8', '500m' or '64Gi'")
    unequal = [
        name for name in resources.requests if "/" in name and resources.limits.get(name) != resources.requests[name]
    ]
    return found + [
        f"  resources: {name} needs a limit equal to its request: a device is not shared" for name in unequal
    ]
