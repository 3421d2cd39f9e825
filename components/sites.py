"""Where the pipeline will run, read when it is compiled: `GEARTRAIN_SITE=prod geartrain compile`.

A site is named after the overlay in `k8s/overlays` that it fits; a team's overlay is `prod` with other numbers.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfp import dsl

from geartrain.errors import UserError


@dataclass(frozen=True)
class Site:
    """What differs between installations."""

    launches: bool = False
    """Whether the policy is always trained by a TrainJob (parameter `cluster`); its own pod has room for a launcher."""
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Secret -> {key: variable} of every step. Optional: with workload identity there are none."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """ConfigMap -> {key: variable} of every step; optional as well."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    """Of every step's pod (of a launching step: handed on to its job), in a pod's own words."""


STORE = {
    name: name
    for name in (
        *("AWS_REGION", "AWS_ENDPOINT_URL", "AWS_REQUEST_CHECKSUM_CALCULATION", "GEARTRAIN_STORE"),
        *("GEARTRAIN_LINEAGE", "GEARTRAIN_CLUSTER_NAME"),
    )
}
"""What an overlay may say of its store: where artifacts lie, where lineage events are copied to, under which name."""
SIGNING = "geartrain-signing"
"""Secret of the step that promotes, as files: `signing.key.pem` signs the model. Without it, models are not signed."""
REGISTRIES = "geartrain-registries"
"""ConfigMap and Secret of the step that registers; neither has to be there."""
ADDRESSES = ("MLFLOW_TRACKING_URI", "GEARTRAIN_MODEL_REGISTRY")
"""What the ConfigMap may say: where the registries are."""
TOKENS = {"mlflow-token": "MLFLOW_TRACKING_TOKEN"}
"""Key of the Secret -> variable."""
SITES = {
    "dev": Site(
        secrets={"mlpipeline-minio-artifact": {"accesskey": "AWS_ACCESS_KEY_ID", "secretkey": "AWS_SECRET_ACCESS_KEY"}},
        config_maps={"geartrain-storage": STORE},
    ),
    "prod": Site(
        launches=True,
        # Kubeflow's launcher reads these variables ("fromEnv"); reading the Secret itself would need a right to it
        secrets={"geartrain-s3": {"access-key-id": "AWS_ACCESS_KEY_ID", "secret-access-key": "AWS_SECRET_ACCESS_KEY"}},
        config_maps={"geartrain-storage": STORE},
    ),
}
"""Neither pins steps to nodes: GPU nodes are found by Kueue's ResourceFlavor, all others do for the rest."""
VARIABLE = "GEARTRAIN_SITE"


def chosen(name: str) -> Site:
    """Return the site of that name. Raises UserError: there is none."""
    if name not in SITES:
        raise UserError(f"{VARIABLE}={name}: no such site; there are {', '.join(SITES)} (components/sites.py)")
    return SITES[name]


SITE = chosen(os.environ.get(VARIABLE, "dev"))
_FIELDS = dsl.TaskConfigField
_VOLUMES = _FIELDS.KUBERNETES_VOLUMES


def _passed(*, applied: bool) -> list[dsl.TaskConfigPassthrough]:
    """Return what Kubeflow gives to a step as its TaskConfig; `applied`: its own pod gets it, too."""
    placed = (_FIELDS.RESOURCES, _FIELDS.KUBERNETES_TOLERATIONS, _FIELDS.KUBERNETES_NODE_SELECTOR)
    shared = [dsl.TaskConfigPassthrough(field=entry, apply_to_task=applied) for entry in placed]
    # the volume of tombstones: a job's pods mount their own, the runtime's
    own = [dsl.TaskConfigPassthrough(field=field, apply_to_task=True) for field in (_FIELDS.ENV, _VOLUMES)]
    return [*shared, *own]


HANDED_ON = _passed(applied=not SITE.launches)
"""Of the policy; the compiler refuses a task that sets more. Where a site launches, the step's own pod gets only the
variables: it would hold the GPUs that its job waits for."""
OFFERED = _passed(applied=True)
"""Of a stage that a run may give to a job, or not: the step's pod has room for the stage itself, whoever runs it."""
