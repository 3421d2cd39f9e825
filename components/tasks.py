"""Kubeflow shell of stage `tasks`: task sets of every split, and the worlds they are played in."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def tasks(
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    seed: int,
    threads: int,
    environment: dict[str, Any],
    settings: dict[str, Any],
    data: dict[str, Any],
    tasks: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from geartrain.cluster.step import run_step
    from geartrain.stages.tasks import run

    record = {"seed": seed, "threads": threads, "environment": environment, "tasks": settings}
    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    run_step(run, record, {}, tasks, metrics, marks, data=data)
