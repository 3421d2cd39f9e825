"""Kubeflow shell of stage `promotion`: the gate: the policy is promoted, or the reasons why not are recorded."""

from typing import Any

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def promotion(
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    seed: int,
    threads: int,
    settings: dict[str, Any],
    policy: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    promotion: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> bool:
    """Run the stage on artifacts that Kubeflow carries; return its verdict, on which the next step depends."""
    from geartrain.cluster.step import run_step
    from geartrain.stages.promotion import run

    record = {"seed": seed, "threads": threads, "promotion": settings}
    inputs = {"policy": policy, "evaluation": evaluation}
    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    numbers = run_step(run, record, inputs, promotion, metrics, marks)
    return bool(numbers["promoted"])
