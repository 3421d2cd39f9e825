"""Kubeflow shell of stage `preferences`: preference pairs from verified siblings."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def preferences(
    seed: int,
    threads: int,
    settings: dict[str, Any],
    tasks: dsl.Input[dsl.Dataset],
    collect: dsl.Input[dsl.Dataset],
    preferences: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from pathlib import Path

    from geartrain.config import parse_config
    from geartrain.metrics import flatten
    from geartrain.stages.preferences import run

    record = {"seed": seed, "threads": threads, "preferences": settings}
    inputs = dict(tasks=tasks.path, collect=collect.path)
    config = parse_config(record, source="task preferences")
    outputs = {"preferences": Path(preferences.path)}
    numbers = run(config, {name: Path(path) for name, path in inputs.items()}, outputs)
    for name, value in flatten(numbers).items():
        metrics.log_metric(name, value)
