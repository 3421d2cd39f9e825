"""Cells of Markdown tables; what is not known is blank."""

from collections.abc import Mapping
from typing import Any

Table = Mapping[str, Any]


def number(value: float | None) -> str:
    """Write three digits."""
    return "" if value is None else f"{value:.3g}"


def points(value: float) -> str:
    """Write a share as points."""
    return f"{100 * value:.1f}"


def spread(value: Table | None) -> str:
    """Write a mean over seeds, and the lowest and highest seed where there are several."""
    if value is None:
        return ""
    if value["deviation"] is None:
        return f"{100 * value['mean']:.1f} %"
    return f"{100 * value['mean']:.1f} % ({100 * value['low']:.1f} to {100 * value['high']:.1f})"


def interval(gain: Table | None) -> str:
    """Write a gain in points, with its interval."""
    if not gain:
        return ""
    return f"{100 * gain['estimate']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"
