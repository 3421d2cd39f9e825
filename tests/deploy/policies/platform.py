"""What the platform's own traps ask of an installation; the issue says why. A policy returns the breaches."""

from collections.abc import Sequence

from tests.deploy.policies.pods import Document, containers, title, walk

CLUSTER_SCOPED = {"Namespace", "ClusterQueue", "ResourceFlavor"}
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
WORK = "/work"
PLACEMENT = {"nodeSelector", "affinity", "tolerations"}


def restricted_namespaces(documents: Sequence[Document]) -> list[str]:
    """The API server itself refuses a pod that asks for more."""
    return [
        f"{title(found)}: Pod Security is not enforced at restricted"
        for found in documents
        if found["kind"] == "Namespace"
        and found["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce") != "restricted"
    ]


def closed_namespaces(documents: Sequence[Document]) -> list[str]:
    """Every namespace has a policy that denies all, so that the others only add."""
    closed = {
        found["metadata"]["namespace"]
        for found in documents
        if found["kind"] == "NetworkPolicy"
        and found["spec"]["podSelector"] == {}
        and set(found["spec"].get("policyTypes", [])) == {"Ingress", "Egress"}
        and not found["spec"].get("ingress")
        and not found["spec"].get("egress")
    }
    return [
        f"{title(found)}: no NetworkPolicy denies by default"
        for found in documents
        if found["kind"] == "Namespace" and found["metadata"]["name"] not in closed
    ]


def own_namespace(documents: Sequence[Document]) -> list[str]:
    """Nothing is put into a namespace that is not part of the installation."""
    names = {found["metadata"]["name"] for found in documents if found["kind"] == "Namespace"}
    return [
        f"{title(found)}: is in namespace {found['metadata'].get('namespace')!r}"
        for found in documents
        if (found["metadata"].get("namespace") not in names) != (found["kind"] in CLUSTER_SCOPED)
    ]


def quotas_with_defaults(documents: Sequence[Document]) -> list[str]:
    """A quota refuses Argo's init and wait containers, which ask for nothing (deployKF#228)."""
    breaches = []
    for found in documents:
        if found["kind"] == "ResourceQuota":
            namespace, hard = found["metadata"]["namespace"], found["spec"]["hard"]
            for field, prefix in (("defaultRequest", "requests."), ("default", "limits.")):
                # what a device plug-in offers has no default: who does not ask for it, gets none
                counted = {key.removeprefix(prefix) for key in hard if key.startswith(prefix) and "/" not in key}
                missing = counted - _defaults(documents, namespace, field).keys()
                breaches += [f"{title(found)}: no LimitRange has a {field} of {key}" for key in sorted(missing)]
    return breaches


def _defaults(documents: Sequence[Document], namespace: str, field: str) -> dict[str, str]:
    return {
        key: value
        for found in documents
        if found["kind"] == "LimitRange" and found["metadata"]["namespace"] == namespace
        for entry in found["spec"]["limits"]
        if entry["type"] == "Container"
        for key, value in entry.get(field, {}).items()
    }


def only_trainjobs_queue(documents: Sequence[Document]) -> list[str]:
    """A launcher that waits in the queue holds quota that its own job needs (kubernetes-sigs/kueue#74)."""
    breaches = []
    for document in documents:
        places = [path for path, _ in walk(document) if path.endswith(f"/{QUEUE_LABEL}")]
        allowed = [f"/metadata/labels/{QUEUE_LABEL}"] if document["kind"] == "TrainJob" else []
        breaches += [f"{title(document)}: {path}" for path in places if path not in allowed]
    return breaches


def running_targets(documents: Sequence[Document]) -> list[str]:
    """A finished pod is no target that is down (prometheus-operator#4816)."""
    return [
        f"{title(found)}: endpoint {endpoint.get('port')} does not filter for running pods"
        for found in documents
        if found["kind"] == "PodMonitor"
        for endpoint in found["spec"]["podMetricsEndpoints"]
        if endpoint.get("filterRunning") is not True
    ]


def torch_runtimes(documents: Sequence[Document]) -> list[str]:
    """Torch's own launcher; with MPI, resources and variables reach the launcher only (kubeflow/trainer#2650)."""
    breaches = []
    for found in documents:
        if found["kind"] in {"TrainingRuntime", "ClusterTrainingRuntime"}:
            policy = found["spec"].get("mlPolicy", {})
            if "torch" not in policy or policy.keys() - {"numNodes", "torch"}:
                breaches.append(f"{title(found)}: mlPolicy is {sorted(policy)}")
    return breaches


def lasting_work(documents: Sequence[Document]) -> list[str]:
    """A job that lost its pods goes on from its last checkpoint only if that lies on a volume that all nodes share."""
    shared = {
        found["metadata"]["name"]
        for found in documents
        if found["kind"] == "PersistentVolumeClaim" and "ReadWriteMany" in found["spec"]["accessModes"]
    }
    runtimes = [found for found in documents if found["kind"] in {"TrainingRuntime", "ClusterTrainingRuntime"}]
    breaches = []
    for name, pod, container in containers(runtimes):
        mounted = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        claim = volumes.get(mounted.get(WORK), {}).get("persistentVolumeClaim", {}).get("claimName")
        if claim not in shared:
            breaches.append(f"{name}: {WORK} is no volume that all nodes mount and that outlives pods")
    return breaches


def placement_patches(documents: Sequence[Document]) -> list[str]:
    """Kueue cannot resume a job that patches volumes, accounts or containers (kubeflow/trainer#3888)."""
    breaches = []
    for found in documents:
        if found["kind"] == "TrainJob":
            for path, value in walk(found["spec"].get("runtimePatches", [])):
                if path.endswith("/template/spec") and isinstance(value, dict) and "replicatedJobs" not in value:
                    keys = value.keys() - PLACEMENT - {"template"}
                    breaches += [f"{title(found)}: patches {path}/{key}" for key in sorted(keys)]
    return breaches


def universal_schedules(documents: Sequence[Document]) -> list[str]:
    """UTC knows no summer time, and a slow run is not overtaken by the next."""
    return [
        f"{title(found)}: not in Etc/UTC, or may run twice at once"
        for found in documents
        if found["kind"] == "CronJob"
        and (found["spec"].get("timeZone"), found["spec"].get("concurrencyPolicy")) != ("Etc/UTC", "Forbid")
    ]


def labelled(documents: Sequence[Document]) -> list[str]:
    """`kubectl get all -l app.kubernetes.io/part-of=geartrain` shows what is ours."""
    return [
        f"{title(found)}: lacks the label app.kubernetes.io/part-of"
        for found in documents
        if "app.kubernetes.io/part-of" not in found["metadata"].get("labels", {})
    ]


POLICIES = (
    restricted_namespaces,
    closed_namespaces,
    own_namespace,
    quotas_with_defaults,
    only_trainjobs_queue,
    running_targets,
    torch_runtimes,
    lasting_work,
    placement_patches,
    universal_schedules,
    labelled,
)
