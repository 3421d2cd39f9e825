"""Learning curves at equal environment steps: level, area, first crossing, band over seeds (all ours).

A curve is read linearly between the points where it was measured, and is never
continued beyond the last: what was not played is not known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Curve:
    """Success by environment steps (agent turns played in training); x ascending, at least one point."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    @property
    def end(self) -> float:
        """Environment steps at the last point."""
        return self.x[-1]


OF_TRAINING = ("success", "plan_success", "do_success")
"""Measured on the episodes that an iteration trains on."""


def learning_curve(history: Sequence[Mapping[str, Any]], name: str) -> Curve | None:
    """Return a curve of the policy's history; None where it was never measured.

    `val_*` is measured after an iteration's update, and once before the first; what is of the training episodes belongs
    to the policy before the update.
    """
    points: list[tuple[float, float]] = []
    steps = 0.0
    for record in history:
        if (start := record.get(f"start_{name}")) is not None:
            points.append((0.0, start))
        before, steps = steps, steps + record["environment_steps"]
        if record.get(name) is not None:
            points.append((before if name in OF_TRAINING else steps, record[name]))
    return Curve(*(tuple(float(p[axis]) for p in points) for axis in (0, 1))) if points else None


def value_at(curve: Curve, x: float) -> float:
    """Return the height at `x`, which lies within the curve. Raises ValueError where it does not."""
    if not curve.x[0] <= x <= curve.end:
        raise ValueError(f"{x:g} environment steps are outside {curve.x[0]:g} to {curve.end:g}")
    return float(np.interp(x, curve.x, curve.y))


def area(curve: Curve, until: float) -> float:
    """Return the mean height from the first point to `until`; the height there if the two are one."""
    start = curve.x[0]
    last = value_at(curve, until)
    if until == start:
        return last
    inside = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if x < until]
    xs, ys = [*(x for x, _ in inside), until], [*(y for _, y in inside), last]
    return float(np.trapezoid(ys, xs) / (until - start))


def steps_to(curve: Curve, level: float) -> float | None:
    """Return the environment steps at the first crossing of `level`; None where it is not reached (censored)."""
    for index, (x, y) in enumerate(zip(curve.x, curve.y, strict=True)):
        if y >= level:
            if index == 0:
                return x
            x0, y0 = curve.x[index - 1], curve.y[index - 1]
            return x0 + (level - y0) / (y - y0) * (x - x0)
    return None


def median_steps(reached: Sequence[float | None]) -> float | None:
    """Return the median with censored seeds above all others; None where the median itself is censored.

    Of an even number of seeds the upper middle one counts, so that no value is made up from a censored one.
    """
    ordered = sorted(reached, key=lambda steps: (steps is None, steps or 0.0))
    return ordered[len(ordered) // 2] if ordered else None


@dataclass(frozen=True)
class Band:
    """Mean over seeds with the lowest and the highest seed, on a common grid."""

    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    deviation: float
    """Standard deviation over seeds, averaged over the grid; 0 of one seed."""


def band(curves: Sequence[Curve], points: int = 41) -> Band:
    """Return the band of several seeds, from where all have begun to where the first has ended."""
    start, end = max(curve.x[0] for curve in curves), min(curve.end for curve in curves)
    grid = np.linspace(start, max(start, end), points if end > start else 1)
    table = np.array([np.interp(grid, curve.x, curve.y) for curve in curves])
    spread = float(table.std(axis=0, ddof=1).mean()) if len(curves) > 1 else 0.0
    rows = (grid, table.mean(axis=0), table.min(axis=0), table.max(axis=0))
    x, mean, low, high = (tuple(np.round(row, 6).tolist()) for row in rows)
    return Band(x, mean, low, high, round(spread, 6))
