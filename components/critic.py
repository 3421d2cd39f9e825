"""Kubeflow shell of stage `critic`: sibling critic: credit of a step."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def critic(
    seed: int,
    threads: int,
    model: dict[str, Any],
    settings: dict[str, Any],
    warm_start: dsl.Input[dsl.Model],
    collect: dsl.Input[dsl.Dataset],
    critic: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from pathlib import Path

    from geartrain.config import parse_config
    from geartrain.metrics import flatten
    from geartrain.stages.critic import run

    record = {"seed": seed, "threads": threads, "model": model, "critic": settings}
    inputs = dict(warm_start=warm_start.path, collect=collect.path)
    config = parse_config(record, source="task critic")
    outputs = {"critic": Path(critic.path)}
    numbers = run(config, {name: Path(path) for name, path in inputs.items()}, outputs)
    for name, value in flatten(numbers).items():
        metrics.log_metric(name, value)
