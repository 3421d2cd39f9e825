"""The report's figures. Each function draws one, at a given width in CSS pixels, and returns inline SVG.

Lines are labelled at their ends, bars beside them: a legend makes the eye
travel. Colours mean the same everywhere: grey is before, blue is after.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from geartrain.reporting import svg
from geartrain.reporting.svg import AFTER, BEFORE, INK, MUTED, SURFACE, Axes
from geartrain.wording import percent

Rate = Mapping[str, float]
"""An estimate with `low` and `high`."""


@dataclass(frozen=True)
class Line:
    """One series: label, colour, points, and whether single points are marked."""

    label: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    marked: bool = False
    faint: bool = False


def line_figure(
    lines: Sequence[Line],
    *,
    width: float,
    height: float,
    name: str,
    label: str,
    x_label: str = "",
    shares: bool = False,
    baseline: float | None = None,
    mark: tuple[float, str] | None = None,
) -> Markup:
    """Draw lines over a common x.

    Args:
        lines: at least one; each needs a point.
        width, height: in CSS pixels.
        name: prefix of the ids.
        label: for screen readers.
        x_label: name of the x axis.
        shares: whether y is a share, shown in percent from 0.
        baseline: value of a thin horizontal line, such as 0.
        mark: (x, text) of a vertical line.
    """
    with svg.drawing():
        figure = svg.new_figure(width, height)
        axes = figure.subplots()
        for line in lines:
            marker: dict[str, Any] = {
                "marker": "o",
                "markersize": 4.5,
                "markeredgecolor": SURFACE,
                "markeredgewidth": 1,
            }
            style = marker if line.marked or len(line.x) == 1 else {}
            axes.plot(line.x, line.y, color=line.colour, alpha=0.45 if line.faint else 1.0, **style)
        if baseline is not None:
            axes.axhline(baseline, color=MUTED, linewidth=0.75)
        if shares:
            top = max(max(line.y) for line in lines)
            axes.set_ylim(0, min(1.04, max(0.1, top * 1.2)))
            svg.label_ticks(axes.yaxis, lambda value: f"{100 * value:.3g} %")
        else:
            _honest_range(axes, lines)
        svg.limit_ticks(axes.yaxis, 4)
        svg.limit_ticks(axes.xaxis, 4 if width < 400 else 7, integer=True)
        axes.margins(x=0.02)
        axes.set_xlabel(x_label)
        if mark is not None:
            _vertical_mark(axes, *mark)
        _end_labels(axes, lines, height, shares)
        return svg.to_svg(figure, name=name, label=label)


def comparison_figure(rows: Sequence[tuple[str, Rate, Rate, Rate]], *, width: float, name: str, label: str) -> Markup:
    """Draw success before and after, with intervals, a row per split and decoding.

    Args:
        rows: (label, before, after, gain).
        width: in CSS pixels.
        name: prefix of the ids.
        label: for screen readers.
    """
    with svg.drawing():
        axes = _rows_axes(width, len(rows), row_height=52)
        for row, (title, before, after, gain) in enumerate(rows):
            axes.text(0, row - 0.33, title, color=INK, va="center", weight="bold", transform=_from_left(axes))
            unit = " points" if width > 400 else ""
            shown = f"{100 * gain['estimate']:+.1f}{unit} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"
            axes.text(1, row - 0.33, shown, color=INK, va="center", ha="right", transform=_from_left(axes))
            for rate, colour, offset in ((before, BEFORE, 0.0), (after, AFTER, 0.24)):
                y = row + offset
                axes.plot([rate["low"], rate["high"]], [y, y], color=colour, linewidth=5, alpha=0.28)
                axes.plot(rate["estimate"], y, "o", color=colour, markersize=7.5, mec=SURFACE, mew=1.25)
        _name_the_dots(axes, rows[0], room=0.1 if width > 400 else 0.25)
        _percent_axis(axes)
        return svg.to_svg(axes.figure, name=name, label=label)  # type: ignore[arg-type]


def families_figure(rows: Sequence[Mapping[str, Any]], *, width: float, name: str, label: str) -> Markup:
    """Draw success before and after per task family, as bars with intervals; rows as `compare_families` gives."""
    with svg.drawing():
        axes = _rows_axes(width, len(rows), row_height=52)
        for row, record in enumerate(rows):
            title = record["family"].replace("_", " ")
            axes.text(0, row - 0.36, title, color=INK, va="center", weight="bold", transform=_from_left(axes))
            ends = percent(record["before"]["estimate"]), percent(record["after"]["estimate"])
            tasks = f"{record['tasks']} task{'s' if record['tasks'] != 1 else ''}"
            shown = f"{tasks}: {ends[0]} to {ends[1]}"
            axes.text(1, row - 0.36, shown, color=MUTED, va="center", ha="right", transform=_from_left(axes))
            for role, colour, offset in (("before", BEFORE, -0.07), ("after", AFTER, 0.19)):
                rate, y = record[role], row + offset
                axes.barh(y, rate["estimate"], height=0.22, color=colour, alpha=0.9)
                axes.plot([rate["low"], rate["high"]], [y, y], color=INK, linewidth=1, alpha=0.65)
        _percent_axis(axes)
        return svg.to_svg(axes.figure, name=name, label=label)  # type: ignore[arg-type]


def both_widths(draw: Callable[[float, str], Markup]) -> Markup:
    """Draw a figure for wide and for narrow pages; the page's style shows one of the two."""
    wide, narrow = draw(1000, "wide"), draw(350, "narrow")
    return Markup('<div class="only-wide">{}</div><div class="only-narrow">{}</div>').format(wide, narrow)


