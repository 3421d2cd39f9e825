"""Schemas of kinds that no package on the index describes, written from the types in their sources.

Only the fields that a manifest of ours may use; one that is missing here is added after a look at the source:
kubernetes-sigs/kueue apis/kueue/v1beta2 and apis/config/v1beta2 (0.19), External Secrets external-secrets.io/v1.
"""

from typing import Any

TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
QUANTITY = {"type": ["integer", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"}
DURATION = {"type": "string", "pattern": "^([0-9]+(h|m|s))+$"}


def _object(required: str = "", **properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these fields and no others; `required` lists names, with spaces."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


def _document(version: str, kind: str, **fields: Any) -> dict[str, Any]:
    head = {"apiVersion": {"const": version}, "kind": {"const": kind}}
    return _object(" ".join(["apiVersion", "kind", *fields]), **head, **fields)


METADATA = {"type": "object", "required": ["name"]}
SELECTOR = _object(
    matchLabels={"type": "object", "additionalProperties": TEXT},
    matchExpressions=_list(_object("key operator", key=TEXT, operator=TEXT, values=_list(TEXT))),
)
_QUOTA = _object("name nominalQuota", name=TEXT, nominalQuota=QUANTITY, borrowingLimit=QUANTITY, lendingLimit=QUANTITY)
_GROUP = _object(
    "coveredResources flavors",
    coveredResources=_list(TEXT),
    flavors=_list(_object("name resources", name=TEXT, resources=_list(_QUOTA))),
)
_CLUSTER_QUEUE = _object(
    "resourceGroups namespaceSelector",
    resourceGroups=_list(_GROUP),
    namespaceSelector=SELECTOR,
    cohortName=TEXT,
    queueingStrategy={"enum": ["StrictFIFO", "BestEffortFIFO"]},
    preemption=_object(
        withinClusterQueue={"enum": ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]},
        reclaimWithinCohort={"enum": ["Never", "LowerPriority", "Any"]},
    ),
    stopPolicy={"enum": ["None", "Hold", "HoldAndDrain"]},
)
_TAINT_EFFECT = {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}
_FLAVOR = _object(
    nodeLabels={"type": "object", "additionalProperties": TEXT, "maxProperties": 8},
    nodeTaints=_list(_object("key effect", key=TEXT, value=TEXT, effect=_TAINT_EFFECT)),
    tolerations=_list(_object(key=TEXT, operator={"enum": ["Exists", "Equal"]}, value=TEXT, effect=_TAINT_EFFECT)),
    topologyName=TEXT,
)
_LOCAL_QUEUE = _object("clusterQueue", clusterQueue=TEXT, stopPolicy={"enum": ["None", "Hold", "HoldAndDrain"]})
_REQUEUING = _object(
    timestamp={"enum": ["Eviction", "Creation"]},
    backoffLimitCount=COUNT,
    backoffBaseSeconds=COUNT,
    backoffMaxSeconds=COUNT,
)
_PODS_READY = _object(
    "timeout recoveryTimeout",
    timeout=DURATION,
    recoveryTimeout=DURATION,
    blockAdmission={"type": "boolean"},
    requeuingStrategy=_REQUEUING,
)
_EXTERNAL_SECRET = _object(
    "secretStoreRef target data",
    refreshInterval=DURATION,
    secretStoreRef=_object("name kind", name=TEXT, kind={"enum": ["SecretStore", "ClusterSecretStore"]}),
    target=_object("name", name=TEXT, creationPolicy={"enum": ["Owner", "Orphan", "Merge", "None"]}),
    data=_list(
        _object("secretKey remoteRef", secretKey=TEXT, remoteRef=_object("key", key=TEXT, property=TEXT, version=TEXT))
    ),
)
QUEUE = "kueue.x-k8s.io/v1beta2"
SCHEMAS: dict[tuple[str, str], dict[str, Any]] = {
    ("kueue.x-k8s.io", "ClusterQueue"): _document(QUEUE, "ClusterQueue", metadata=METADATA, spec=_CLUSTER_QUEUE),
    ("kueue.x-k8s.io", "LocalQueue"): _document(QUEUE, "LocalQueue", metadata=METADATA, spec=_LOCAL_QUEUE),
    ("kueue.x-k8s.io", "ResourceFlavor"): _document(QUEUE, "ResourceFlavor", metadata=METADATA, spec=_FLAVOR),
    ("config.kueue.x-k8s.io", "Configuration"): _document(
        "config.kueue.x-k8s.io/v1beta2",
        "Configuration",
        waitForPodsReady=_PODS_READY,
        integrations=_object("frameworks", frameworks=_list(TEXT)),
    ),
    ("external-secrets.io", "ExternalSecret"): _document(
        "external-secrets.io/v1", "ExternalSecret", metadata=METADATA, spec=_EXTERNAL_SECRET
    ),
}
"""(group, kind) -> JSON Schema of a whole document."""
