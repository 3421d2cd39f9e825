"""Kubeflow shell of stage `reward_model`: reward model trained on the pairs."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def reward_model(
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    seed: int,
    threads: int,
    settings: dict[str, Any],
    preferences: dsl.Input[dsl.Dataset],
    reward_model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from geartrain.cluster.step import run_step
    from geartrain.stages.reward_model import run

    record = {"seed": seed, "threads": threads, "reward_model": settings}
    inputs = {"preferences": preferences}
    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    run_step(run, record, inputs, reward_model, metrics, marks)
