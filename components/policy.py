"""Kubeflow shell of stage `policy`: policy optimisation with weighted credit, here or as a training job."""

from typing import Any

from kfp import dsl

from components.images import IMAGE
from components.sites import HANDED_ON


@dsl.component(base_image=IMAGE, install_kfp_package=False, task_config_passthroughs=HANDED_ON)
def policy(
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    seed: int,
    threads: int,
    model: dict[str, Any],
    environment: dict[str, Any],
    settings: dict[str, Any],
    cluster: dict[str, Any],
    task_config: dsl.TaskConfig,
    tasks: dsl.Input[dsl.Dataset],
    warm_start: dsl.Input[dsl.Model],
    preferences: dsl.Input[dsl.Dataset],
    reward_model: dsl.Input[dsl.Model],
    critic: dsl.Input[dsl.Model],
    policy: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; where `cluster` says something, as a job that it describes."""
    from geartrain.cluster.step import run_or_launch
    from geartrain.stages.policy import run

    record = {"seed": seed, "threads": threads, "model": model, "environment": environment, "policy": settings}
    made = {"preferences": preferences, "reward_model": reward_model, "critic": critic}
    inputs = {"tasks": tasks, "warm_start": warm_start, **made}
    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    run_or_launch(run, record, inputs, policy, metrics, marks, cluster=cluster, task_config=task_config)
