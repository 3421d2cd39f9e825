"""Kubeflow step `resolve`: what this run is made from, by content. Always runs, and fails before any work is done."""

from typing import Any, NamedTuple

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def resolve(
    image: str,
    dataset_rev: str,
    data: dict[str, Any],
    model: dict[str, Any],
    environment: dict[str, Any],
    preferences: dict[str, Any],
    reward_model: dict[str, Any],
    critic: dict[str, Any],
) -> NamedTuple("Resolved", [("dataset_digest", str), ("image_digest", str)]):  # type: ignore[valid-type]
    """Return the digests of the data from outside and of the code; the sections are those that name files."""
    from geartrain.cluster.pinned import parse_pins, require_there
    from geartrain.cluster.resolution import dataset_digest, image_digest
    from geartrain.cluster.step import reported, say
    from geartrain.config import parse_config

    with reported("resolve"):
        some, pins = {"model": model, "environment": environment, "preferences": preferences}, parse_pins(data)
        config = parse_config({**some, "reward_model": reward_model, "critic": critic}, source="task resolve")
        outside = dataset_digest(config, dataset_rev, pins)
        require_there(pins)
        code = image_digest(image)
    say(f"resolved: data {outside}, code {code}")
    return (outside, code)
