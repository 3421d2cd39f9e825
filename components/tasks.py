"""Kubeflow shell of stage `tasks`: task sets of every split, and the worlds they are played in."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def tasks(
    seed: int,
    threads: int,
    environment: dict[str, Any],
    settings: dict[str, Any],
    tasks: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from pathlib import Path

    from geartrain.config import parse_config
    from geartrain.metrics import flatten
    from geartrain.stages.tasks import run

    record = {"seed": seed, "threads": threads, "environment": environment, "tasks": settings}
    config = parse_config(record, source="task tasks")
    outputs = {"tasks": Path(tasks.path)}
    numbers = run(config, {}, outputs)
    for name, value in flatten(numbers).items():
        metrics.log_metric(name, value)
