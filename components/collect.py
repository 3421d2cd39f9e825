"""Kubeflow shell of stage `collect`: sibling rollouts of the warm-started policy."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def collect(
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    seed: int,
    threads: int,
    model: dict[str, Any],
    environment: dict[str, Any],
    settings: dict[str, Any],
    tasks: dsl.Input[dsl.Dataset],
    warm_start: dsl.Input[dsl.Model],
    collect: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from geartrain.cluster.step import run_step
    from geartrain.stages.collect import run

    record = {"seed": seed, "threads": threads, "model": model, "environment": environment, "collect": settings}
    inputs = {"tasks": tasks, "warm_start": warm_start}
    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    run_step(run, record, inputs, collect, metrics, marks)
