"""What a built data set of preferences is like, in a terminal and as one self-contained page."""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geartrain.preferences.quality import TABLES, facts
from geartrain.reporting import svg
from geartrain.reporting.svg import AFTER, BAD, BEFORE, INK, MUTED, SERIES, Axes

Report = Mapping[str, Any]
WIDTH, PANEL_HEIGHT = 940.0, 260.0
"""CSS pixels."""
MOST_BARS, LEAST_BARS = 8, 4
"""Bars for which a panel has room."""
IN_TERMINAL = 8
"""Rows of a table that a terminal shows."""


def headline(report: Report) -> str:
    """Return the report in one line."""
    lost = report["records"] - report["kept"]
    train, held_out = report["splits"].values()
    return f"{report['kept']:,} records kept ({train:,} train, {held_out:,} held out), {lost:,} left out"


def to_terminal(report: Report) -> RenderableType:
    """Return the report for a rich console, 80 columns wide."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in facts(report):
        table.add_row(Text(name, style="dim"), Text(value))
    parts: list[RenderableType] = [Text(headline(report), style="bold"), _padded(table)]
    for title, key in TABLES:
        counts = report[key]
        if counts and not (key in {"sources", "answers"} and len(counts) == 1):
            parts.append(_padded(_counts(title, list(counts.items()))))
    parts += [Text(f"! {line}", style="yellow") for line in report["warnings"]]
    return Group(*parts)


def _counts(title: str, counts: Sequence[tuple[str, int]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(title.lower(), overflow="fold")
    table.add_column("records", justify="right")
    for name, count in counts[:IN_TERMINAL]:
        table.add_row(Text(name or "(none)"), f"{count:,}")
    if len(counts) > IN_TERMINAL:
        table.add_row(f"({len(counts) - IN_TERMINAL} more)", f"{sum(count for _, count in counts[IN_TERMINAL:]):,}")
    return table


def _padded(table: Table) -> Padding:
    return Padding(table, (1, 0, 0, 0), expand=False)


def to_page(report: Report) -> str:
    """Return one self-contained HTML page."""
    environment = Environment(autoescape=True)
    folder = files("geartrain.reporting")
    page = folder.joinpath("preference_page.html.j2").read_text(encoding="utf-8")
    css = folder.joinpath("report.css").read_text(encoding="utf-8")
    return environment.from_string(page).render(
        css=Markup(css),  # noqa: S704 - our own file
        headline=headline(report),
        facts=facts(report),
        figure=_draw(report),
        report=report,
        tables=[(title, report[key]) for title, key in TABLES if report[key]],
    )


def _draw(report: Report) -> Markup:
    panels: list[Callable[[Axes], None]] = [
        lambda axes: _fates(axes, report),
        lambda axes: _ratios(axes, report),
        lambda axes: _lengths(axes, report),
        lambda axes: _shares(axes, report),
        lambda axes: _bars(axes, report["tasks"], "Records per task"),
        lambda axes: _bars(axes, report["languages"], "Languages"),
    ]
    with svg.drawing():
        lines = (len(panels) + 1) // 2
        figure = svg.new_figure(WIDTH, PANEL_HEIGHT * lines, room=10)
        for axes, panel in zip(figure.subplots(lines, 2, squeeze=False).flatten(), panels, strict=True):
            panel(axes)
        return svg.to_svg(figure, name="preferences", label=headline(report))


def _fates(axes: Axes, report: Report) -> None:
    fates = {"kept": report["kept"], **report["left_out"]}
    shown = list(fates.items())[:MOST_BARS]
    _barh(axes, shown, [AFTER, *[BAD] * (len(shown) - 1)], "What became of the records")


def _bars(axes: Axes, counts: Mapping[str, int], title: str) -> None:
    _barh(axes, list(counts.items())[:MOST_BARS], [AFTER] * MOST_BARS, title)


def _barh(axes: Axes, entries: Sequence[tuple[str, int]], colours: Sequence[str], title: str) -> None:
    names = [_short_name(name) for name, _ in entries]
    places = range(len(entries))
    axes.barh(places, [count for _, count in entries], color=list(colours)[: len(entries)], height=0.6)
    for place, (_, count) in enumerate(entries):
        axes.annotate(f"{count:,}", (count, place), (5, 0), textcoords="offset points", va="center", color=INK)
    axes.set_yticks(places, names)
    axes.set_ylim(max(len(entries), LEAST_BARS) - 0.4, -0.6)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")
    axes.tick_params(axis="y", colors=INK)
    axes.set_xlim(0, 1.25 * max([1, *(count for _, count in entries)]))
    svg.limit_ticks(axes.xaxis, 4, integer=True)
    svg.label_ticks(axes.xaxis, _short)


def _short_name(name: str) -> str:
    plain = name.replace("_", " ") or "(none)"
    return plain if len(plain) <= 26 else f"{plain[:25]}…"


def _ratios(axes: Axes, report: Report) -> None:
    counts = report["length_ratio"]
    places = [(place + 0.5) / 4 - 4 for place in range(len(counts))]
    axes.bar(places, counts, width=0.22, color=[BEFORE if place < 0 else AFTER for place in places])
    axes.axvline(0, color=MUTED, linewidth=0.75)
    axes.set_xticks([-3, -2, -1, 0, 1, 2, 3], ["⅛", "¼", "½", "1", "2", "4", "8"])
    axes.set_title("Length of the better answer to that of the worse", loc="left", fontsize=10, color=INK)
    svg.limit_ticks(axes.yaxis, 4, integer=True)
    svg.label_ticks(axes.yaxis, _short)


def _lengths(axes: Axes, report: Report) -> None:
    for key, colour, label in (("prompt_length", SERIES[1], "prompts"), ("answer_length", SERIES[0], "answers")):
        counts = report[key]
        shares = [100 * count / max(1, sum(counts)) for count in counts]
        axes.plot([place / 2 for place in range(len(counts))], shares, color=colour, label=label)
    axes.set_xticks([2, 4, 6, 8, 10, 12, 14], ["4", "16", "64", "256", "1k", "4k", "16k"])
    axes.set_title("Characters, % of prompts and of answers", loc="left", fontsize=10, color=INK)
    axes.legend(frameon=False)
    svg.limit_ticks(axes.yaxis, 4)


def _shares(axes: Axes, report: Report) -> None:
    named = (("the longer wins", report["length_bias"]), ("the first listed wins", report["position_bias"]))
    shown = [(name, told) for name, told in named if told["share"] is not None]
    axes.axvline(50, color=MUTED, linewidth=0.75)
    for place, (_, told) in enumerate(shown):
        low, middle, high = (100 * told[key] for key in ("low", "share", "high"))
        axes.plot([low, high], [place, place], color=AFTER, linewidth=3)
        axes.scatter([middle], [place], s=44, color=AFTER, zorder=3)
        text = f"{middle:.1f} [{low:.1f}, {high:.1f}]"
        axes.annotate(text, (middle, place), (0, 9), textcoords="offset points", ha="center", color=INK)
    axes.set_yticks(range(len(shown)), [name for name, _ in shown])
    axes.tick_params(axis="y", colors=INK)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(-3, 103)
    axes.grid(axis="x")
    axes.set_title("Bias, % with 95 % intervals; 50 is none", loc="left", fontsize=10, color=INK)


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
