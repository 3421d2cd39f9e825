"""What each task asks of the cluster, in one table, and how its pod runs."""

from dataclasses import dataclass

from kfp import dsl, kubernetes

from components.sites import ADDRESSES, REGISTRIES, SIGNING, SITE, TOKENS, Site
from geartrain.cluster import naming
from geartrain.cluster.conclusion import ENDPOINT
from geartrain.cluster.jobs import JOBS
from geartrain.cluster.owner import POD, POD_UID
from geartrain.cluster.step import LAUNCH_ONLY
from geartrain.lineage.origin import NAMESPACE, RUN_ID
from geartrain.supply.registration import LATER
from geartrain.supply.signing import KEY
from geartrain.withdrawals import FOLDER, PLACES

NOBODY = 65532
"""User and group of the image; a number, for the kubelet cannot tell whether a user by name is root."""
WORK, TEMPORARY = "/work", "/tmp"  # noqa: S108 - mount points in the pod
RUN_LABEL_OF_KUBEFLOW = "metadata.labels['pipeline/runid']"
TOLD = {RUN_ID: RUN_LABEL_OF_KUBEFLOW, NAMESPACE: "metadata.namespace"}
"""What every step's lineage says of where it ran."""


@dataclass(frozen=True)
class Resources:
    """Requests and limits of one task; memory is limited to what it requests, so that a node is never overdrawn."""

    cpu: str
    memory: str
    scratch: str = "2Gi"
    """Largest size of what it writes before that is uploaded: checkpoints, and its output once more. Kubeflow cannot
    request ephemeral storage (kubeflow/pipelines#11137)."""
    accelerator: str = ""
    """Resource of the device plug-in, such as nvidia.com/gpu."""
    accelerators: int = 0
    retries: int = 2


SMALL = Resources(cpu="500m", memory="1G", scratch="1Gi")
LIGHT = Resources(cpu="1", memory="2G")
TRAINING = Resources(cpu="2", memory="6G", scratch="10Gi")
TABLE = {
    "resolve": SMALL,
    "tasks": LIGHT,
    "warm-start": TRAINING,
    "collect": TRAINING,
    "preferences": LIGHT,
    "reward-model": TRAINING,
    "critic": TRAINING,
    "policy": TRAINING,
    "evaluation": TRAINING,
    "promotion": LIGHT,
    "register": SMALL,
    "conclude": SMALL,
}
"""In its own pod every stage trains and plays on CPUs."""
NODES = {"policy": Resources(cpu="64", memory="900Gi", scratch="20Gi", accelerator="nvidia.com/gpu", accelerators=8)}
"""Rows of a site that launches: what each node of the training job gets, unless `cluster` says otherwise. The same
as in k8s/components/gpu/node.yaml."""
UNCACHED = frozenset({"resolve", "register", "conclude"})
"""They look at the world or act on it."""
VARIABLES = {
    "GOMP_SPINCOUNT": "20000",
    "HF_HUB_OFFLINE": "1",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Must be set before torch and tokenizers are loaded."""
API = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
KEYS = "/etc/geartrain/signing"
"""Where the step that promotes finds the Secret with the key; an empty folder if there is none."""
TOMBSTONES = "geartrain-withdrawn"
"""ConfigMap with the files of data/withdrawn: what was withdrawn since the image was built. It need not be there."""
WITHDRAWN = "/etc/geartrain/withdrawn"
"""Where every step finds it; an empty folder if there is none."""
STONES = f"/app/{FOLDER}:{WITHDRAWN}"
"""Both count: the image's, and the ConfigMap's."""
UNREACHABLE = {ENDPOINT: API, LAUNCH_ONLY: "1", KEY: KEYS, PLACES: STONES}
"""Make sense on a cluster only; `local` takes them away."""
POD_VARIABLES = {"GEARTRAIN_HOME": WORK, **UNREACHABLE}
"""Make sense in a pod, or in a container, only."""


def sized(task: dsl.PipelineTask, site: Site = SITE) -> dsl.PipelineTask:
    """Give a task its row of the table; a task without one is a KeyError when the pipeline is compiled."""
    name = task.name
    row = NODES.get(name, TABLE[name]) if site.launches else TABLE[name]
    task.set_cpu_request(row.cpu).set_memory_request(row.memory).set_memory_limit(row.memory)
    if row.accelerators:
        task.set_accelerator_type(row.accelerator).set_accelerator_limit(row.accelerators)
    # Kubeflow cannot tell a user error from others. A repeated step is a new pod: its checkpoints are gone with /work
    task.set_retry(num_retries=row.retries, backoff_duration="30s", backoff_factor=2.0, backoff_max_duration="10m")
    task.set_caching_options(name not in UNCACHED)
    variables = {**VARIABLES, "GEARTRAIN_HOME": WORK, PLACES: STONES}
    if name == "conclude":
        variables[ENDPOINT] = API
    launches = name in {stage.replace("_", "-") for stage in JOBS}
    fields = {**TOLD, **({POD: "metadata.name", POD_UID: "metadata.uid"} if launches else {})}
    for variable, field in fields.items():
        kubernetes.use_field_path_as_env(task, variable, field)
    if name in NODES and site.launches:
        variables[LAUNCH_ONLY] = "1"
    if name == "promotion":
        variables |= {KEY: KEYS, LATER: "1"}
    (first, value), *others = variables.items()
    task.set_env_variable(first, value)  # looks at the whole stack, 0.04 s; so once is enough
    task.container_spec.env.update(others)
    _entrusted(task)
    return _housed(task, row, site)


def _entrusted(task: dsl.PipelineTask) -> None:
    """Give the key that signs to the step that promotes, what registries ask for to the step that registers."""
    if task.name == "promotion":
        kubernetes.use_secret_as_volume(task, SIGNING, KEYS, optional=True)
    if task.name == "register":
        kubernetes.use_config_map_as_env(task, REGISTRIES, {name: name for name in ADDRESSES}, optional=True)
        kubernetes.use_secret_as_env(task, REGISTRIES, dict(TOKENS), optional=True)


def _housed(task: dsl.PipelineTask, row: Resources, site: Site) -> dsl.PipelineTask:
    """Say how the task's pod runs. A read-only root file system and the pod's account are not Kubeflow's to set."""
    kubernetes.set_security_context(task, run_as_user=NOBODY, run_as_group=NOBODY, run_as_non_root=True)
    labels = {naming.PART_OF_LABEL: naming.PIPELINE, naming.PIPELINE_LABEL: naming.PIPELINE}
    for key, value in {**labels, naming.STAGE_LABEL: naming.label_value(task.name)}.items():
        kubernetes.add_pod_label(task, key, value)
    kubernetes.empty_dir_mount(task, "work", WORK, size_limit=row.scratch)
    kubernetes.empty_dir_mount(task, "tmp", TEMPORARY, size_limit="1Gi")
    kubernetes.use_config_map_as_volume(task, TOMBSTONES, WITHDRAWN, optional=True)
    for secret, keys in site.secrets.items():
        kubernetes.use_secret_as_env(task, secret, dict(keys), optional=True)
    for config_map, keys in site.config_maps.items():
        kubernetes.use_config_map_as_env(task, config_map, dict(keys), optional=True)
    for key, value in site.node_selector.items():
        kubernetes.add_node_selector(task, key, value)
    for toleration in site.tolerations:
        kubernetes.add_toleration_json(task, dict(toleration))
    return task
