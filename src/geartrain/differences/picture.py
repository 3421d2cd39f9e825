"""The picture of a difference: rows, groups, strata and numbers, a panel each. Grey is A, blue is B."""

from collections.abc import Callable
from typing import Any

import numpy as np
from markupsafe import Markup

from geartrain.differences.compare import Difference, GroupShift
from geartrain.reporting import svg
from geartrain.reporting.svg import AFTER, BAD, BEFORE, INK, MUTED, SERIES, Axes

WIDTH, PANEL_HEIGHT = 940.0, 270.0
"""CSS pixels."""
MOST_BARS = 10
GRID = 24
"""Groups are drawn at this many places an axis; a dot's area says how many share one."""
NAME = "difference"


def draw(difference: Difference) -> Markup:
    """Return inline SVG for a page with the report's colours."""
    with svg.drawing():
        return svg.to_svg(_figure(difference), name=NAME, label=_label(difference))


def draw_file(difference: Difference) -> str:
    """Return an SVG file that stands alone."""
    with svg.drawing():
        return svg.to_file(_figure(difference), name=NAME, label=_label(difference))


def _label(difference: Difference) -> str:
    return (
        f"{difference.added} rows added, {difference.removed} removed, {difference.changed} changed, "
        f"{difference.unchanged} unchanged"
    )


def _figure(difference: Difference) -> Any:
    panels: list[Callable[[Axes], None]] = [lambda axes: _rows(axes, difference)]
    groups = difference.groups
    if groups is not None and groups.common:
        panels.append(lambda axes: _groups(axes, groups))
    if difference.strata:
        panels.append(lambda axes: _strata(axes, difference))
    if difference.shifts:
        panels.append(lambda axes: _shifts(axes, difference))
    lines = (len(panels) + 1) // 2
    figure = svg.new_figure(WIDTH, PANEL_HEIGHT * lines, room=10)
    grid = figure.subplots(lines, 2, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        panel(axes)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return figure


def _rows(axes: Axes, difference: Difference) -> None:
    sorts = ("unchanged", "changed", "removed", "added")
    counts = [getattr(difference, sort) for sort in sorts]
    axes.barh(sorts, counts, color=[BEFORE, SERIES[1], BAD, SERIES[2]], height=0.6)
    for place, count in enumerate(counts):
        axes.annotate(f"{count:,}", (count, place), (5, 0), textcoords="offset points", va="center", color=INK)
    axes.invert_yaxis()
    axes.set_title("Rows", loc="left", fontsize=10, color=INK)
    _horizontal(axes)
    axes.set_xlim(0, max(1, *counts) * 1.25)
    svg.label_ticks(axes.xaxis, _short)


def _groups(axes: Axes, groups: GroupShift) -> None:
    low, high = float(groups.means.min()), float(groups.means.max())
    step = (high - low) / GRID or 1.0
    places, counts = np.unique(np.round((groups.means - low) / step), axis=0, return_counts=True)
    margin = 0.08 * (high - low or 1)  # a large dot lies within
    ends = (low - margin, high + margin)
    axes.plot(ends, ends, color=MUTED, linewidth=0.75)
    area = 12 + 150 * counts / counts.max()
    at = places * step + low
    axes.scatter(at[:, 0], at[:, 1], s=area, color=AFTER, alpha=0.55, linewidths=0)
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    axes.set_xlabel("A")
    axes.set_ylabel("B")
    title = f"Mean {groups.measure} per {groups.group}: {groups.up:,} rose, {groups.down:,} fell"
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.grid(axis="x")
    svg.limit_ticks(axes.xaxis, 5)
    svg.limit_ticks(axes.yaxis, 5)


def _strata(axes: Axes, difference: Difference) -> None:
    ranked = sorted(difference.strata.items(), key=lambda item: (-abs(item[1][1] - item[1][0]), item[0]))[:MOST_BARS]
    ranked.sort()
    places = range(len(ranked))
    for place, (_, counts) in enumerate(ranked):
        axes.plot(counts, (place, place), color=MUTED, linewidth=1)
    axes.scatter([counts[0] for _, counts in ranked], places, s=34, color=BEFORE, zorder=3)
    axes.scatter([counts[1] for _, counts in ranked], places, s=34, color=AFTER, zorder=4, alpha=0.85)
    axes.set_yticks(places, [value for value, _ in ranked])
    axes.invert_yaxis()
    left = len(difference.strata) - len(ranked)
    title = f"Rows per {difference.stratum}" + (f", the {len(ranked)} that moved most" if left else "")
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    _horizontal(axes)
    axes.set_xlim(0, 1.06 * max(max(counts) for _, counts in ranked))
    axes.margins(y=0.12)
    svg.limit_ticks(axes.xaxis, 5, integer=True)
    svg.label_ticks(axes.xaxis, _short)


def _shifts(axes: Axes, difference: Difference) -> None:
    shown = difference.shifts[:MOST_BARS]
    axes.barh([shift.column for shift in shown], [shift.statistic for shift in shown], color=AFTER, height=0.55)
    for place, shift in enumerate(shown):
        text = f"d = {shift.effect:+.2f}"
        axes.annotate(text, (shift.statistic, place), (5, 0), textcoords="offset points", va="center", color=MUTED)
    axes.invert_yaxis()
    axes.set_title("How far apart the distributions are (0 to 1)", loc="left", fontsize=10, color=INK)
    _horizontal(axes)
    axes.set_xlim(0, min(1.2, max(0.1, 1.25 * shown[0].statistic)))
    svg.limit_ticks(axes.xaxis, 5)


def _horizontal(axes: Axes) -> None:
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")
    axes.tick_params(axis="y", colors=INK)


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
