"""Kubeflow shell of stage `critic`: sibling critic: credit of a step, here or as a training job."""

from typing import Any

from kfp import dsl

from components.images import IMAGE
from components.sites import OFFERED


@dsl.component(base_image=IMAGE, install_kfp_package=False, task_config_passthroughs=OFFERED)
def critic(
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    seed: int,
    threads: int,
    model: dict[str, Any],
    settings: dict[str, Any],
    data: dict[str, Any],
    cluster: dict[str, Any],
    task_config: dsl.TaskConfig,
    warm_start: dsl.Input[dsl.Model],
    collect: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    critic: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; where `cluster` says something, as a job that it describes."""
    from geartrain.cluster.step import run_or_launch
    from geartrain.stages.critic import run

    record = {"seed": seed, "threads": threads, "model": model, "critic": settings}
    inputs = {"warm_start": warm_start, "collect": collect, "preferences": preferences}
    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    run_or_launch(run, record, inputs, critic, metrics, marks, data=data, cluster=cluster, task_config=task_config)