def _honest_range(axes: Axes, lines: Sequence[Line]) -> None:
    """Keep rounding noise from filling the panel, and the axis from going below 0 where nothing does."""
    low, high = (pick(pick(line.y) for line in lines) for pick in (min, max))
    if high - low < 1e-3 * max(abs(low), abs(high), 1e-9):
        room = 0.1 * abs(high) or 1.0
        axes.set_ylim(low - room, high + room)
    if low >= 0:
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))


def _rows_axes(width: float, rows: int, *, row_height: float) -> Axes:
    figure = svg.new_figure(width, rows * row_height + 34)
    axes: Axes = figure.subplots()
    axes.set_ylim(rows - 0.5, -0.62)
    axes.set_yticks([])
    axes.grid(visible=True, axis="x")
    return axes


def _percent_axis(axes: Axes) -> None:
    axes.set_xlim(-0.005, 1.005)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    svg.label_ticks(axes.xaxis, percent)
    axes.spines.bottom.set_visible(False)


def _from_left(axes: Axes) -> Any:
    """Return coordinates whose x is a share of the axes and whose y is a row."""
    return axes.get_yaxis_transform()


def _name_the_dots(axes: Axes, first: tuple[str, Rate, Rate, Rate], room: float) -> None:
    """Write "before" left and "after" right of the first row's intervals, or on the other side where room lacks."""
    for rate, text, colour, y in ((first[1], "before", BEFORE, 0.0), (first[2], "after", AFTER, 0.24)):
        right = rate["low"] < room if text == "before" else rate["high"] < 1 - room
        x = rate["high"] + 0.015 if right else rate["low"] - 0.015
        axes.text(x, y, text, color=colour, va="center", ha="left" if right else "right", weight="bold")


def _vertical_mark(axes: Axes, x: float, text: str) -> None:
    axes.axvline(x, color=MUTED, linewidth=1, linestyle=(0, (2, 3)))
    low, high = axes.get_xlim()
    left = x < (low + high) / 2
    offset, side = (5, "left") if left else (-5, "right")
    axes.annotate(
        text, (x, 0), xycoords=("data", "axes fraction"), xytext=(offset, 6), textcoords="offset points",
        color=MUTED, ha=side, va="bottom",
    )  # fmt: skip


def _end_labels(axes: Axes, lines: Sequence[Line], height: float, shares: bool) -> None:
    """Write each label at its line's end, pushed apart where they would touch."""
    low, high = axes.get_ylim()
    gap = (high - low) * 15 / (height - 50)
    ends = sorted((float(line.y[-1]), index) for index, line in enumerate(lines))
    places: list[float] = []
    for value, _ in ends:
        places.append(max(value, places[-1] + gap) if places else value)
    excess = max(0.0, places[-1] - high)
    right = max(line.x[-1] for line in lines)
    for (value, index), place in zip(ends, places, strict=True):
        line = lines[index]
        shown = percent(value) if shares else f"{value:.3g}"
        text = f"{line.label} {shown}".strip()
        axes.annotate(
            text, (right, place - excess), xytext=(7, 0), textcoords="offset points", color=line.colour,
            va="center", annotation_clip=False, weight="bold",
        )  # fmt: skip
