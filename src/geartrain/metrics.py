"""Metrics of a stage as flat numbers, for places that take only those."""

import math
from collections.abc import Mapping
from typing import Any


def flatten(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of nested metrics under dotted names; texts, lists and None are left out."""
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{inner}": number for inner, number in flatten(value).items()})
        elif isinstance(value, int | float) and math.isfinite(value):
            flat[name] = float(value)
    return flat
