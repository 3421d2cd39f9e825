"""How a pod of ours has to run. A policy takes rendered documents and returns the breaches, in words."""

from collections.abc import Iterator, Sequence
from typing import Any

Document = dict[str, Any]


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value below `value` with its path."""
    yield path, value
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from walk(child, f"{path}/{key}")


def title(document: Document) -> str:
    """Return kind and name, as people say them."""
    return f"{document['kind']}/{document['metadata']['name']}"


def pods(documents: Sequence[Document]) -> Iterator[tuple[str, Document]]:
    """Yield every pod spec, however deep, with the title of its document."""
    for document in documents:
        for _, value in walk(document):
            if isinstance(value, dict) and isinstance(value.get("containers"), list):
                yield title(document), value


def containers(documents: Sequence[Document]) -> Iterator[tuple[str, Document, Document]]:
    """Yield every container with its pod and its name for people."""
    for name, pod in pods(documents):
        for container in [*pod["containers"], *pod.get("initContainers", []), *pod.get("ephemeralContainers", [])]:
            yield f"{name}: container {container['name']}", pod, container


def _setting(pod: Document, container: Document, key: str) -> Any:
    """Return a security setting: the container's own, else the pod's."""
    own = container.get("securityContext", {})
    return own.get(key, pod.get("securityContext", {}).get(key))


def not_as_root(documents: Sequence[Document]) -> list[str]:
    """A numeric user: the kubelet cannot tell whether a user by name is root."""
    breaches = []
    for name, pod, container in containers(documents):
        user = _setting(pod, container, "runAsUser")
        if _setting(pod, container, "runAsNonRoot") is not True:
            breaches.append(f"{name}: runAsNonRoot is not true")
        if not isinstance(user, int) or user <= 0:
            breaches.append(f"{name}: runAsUser is {user!r}, not a number above 0")
    return breaches


def read_only_root(documents: Sequence[Document]) -> list[str]:
    """What a container writes lies in volumes that are sized and named."""
    return [
        f"{name}: readOnlyRootFilesystem is not true"
        for name, _, container in containers(documents)
        if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True
    ]


def no_privileges(documents: Sequence[Document]) -> list[str]:
    """No escalation, no capabilities, nothing of the host."""
    breaches = []
    for name, _, container in containers(documents):
        context = container.get("securityContext", {})
        capabilities = context.get("capabilities", {})
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged", False):
            breaches.append(f"{name}: may gain privileges")
        if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
            breaches.append(f"{name}: does not drop all capabilities, or adds some")
        breaches += [f"{name}: takes a port of the host" for port in container.get("ports", []) if "hostPort" in port]
    for name, pod in pods(documents):
        breaches += [f"{name}: {key}" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
        breaches += [f"{name}: hostPath" for volume in pod.get("volumes", []) if "hostPath" in volume]
    return breaches


def seccomp(documents: Sequence[Document]) -> list[str]:
    """The runtime's own filter of system calls."""
    return [
        f"{name}: seccompProfile is not RuntimeDefault"
        for name, pod, container in containers(documents)
        if _setting(pod, container, "seccompProfile") != {"type": "RuntimeDefault"}
    ]


def sized(documents: Sequence[Document]) -> list[str]:
    """Requests and limits, so that quota and scheduler know; a GPU's request and limit are one number."""
    breaches = []
    for name, _, container in containers(documents):
        requests = container.get("resources", {}).get("requests", {})
        limits = container.get("resources", {}).get("limits", {})
        breaches += [f"{name}: requests no {key}" for key in ("cpu", "memory") if key not in requests]
        breaches += [f"{name}: has no limit of {key}" for key in ("cpu", "memory") if key not in limits]
        devices = {key for key in (*requests, *limits) if "/" in key}
        breaches += [f"{name}: {key} differs" for key in devices if requests.get(key) != limits.get(key)]
    return breaches


def bounded_scratch(documents: Sequence[Document]) -> list[str]:
    """An emptyDir without a limit fills the node's disk, or its memory (kubeflow/pipelines#11137)."""
    return [
        f"{name}: emptyDir {volume['name']} has no sizeLimit"
        for name, pod in pods(documents)
        for volume in pod.get("volumes", [])
        if "emptyDir" in volume and not (volume["emptyDir"] or {}).get("sizeLimit")
    ]


def named_images(documents: Sequence[Document]) -> list[str]:
    """A tag that is not `latest`, or a digest."""
    breaches = []
    for name, _, container in containers(documents):
        reference, _, digest = container["image"].partition("@")
        tag = reference.rpartition("/")[2].partition(":")[2]
        if not digest and tag in {"", "latest"}:
            breaches.append(f"{name}: image {container['image']} is a moving one")
    return breaches


def images_by_digest(documents: Sequence[Document]) -> list[str]:
    """Kubeflow's cache and our records are right only for what cannot change."""
    return [
        f"{name}: image {container['image']} has no digest"
        for name, _, container in containers(documents)
        if not _is_digest(container["image"].partition("@sha256:")[2])
    ]


def _is_digest(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


POLICIES = (not_as_root, read_only_root, no_privileges, seccomp, sized, bounded_scratch, named_images)
"""Those of every overlay; `images_by_digest` is for releases."""
