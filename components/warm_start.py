"""Kubeflow shell of stage `warm_start`: supervised start of the policy."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def warm_start(
    seed: int,
    threads: int,
    model: dict[str, Any],
    environment: dict[str, Any],
    settings: dict[str, Any],
    tasks: dsl.Input[dsl.Dataset],
    warm_start: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from pathlib import Path

    from geartrain.config import parse_config
    from geartrain.metrics import flatten
    from geartrain.stages.warm_start import run

    record = {"seed": seed, "threads": threads, "model": model, "environment": environment, "warm_start": settings}
    inputs = dict(tasks=tasks.path)
    config = parse_config(record, source="task warm_start")
    outputs = {"warm_start": Path(warm_start.path)}
    numbers = run(config, {name: Path(path) for name, path in inputs.items()}, outputs)
    for name, value in flatten(numbers).items():
        metrics.log_metric(name, value)
