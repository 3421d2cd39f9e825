"""The Workflow that a launching step is part of: the job that it creates is garbage collected with that.

Not with the step's pod: a repeated step is another pod, and adopts the job. The pod's own owner is the Workflow, and
carries the one thing that no variable of the pod can: its uid.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from geartrain.cluster.interface import Manifest, NotFoundError
from geartrain.cluster.trainjob import Owner
from geartrain.errors import GeartrainError

POD, POD_UID = "GEARTRAIN_POD", "GEARTRAIN_POD_UID"
"""Variables that the downward API fills."""
_GROUP, _KIND = "argoproj.io/", "Workflow"


class Pods(Protocol):
    """The pods of the namespace that the job is created in; `api.Kubernetes` answers it."""

    def pod(self, name: str) -> Manifest:
        """Return a pod. Raises NotFoundError."""
        ...


def find_owner(pods: Pods, environment: Mapping[str, str]) -> tuple[Owner | None, str]:
    """Return the Workflow of the pod that this process runs in, or None and why there is none to name.

    A pod is ours only if its uid is: another namespace may have one of the same name, and an owner in another namespace
    counts as gone, so that Kubernetes would delete the job at once.

    Args:
        pods: those of the job's namespace.
        environment: this process's.
    """
    name, uid = environment.get(POD), environment.get(POD_UID)
    if not name or not uid:
        return None, f"{POD} and {POD_UID} are not set: this is no step of a pipeline that we compiled"
    try:
        metadata: Mapping[str, Any] = pods.pod(name).get("metadata") or {}
    except NotFoundError:
        metadata = {}
    except GeartrainError as error:
        return None, f"pod {name} could not be looked at: {error}"
    if metadata.get("uid") != uid:
        return None, f"pod {name} is not in the namespace of the job"
    for entry in metadata.get("ownerReferences") or ():
        if entry.get("kind") == _KIND and str(entry.get("apiVersion")).startswith(_GROUP):
            return Owner(entry["apiVersion"], _KIND, entry["name"], entry["uid"]), ""
    return None, f"pod {name} is no part of a Workflow"
