"""Every overlay keeps every policy, and every policy can fail."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.deploy.policies import access, platform, pods
from tests.deploy.rendering import OVERLAYS, overlay, smoke_job

Document = dict[str, Any]
Policy = Callable[[Sequence[Document]], list[str]]
POLICIES: tuple[Policy, ...] = (*pods.POLICIES, *access.POLICIES, *platform.POLICIES)
RELEASES = ("prod", "team")
CONTAINER = "spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0"
POD = CONTAINER.removesuffix("/containers/0")


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_overlay_keeps_policy(name: str, policy: Policy) -> None:
    assert policy(overlay(name)) == []


@pytest.mark.parametrize("policy", [platform.only_trainjobs_queue, platform.placement_patches, platform.labelled])
def test_smoke_job_keeps_policy(policy: Policy) -> None:
    assert policy([smoke_job()]) == []


@pytest.mark.parametrize("name", RELEASES)
def test_releases_name_digests(name: str) -> None:
    assert pods.images_by_digest(overlay(name)) == []


def test_a_tag_is_no_digest() -> None:
    assert pods.images_by_digest(overlay("dev")) != []
    assert pods.images_by_digest(_changed("TrainingRuntime", f"{CONTAINER}/image", "x@sha256:abc")) != []


def _changed(kind: str, path: str, value: Any) -> list[Document]:
    """Return the prod overlay with `value` at a JSON pointer of its first document of a kind; None removes."""
    documents = copy.deepcopy(list(overlay("prod")))
    *parents, last = (key.replace("~1", "/") for key in path.split("/"))
    place: Any = next(found for found in documents if found["kind"] == kind)
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    key = int(last) if isinstance(place, list) else last
    if value is None:
        del place[key]
    elif isinstance(place, list) and key == len(place):
        place.append(value)
    else:
        place[key] = value
    return documents


def _added(document: Document) -> list[Document]:
    metadata = {"namespace": "geartrain", "labels": {"app.kubernetes.io/part-of": "geartrain"}, "name": "added"}
    return [*overlay("prod"), {**document, "metadata": {**metadata, **document.get("metadata", {})}}]


def _without(kind: str) -> list[Document]:
    return [found for found in overlay("prod") if found["kind"] != kind]


def _job(**fields: Any) -> list[Document]:
    job = copy.deepcopy(smoke_job())
    job["spec"].update(fields)
    return [job]


def _patch(pod: Document) -> list[Document]:
    entry = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    return [{"manager": "us", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [entry]}}}}]


def _environment(name: str, value: str) -> list[Document]:
    return _changed("TrainingRuntime", f"{CONTAINER}/env/0", {"name": name, "value": value})


RUNTIME = "TrainingRuntime"
BAD: list[tuple[Policy, Callable[[], list[Document]]]] = [
    (pods.not_as_root, lambda: _changed(RUNTIME, f"{POD}/securityContext/runAsNonRoot", None)),
    (pods.not_as_root, lambda: _changed(RUNTIME, f"{POD}/securityContext/runAsUser", None)),
    (pods.not_as_root, lambda: _changed(RUNTIME, f"{CONTAINER}/securityContext/runAsUser", 0)),
    (pods.not_as_root, lambda: _changed("CronJob", "spec/jobTemplate/spec/template/spec/securityContext", {})),
    (pods.read_only_root, lambda: _changed(RUNTIME, f"{CONTAINER}/securityContext/readOnlyRootFilesystem", False)),
    (pods.read_only_root, lambda: _changed(RUNTIME, f"{POD}/initContainers", [{"name": "it", "image": "x:1"}])),
    (pods.no_privileges, lambda: _changed(RUNTIME, f"{CONTAINER}/securityContext/allowPrivilegeEscalation", None)),
    (pods.no_privileges, lambda: _changed(RUNTIME, f"{CONTAINER}/securityContext/privileged", True)),
    (pods.no_privileges, lambda: _changed(RUNTIME, f"{CONTAINER}/securityContext/capabilities/drop", ["KILL"])),
    (pods.no_privileges, lambda: _changed(RUNTIME, f"{CONTAINER}/securityContext/capabilities/add", ["IPC_LOCK"])),
    (pods.no_privileges, lambda: _changed(RUNTIME, f"{POD}/hostNetwork", True)),
    (pods.no_privileges, lambda: _changed(RUNTIME, f"{CONTAINER}/ports/0/hostPort", 9464)),
    (pods.no_privileges, lambda: _changed(RUNTIME, f"{POD}/volumes/0", {"name": "work", "hostPath": {"path": "/"}})),
    (pods.seccomp, lambda: _changed(RUNTIME, f"{POD}/securityContext/seccompProfile", None)),
    (pods.seccomp, lambda: _changed(RUNTIME, f"{CONTAINER}/securityContext/seccompProfile", {"type": "Unconfined"})),
    (pods.sized, lambda: _changed(RUNTIME, f"{CONTAINER}/resources/requests/memory", None)),
    (pods.sized, lambda: _changed(RUNTIME, f"{CONTAINER}/resources/limits", None)),
    (pods.sized, lambda: _changed(RUNTIME, f"{CONTAINER}/resources/limits/nvidia.com~1gpu", "4")),
    (pods.bounded_scratch, lambda: _changed(RUNTIME, f"{POD}/volumes/0", {"name": "work", "emptyDir": {}})),
    (pods.named_images, lambda: _changed(RUNTIME, f"{CONTAINER}/image", "registry.example.com:5000/geartrain/train")),
    (pods.named_images, lambda: _changed(RUNTIME, f"{CONTAINER}/image", "geartrain/train:latest")),
    (access.no_wildcards, lambda: _changed("Role", "rules/0/verbs", ["*"])),
    (access.no_wildcards, lambda: _changed("Role", "rules/0/resources", ["trainjobs/*"])),
    (access.no_secrets_no_exec, lambda: _changed("Role", "rules/0/resources", ["configmaps", "secrets"])),
    (access.no_secrets_no_exec, lambda: _changed("Role", "rules/0/resources", ["pods/exec"])),
    (access.no_secrets_no_exec, lambda: _changed("Role", "rules/0/verbs", ["impersonate"])),
    (access.own_accounts, lambda: _changed("RoleBinding", "subjects/0/namespace", "kubeflow")),
    (access.own_accounts, lambda: _changed("RoleBinding", "subjects/0/kind", "Group")),
    (access.own_accounts, lambda: _changed(RUNTIME, f"{POD}/serviceAccountName", "default")),
    (access.own_accounts, lambda: _added({"kind": "ClusterRoleBinding", "subjects": []})),
    (access.no_idle_tokens, lambda: _changed(RUNTIME, f"{POD}/automountServiceAccountToken", None)),
    (access.no_secret_values, lambda: _added({"kind": "Secret", "stringData": {"a": "b"}})),
    (access.no_secret_values, lambda: _environment("DB_PASSWORD", "hunter2")),
    (access.no_secret_values, lambda: _environment("AWS_SECRET_ACCESS_KEY", "x")),
    (access.no_secret_values, lambda: _environment("NOTE", "kG9fQ2xZ7Lr3Vb8Wn1Tc6Yp4Hs5Jd0Me2Ua9Xi7Ro3K")),
    (access.no_secret_values, lambda: _environment("NOTE", "AKIA" + "ABCDEFGHIJKLMNOP")),
    (access.no_secret_values, lambda: _environment("URL", "postgres://me:hunter2@db/geartrain")),
    (access.no_secret_values, lambda: _added({"kind": "ConfigMap", "data": {"api-key": "x"}})),
    (platform.restricted_namespaces, lambda: _changed("Namespace", "metadata/labels", {})),
    (platform.closed_namespaces, lambda: _without("NetworkPolicy")),
    (platform.closed_namespaces, lambda: _changed("NetworkPolicy", "spec/policyTypes", ["Ingress"])),
    (platform.closed_namespaces, lambda: _changed("NetworkPolicy", "spec/ingress", [{}])),
    (platform.own_namespace, lambda: _changed("LocalQueue", "metadata/namespace", "default")),
    (platform.own_namespace, lambda: _changed("ClusterQueue", "metadata/namespace", "geartrain")),
    (platform.quotas_with_defaults, lambda: _without("LimitRange")),
    (platform.quotas_with_defaults, lambda: _changed("LimitRange", "spec/limits/0/defaultRequest", None)),
    (platform.quotas_with_defaults, lambda: _changed("LimitRange", "spec/limits/0/type", "Pod")),
    (platform.quotas_with_defaults, lambda: _changed("ResourceQuota", "spec/hard/limits.cpu", "64")),
    (platform.only_trainjobs_queue, lambda: _changed("CronJob", "metadata/labels/kueue.x-k8s.io~1queue-name", "x")),
    (platform.running_targets, lambda: _changed("PodMonitor", "spec/podMetricsEndpoints/0/filterRunning", False)),
    (platform.torch_runtimes, lambda: _changed(RUNTIME, "spec/mlPolicy/mpi", {"mpiImplementation": "OpenMPI"})),
    (platform.torch_runtimes, lambda: _changed(RUNTIME, "spec/mlPolicy/torch", None)),
    (platform.lasting_work, lambda: _changed(RUNTIME, f"{POD}/volumes/0", {"name": "work", "emptyDir": {}})),
    (platform.lasting_work, lambda: _changed(RUNTIME, f"{CONTAINER}/volumeMounts/0/mountPath", "/elsewhere")),
    (platform.lasting_work, lambda: _changed("PersistentVolumeClaim", "spec/accessModes", ["ReadWriteOnce"])),
    (platform.lasting_work, lambda: _without("PersistentVolumeClaim")),
    (platform.placement_patches, lambda: _job(runtimePatches=_patch({"volumes": []}))),
    (platform.placement_patches, lambda: _job(runtimePatches=_patch({"serviceAccountName": "default"}))),
    (platform.universal_schedules, lambda: _changed("CronJob", "spec/timeZone", "Europe/Berlin")),
    (platform.universal_schedules, lambda: _changed("CronJob", "spec/concurrencyPolicy", "Allow")),
    (platform.labelled, lambda: _changed("NetworkPolicy", "metadata/labels", None)),
]


@pytest.mark.parametrize(
    ("policy", "documents"), BAD, ids=[f"{policy.__name__}-{index}" for index, (policy, _) in enumerate(BAD)]
)
def test_policy_catches_a_breach(policy: Policy, documents: Callable[[], list[Document]]) -> None:
    assert policy(documents()) != []


def test_every_policy_has_a_breach_to_catch() -> None:
    assert {policy for policy, _ in BAD} == set(POLICIES)


def test_placement_may_be_patched() -> None:
    patch = _patch({"nodeSelector": {"a": "b"}, "tolerations": [], "affinity": {}})
    assert platform.placement_patches(_job(runtimePatches=patch)) == []
