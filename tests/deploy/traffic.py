"""Who reaches whom: NetworkPolicies, evaluated as Kubernetes defines them.

A pod that some policy selects for a direction is closed in it, but for what the policies that select it allow. A
connection needs the sender's egress and the receiver's ingress.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """An endpoint inside the cluster; `ports` maps the names of its ports to numbers."""

    namespace: str
    labels: dict[str, str]
    ports: dict[str, int] = field(default_factory=dict)
    namespace_labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Address:
    """An endpoint that is no pod: the API server, a service outside."""

    ip: str


Endpoint = Pod | Address


def reaches(policies: Sequence[Document], sender: Pod, receiver: Endpoint, port: int, protocol: str = "TCP") -> bool:
    """Tell whether a pod may open a connection to a port."""
    if not _allowed(policies, "Egress", sender, receiver, receiver, port, protocol):
        return False
    return not isinstance(receiver, Pod) or _allowed(policies, "Ingress", receiver, sender, receiver, port, protocol)


def _allowed(
    policies: Sequence[Document],
    direction: str,
    subject: Pod,
    peer: Endpoint,
    receiver: Endpoint,
    port: int,
    protocol: str,
) -> bool:
    selecting = [found["spec"] for found in policies if _selects(found, direction, subject)]
    if not selecting:
        return True
    return any(
        _to_port(rule.get("ports"), receiver, port, protocol) and _is_peer(rule.get(key), peer, subject.namespace)
        for spec in selecting
        for rule, key in _rules(spec, direction)
    )


def _selects(policy: Document, direction: str, pod: Pod) -> bool:
    return (
        policy["metadata"]["namespace"] == pod.namespace
        and direction in policy["spec"]["policyTypes"]
        and matches(policy["spec"]["podSelector"], pod.labels)
    )


def _rules(spec: Document, direction: str) -> Iterator[tuple[Document, str]]:
    key = "from" if direction == "Ingress" else "to"
    for rule in spec.get(direction.lower(), []):
        yield rule, key


def _to_port(ports: list[Document] | None, receiver: Endpoint, port: int, protocol: str) -> bool:
    if ports is None:
        return True
    named = receiver.ports if isinstance(receiver, Pod) else {}
    return any(
        entry.get("protocol", "TCP") == protocol and named.get(entry["port"], entry["port"]) == port for entry in ports
    )


def _is_peer(peers: list[Document] | None, endpoint: Endpoint, namespace: str) -> bool:
    if peers is None:
        return True
    return any(_is_this_peer(peer, endpoint, namespace) for peer in peers)


def _is_this_peer(peer: Document, endpoint: Endpoint, namespace: str) -> bool:
    if isinstance(endpoint, Address):
        block = peer.get("ipBlock")
        address = ip_address(endpoint.ip)
        return (
            block is not None
            and address in ip_network(block["cidr"])
            and not any(address in ip_network(hole) for hole in block.get("except", []))
        )
    if "ipBlock" in peer:
        return False
    labels = {"kubernetes.io/metadata.name": endpoint.namespace, **endpoint.namespace_labels}
    near = (
        matches(peer["namespaceSelector"], labels) if "namespaceSelector" in peer else endpoint.namespace == namespace
    )
    return near and matches(peer.get("podSelector", {}), endpoint.labels)


def matches(selector: Document, labels: dict[str, str]) -> bool:
    """Tell whether a label selector matches; an empty one matches everything.

    Raises:
        ValueError: an operator that no manifest of ours uses.
    """
    for entry in selector.get("matchExpressions", []):
        if entry["operator"] != "Exists":
            raise ValueError(f"operator {entry['operator']} is not evaluated here")
        if entry["key"] not in labels:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
