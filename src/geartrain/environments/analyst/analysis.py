"""The operations of `analyze_data`: a column of numbers in, one (label, value) out."""

import math
from collections.abc import Callable, Sequence

from geartrain.environments.analyst.query import Table
from geartrain.environments.tools import NUMBER_LIMIT, ToolError, clip

Point = tuple[str | None, float]
"""A row reduced to its label (first text cell) and its number."""


def _top(points: Sequence[Point]) -> Point:
    return max(points, key=lambda point: point[1])


def _bottom(points: Sequence[Point]) -> Point:
    return min(points, key=lambda point: point[1])


def _total(points: Sequence[Point]) -> Point:
    return None, math.fsum(value for _, value in points)


def _mean(points: Sequence[Point]) -> Point:
    return None, math.fsum(value for _, value in points) / len(points)


def _diff(points: Sequence[Point]) -> Point:
    return None, points[-1][1] - points[0][1]


def _growth(points: Sequence[Point]) -> Point:
    return None, 100.0 * (points[-1][1] - points[0][1]) / _nonzero(points[0][1])


def _share(points: Sequence[Point]) -> Point:
    return None, 100.0 * points[0][1] / _nonzero(points[-1][1])


def _outlier(points: Sequence[Point]) -> Point:
    mean = _mean(points)[1]
    return max(points, key=lambda point: abs(point[1] - mean))


def _nonzero(value: float) -> float:
    if value == 0:
        raise ToolError("division_by_zero", "the value to divide by is 0")
    return value


OPERATIONS: dict[str, tuple[Callable[[Sequence[Point]], Point], int]] = {
    # name: (function, least number of rows)
    "top": (_top, 1),
    "bottom": (_bottom, 1),
    "sum": (_total, 1),
    "mean": (_mean, 1),
    "diff": (_diff, 2),  # last - first
    "growth": (_growth, 2),  # (last - first) in percent of first
    "share": (_share, 2),  # first in percent of last
    "outlier": (_outlier, 3),  # largest absolute z-score; the deviation's scale does not change which
}


def row_point(columns: Sequence[str], row: Sequence[object]) -> tuple[str | None, float | None]:
    """Return a row's label, its first text cell, and its value, its last number."""
    label = next((cell for cell in row if isinstance(cell, str)), None)
    value = next((float(cell) for cell in reversed(row) if isinstance(cell, int | float)), None)
    return label, value


def analyze(tables: Sequence[Table], op: str, column: str) -> Point:
    """Apply `op` to `column` over the rows of all tables, in order. Raises ToolError."""
    points: list[Point] = []
    for table in tables:
        if column not in table.columns:
            raise ToolError("unknown_column", f"no column '{clip(column, 30)}', there is {', '.join(table.columns)}")
        if table.partial:
            raise ToolError("partial_data", "the result was cut; aggregate in SQL")
        index = table.columns.index(column)
        for row in table.rows:
            cell = row[index]
            if not isinstance(cell, int | float) or not abs(cell) <= NUMBER_LIMIT:
                raise ToolError("not_numeric", f"column '{clip(column, 30)}' holds more than ordinary numbers")
            points.append((next((c for c in row if isinstance(c, str)), None), float(cell)))
    function, least = OPERATIONS[op]
    if len(points) < least:
        raise ToolError("too_few_rows", f"{op} needs {least} rows, there are {len(points)}")
    label, value = function(points)
    if not math.isfinite(value):
        raise ToolError("not_numeric", "the result is not finite")
    return label, value
