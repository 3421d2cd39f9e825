"""Kubeflow shell of stage `reward_model`: reward model trained on the pairs, here or as a training job."""

from typing import Any

from kfp import dsl

from components.images import IMAGE
from components.sites import OFFERED


@dsl.component(base_image=IMAGE, install_kfp_package=False, task_config_passthroughs=OFFERED)
def reward_model(
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    seed: int,
    threads: int,
    settings: dict[str, Any],
    data: dict[str, Any],
    cluster: dict[str, Any],
    task_config: dsl.TaskConfig,
    preferences: dsl.Input[dsl.Dataset],
    reward_model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; where `cluster` says something, as a job that it describes."""
    from geartrain.cluster.step import run_or_launch
    from geartrain.stages.reward_model import run

    record = {"seed": seed, "threads": threads, "reward_model": settings}
    inputs = {"preferences": preferences}
    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    run_or_launch(
        run, record, inputs, reward_model, metrics, marks, data=data, cluster=cluster, task_config=task_config
    )
