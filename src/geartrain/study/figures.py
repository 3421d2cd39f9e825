"""The study's picture: a panel per variant and environment, the control behind it in grey.

Ten lines in one panel cannot be told apart; two can. Colours mean what they
mean in the report: grey is what is compared with, blue what is looked at.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from geartrain.reporting import svg
from geartrain.reporting.svg import AFTER, BEFORE, INK, MUTED, Axes

Table = Mapping[str, Any]
PANEL_WIDTH, PANEL_HEIGHT = 250, 190
"""CSS pixels."""
COLUMNS = 5
DASHES, CONTROL_DASHES = (0, (1, 3)), (0, (4, 2))


def learning_figure(results: Table) -> str | None:
    """Return the learning curves as an SVG file; None while no cell is finished.

    Bands span the lowest and the highest seed, lines are means. All panels of an environment share their axes.
    """
    control = results["study"]["control"]
    rows = [
        row
        for name, environment in results["environments"].items()
        for row in _rows(name, control, _shown(environment, control))
    ]
    if not rows:
        return None
    columns = max(len(row) for row in rows)
    with svg.drawing():
        figure = svg.new_figure(max(420, columns * PANEL_WIDTH), len(rows) * PANEL_HEIGHT + 20, room=7)
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for row, axes_row in zip(rows, grid, strict=True):
            for axes in axes_row[len(row) :]:
                axes.set_axis_off()
            for place, (environment, variant) in enumerate(row):
                table = results["environments"][environment]
                _panel(axes_row[place], environment, variant, control, table, results["study"]["reach"])
        figure.supxlabel("environment steps (agent turns played in training)", color=MUTED, fontsize=9)
        return svg.to_file(figure, name="study", label="Learning curves by environment and variant")


def _shown(environment: Table, control: str) -> list[str]:
    finished = [name for name, row in environment["variants"].items() if row["seeds"]]
    # with nothing to stand beside it, the control is shown alone
    return [name for name in finished if name != control] or finished


def _rows(environment: str, control: str, variants: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Break an environment's panels into rows of about equal length."""
    if not variants:
        return []
    width = math.ceil(len(variants) / math.ceil(len(variants) / COLUMNS))
    panels = [(environment, variant) for variant in variants]
    return [panels[start : start + width] for start in range(0, len(panels), width)]


def _panel(axes: Axes, environment: str, variant: str, control: str, table: Table, reach: Sequence[float]) -> None:
    variants = table["variants"]
    beside = variants[variant]["beside_control"] if variant != control else None
    drawn: list[tuple[Table, str, dict[str, Any]]] = [(variants[variant]["band"], AFTER, {"linewidth": 1.75})]
    if beside is not None:
        # the control, over the seeds that both have, lies above, dashed: where both are the same both are seen
        drawn.append((beside["band"], BEFORE, {"linewidth": 1.25, "linestyle": CONTROL_DASHES}))
    for band, colour, line in drawn:
        axes.fill_between(band["x"], band["low"], band["high"], color=colour, alpha=0.18, linewidth=0)
        axes.plot(band["x"], band["mean"], color=colour, marker="o" if len(band["x"]) == 1 else None, **line)
    for level in reach:
        axes.axhline(level, color=MUTED, linewidth=0.75, linestyle=DASHES)
    bands = [row["band"] for row in variants.values() if row["seeds"]]
    top = max([*reach, *(value for band in bands for value in band["high"])])
    low, high = min(band["x"][0] for band in bands), max(band["x"][-1] for band in bands)
    axes.set_ylim(0, min(1.04, max(0.1, 1.15 * top)))
    axes.set_xlim(low, high if high > low else low + 1)
    svg.label_ticks(axes.yaxis, lambda value: f"{100 * value:.3g} %")
    svg.label_ticks(axes.xaxis, lambda value: f"{value:,.0f}")
    svg.limit_ticks(axes.yaxis, 4)
    svg.limit_ticks(axes.xaxis, 3, integer=True)
    _title(axes, environment, variant, control if beside else None, variants)


def _title(axes: Axes, environment: str, variant: str, control: str | None, variants: Table) -> None:
    """Write what the two lines are, in their colours, where a title stands."""
    seeds = len(variants[variant]["seeds"])
    axes.set_title(f"{environment}, {seeds} seed{'s' * (seeds != 1)}", loc="left", fontsize=8, color=MUTED, pad=19)
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    axes.annotate(variant, (0, 1), xytext=(0, 5), color=AFTER, weight="bold", ha="left", va="bottom", **place)
    if control is not None:
        axes.annotate(control, (1, 1), xytext=(0, 5), color=BEFORE, weight="bold", ha="right", va="bottom", **place)
    axes.tick_params(labelcolor=INK)
