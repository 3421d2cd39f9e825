"""Kubeflow shell of stage `promotion`: the gate: the policy is promoted, or the reasons why not are recorded."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def promotion(
    seed: int,
    threads: int,
    settings: dict[str, Any],
    policy: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    promotion: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Run the stage on artifacts that Kubeflow carries; `settings` is its own section of the configuration."""
    from pathlib import Path

    from geartrain.config import parse_config
    from geartrain.metrics import flatten
    from geartrain.stages.promotion import run

    record = {"seed": seed, "threads": threads, "promotion": settings}
    inputs = dict(policy=policy.path, evaluation=evaluation.path)
    config = parse_config(record, source="task promotion")
    outputs = {"promotion": Path(promotion.path)}
    numbers = run(config, {name: Path(path) for name, path in inputs.items()}, outputs)
    for name, value in flatten(numbers).items():
        metrics.log_metric(name, value)
