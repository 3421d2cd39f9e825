"""Kubeflow shell of stage `reward_model`: reward model trained on the pairs."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def reward_model(
    seed: int,
    threads: int,
    settings: dict[str, Any],
    preferences: dsl.Input[dsl.Dataset],
    reward_model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from pathlib import Path

    from geartrain.config import parse_config
    from geartrain.metrics import flatten
    from geartrain.stages.reward_model import run

    record = {"seed": seed, "threads": threads, "reward_model": settings}
    inputs = dict(preferences=preferences.path)
    config = parse_config(record, source="task reward_model")
    outputs = {"reward_model": Path(reward_model.path)}
    numbers = run(config, {name: Path(path) for name, path in inputs.items()}, outputs)
    for name, value in flatten(numbers).items():
        metrics.log_metric(name, value)
