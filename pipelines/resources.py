"""What each task asks of the cluster, in one table."""

from dataclasses import dataclass

from kfp import dsl


@dataclass(frozen=True)
class Resources:
    """Requests and limits of one task; memory is limited to what it requests, so that a node is never overdrawn."""

    cpu: str
    memory: str
    retries: int = 2


LIGHT = Resources(cpu="1", memory="2G")
TRAINING = Resources(cpu="2", memory="6G")
TABLE = {
    "tasks": LIGHT,
    "warm-start": TRAINING,
    "collect": TRAINING,
    "preferences": LIGHT,
    "reward-model": TRAINING,
    "critic": TRAINING,
    "policy": TRAINING,
    "evaluation": TRAINING,
    "promotion": LIGHT,
}
"""Every stage trains and plays on CPUs today; none asks for a GPU."""
VARIABLES = {
    "GOMP_SPINCOUNT": "20000",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Must be set before torch and tokenizers are loaded."""


def sized(task: dsl.PipelineTask) -> dsl.PipelineTask:
    """Give a task its row of the table; a task without one is a KeyError when the pipeline is compiled."""
    row = TABLE[task.name]
    task.set_cpu_request(row.cpu).set_memory_request(row.memory).set_memory_limit(row.memory)
    # a stage resumes from its checkpoint, so a retry repeats little; Kubeflow cannot tell a user error from others
    task.set_retry(num_retries=row.retries, backoff_duration="30s", backoff_factor=2.0, backoff_max_duration="10m")
    for name, value in VARIABLES.items():
        task.set_env_variable(name, value)
    return task
