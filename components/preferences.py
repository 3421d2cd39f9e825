"""Kubeflow shell of stage `preferences`: preference pairs from verified siblings."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def preferences(
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    seed: int,
    threads: int,
    settings: dict[str, Any],
    data: dict[str, Any],
    tasks: dsl.Input[dsl.Dataset],
    collect: dsl.Input[dsl.Dataset],
    preferences: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from geartrain.cluster.step import run_step
    from geartrain.stages.preferences import run

    record = {"seed": seed, "threads": threads, "preferences": settings}
    inputs = {"tasks": tasks, "collect": collect}
    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    run_step(run, record, inputs, preferences, metrics, marks, data=data)
