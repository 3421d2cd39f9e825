"""Kubeflow shell of stage `warm_start`: supervised start of the policy."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def warm_start(
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    seed: int,
    threads: int,
    model: dict[str, Any],
    environment: dict[str, Any],
    settings: dict[str, Any],
    data: dict[str, Any],
    tasks: dsl.Input[dsl.Dataset],
    warm_start: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from geartrain.cluster.step import run_step
    from geartrain.stages.warm_start import run

    record = {"seed": seed, "threads": threads, "model": model, "environment": environment, "warm_start": settings}
    inputs = {"tasks": tasks}
    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    run_step(run, record, inputs, warm_start, metrics, marks, data=data)
