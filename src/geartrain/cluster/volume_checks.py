"""Can the training pods of all nodes write to one volume, and does it outlive them? For the doctor."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from geartrain.cluster.findings import FAIL, OK, WARN, Finding, Reader
from geartrain.cluster.interface import ForbiddenError, NotFoundError

SHARED = "ReadWriteMany"
CLAIM = "k8s/components/storage-pvc"
DISKS = {
    "rancher.io/local-path": "a folder of one node",
    "docker.io/hostpath": "a folder of one node",
    "k8s.io/minikube-hostpath": "a folder of one node",
    "ebs.csi.aws.com": "a disk of one node",
    "pd.csi.storage.gke.io": "a disk of one node",
    "disk.csi.azure.com": "a disk of one node",
    "cinder.csi.openstack.org": "a disk of one node",
}
"""Provisioner -> what it gives: the usual default classes, none of which gives a file system to several nodes."""
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_FILES = "NFS, CephFS or a cloud's file store"


def mounted_claims(runtime: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the claims that the pods of a TrainingRuntime mount."""
    jobs = runtime.get("spec", {}).get("template", {}).get("spec", {}).get("replicatedJobs") or ()
    pods = [job.get("template", {}).get("spec", {}).get("template", {}).get("spec", {}) for job in jobs]
    volumes = [volume for pod in pods for volume in pod.get("volumes") or ()]
    named = [(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes]
    return tuple(dict.fromkeys(name for name in named if name))


def check_claims(reader: Reader, namespace: str, names: Iterable[str]) -> Iterator[Finding]:
    """Yield one finding per claim: whether it is bound, and to something that pods of several nodes can mount."""
    for name in names:
        try:
            claim = reader.read(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
        except NotFoundError:
            level, message, mend = FAIL, "is not there", f"add {CLAIM} to your overlay"
        else:
            level, message, mend = _judge(reader, claim, f"kubectl -n {namespace} describe pvc {name}")
        yield Finding(level, f"volume claim {name}", message, mend)


def _judge(reader: Reader, claim: Mapping[str, Any], describe: str) -> tuple[str, str, str]:
    """Return level, message, and what to do."""
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    phase = status.get("phase", "unknown")
    modes = status.get("accessModes") or spec.get("accessModes") or []
    shown = f"{phase}, {', '.join(modes) or 'no access mode'}"
    if phase == "Lost":
        return FAIL, shown, f"its volume is gone, and what was on it; delete the claim and apply {CLAIM} again"
    if SHARED not in modes and not ("ReadWriteOnce" in modes and _has_one_node(reader)):
        mend = f"a claim cannot be changed: delete it and apply {CLAIM} again, with a class of {_FILES}"
        return FAIL, f"{shown}: training pods on other nodes cannot mount it; {SHARED} is needed", mend
    if phase == "Bound":
        return OK, shown, ""
    return _pending(reader, spec.get("storageClassName"), shown, shared=SHARED in modes, describe=describe)


def _has_one_node(reader: Reader) -> bool:
    """Whether this is a cluster of one node, where a disk of that node does; False also where nobody may count."""
    try:
        return len(reader.read("/api/v1/nodes").get("items") or ()) == 1
    except ForbiddenError:
        return False


def _pending(reader: Reader, wanted: str | None, shown: str, *, shared: bool, describe: str) -> tuple[str, str, str]:
    """Say what a claim that is not bound waits for, as far as its StorageClass tells."""
    try:
        classes = reader.read("/apis/storage.k8s.io/v1/storageclasses").get("items") or ()
    except ForbiddenError:
        return WARN, shown, f"may be bound by the first pod; `{describe}` says what it waits for"
    found = next((item for item in classes if _is_meant(item, wanted)), None)
    if found is None:
        what = "there is no default StorageClass" if wanted is None else f"there is no StorageClass {wanted!r}"
        return FAIL, f"{shown}: {what}", f"name one of {_FILES} in {CLAIM}/claim.yaml (storageClassName)"
    name, provisioner = found["metadata"]["name"], found.get("provisioner", "")
    if shared and provisioner in DISKS:
        mend = (
            f"name a class of {_FILES} in {CLAIM}/claim.yaml; on a cluster of one node, such as kind's default, patch "
            "its accessModes to [ReadWriteOnce]. Delete the claim first: it cannot be changed"
        )
        return FAIL, f"{shown}: class {name} ({provisioner}) gives {DISKS[provisioner]}, it will never be bound", mend
    if found.get("volumeBindingMode") == "WaitForFirstConsumer":
        return WARN, f"{shown}: class {name} binds it with the first pod", "look again after k8s/smoke/trainjob.yaml"
    return WARN, f"{shown}, though class {name} binds at once", f"`{describe}` says what it waits for"


def _is_meant(storage_class: Mapping[str, Any], wanted: str | None) -> bool:
    metadata = storage_class["metadata"]
    if wanted is None:
        return (metadata.get("annotations") or {}).get(_DEFAULT) == "true"
    return bool(metadata["name"] == wanted)
