"""Kubeflow shell of stage `policy`: policy optimisation with weighted credit."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def policy(
    seed: int,
    threads: int,
    model: dict[str, Any],
    environment: dict[str, Any],
    settings: dict[str, Any],
    tasks: dsl.Input[dsl.Dataset],
    warm_start: dsl.Input[dsl.Model],
    reward_model: dsl.Input[dsl.Model],
    critic: dsl.Input[dsl.Model],
    policy: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from pathlib import Path

    from geartrain.config import parse_config
    from geartrain.metrics import flatten
    from geartrain.stages.policy import run

    record = {"seed": seed, "threads": threads, "model": model, "environment": environment, "policy": settings}
    inputs = dict(tasks=tasks.path, warm_start=warm_start.path, reward_model=reward_model.path, critic=critic.path)
    config = parse_config(record, source="task policy")
    outputs = {"policy": Path(policy.path)}
    numbers = run(config, {name: Path(path) for name, path in inputs.items()}, outputs)
    for name, value in flatten(numbers).items():
        metrics.log_metric(name, value)
