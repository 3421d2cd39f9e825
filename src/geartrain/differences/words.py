"""A difference in a terminal and as a page."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geartrain.differences.compare import Difference, Shift
from geartrain.differences.picture import draw

LONGEST = 160
"""Characters of a value that are shown."""
SHOWN = 8
"""Numbers and columns that a terminal shows."""


def headline(difference: Difference) -> str:
    """Return the difference in one line."""
    if difference.same:
        return f"The same {difference.a.rows:,} rows"
    sorts = ("added", "removed", "changed", "unchanged")
    return ", ".join(f"{getattr(difference, sort):,} {sort}" for sort in sorts)


def sentences(difference: Difference) -> list[str]:
    """Return what else there is to say, a line each."""
    lines = [f"A row is named by {', '.join(difference.key)}; A has {difference.a.rows:,}, B {difference.b.rows:,}."]
    for side, letter in ((difference.a, "A"), (difference.b, "B")):
        if side.repeated:
            lines.append(f"{letter} names {side.repeated:,} rows twice or more; those were compared in their order.")
    for letter, columns in (("A", difference.only_a), ("B", difference.only_b)):
        if columns:
            lines.append(f"Only {letter} has the column {', '.join(columns)}.")
    if difference.flips is not None and difference.changed + difference.unchanged:
        rose = f", {difference.flipped_up:,} of them upwards" if difference.flipped_up is not None else ""
        lines.append(f"{difference.flips:,} labels ({difference.label}) flipped{rose}.")
    groups = difference.groups
    if groups is not None and not groups.common:
        lines.append(f"No {groups.group} is in both: {groups.only_a:,} only in A, {groups.only_b:,} only in B.")
    elif groups is not None:
        lines.append(
            f"Mean {groups.measure} by {groups.group}: {groups.common:,} in both ({groups.only_a:,} only in A, "
            f"{groups.only_b:,} only in B); {groups.up:,} rose, {groups.down:,} fell, "
            f"by {groups.mean_shift:+.4g} on average."
        )
    return lines


def to_terminal(difference: Difference) -> RenderableType:
    """Return the difference for a rich console, 80 columns wide."""
    parts: list[RenderableType] = [Text(headline(difference), style="bold")]
    parts.append(Text(f"A {difference.a.name}\nB {difference.b.name}", style="dim"))
    parts += [Text(line) for line in sentences(difference)]
    if difference.columns:
        ranked = sorted(difference.columns.items(), key=lambda item: (-item[1], item[0]))
        parts.append(_table(("column", "rows changed"), [(name, f"{count:,}") for name, count in ranked[:SHOWN]]))
    moved = [(value, a, b) for value, (a, b) in difference.strata.items() if a != b]
    if moved:
        counts = [(value, f"{a:,}", f"{b:,}", f"{b - a:+,}") for value, a, b in moved[:SHOWN]]
        parts.append(_table((difference.stratum, "rows in A", "rows in B", ""), counts))
    if difference.groups and difference.groups.largest:
        entries = difference.groups.largest[:SHOWN]
        means = [(str(e["group"]), f"{e['a']:.3g}", f"{e['b']:.3g}", f"{e['b'] - e['a']:+.3g}") for e in entries]
        parts.append(_table((difference.groups.group, "mean in A", "mean in B", ""), means))
    if difference.shifts and not difference.same:
        shifts = [_shift_row(shift) for shift in difference.shifts[:SHOWN]]
        parts.append(_table(("number", "mean in A", "mean in B", "distance", "d", "p"), shifts))
    return Group(*(Padding(part, (1, 0, 0, 0), expand=False) if isinstance(part, Table) else part for part in parts))


def to_json(difference: Difference) -> str:
    """Return the difference as JSON text."""
    return json.dumps(difference.record(), indent=2, sort_keys=True, ensure_ascii=False, default=str)


def to_page(difference: Difference) -> str:
    """Return one self-contained HTML page."""
    environment = Environment(autoescape=True)
    page = files("geartrain.differences").joinpath("page.html.j2").read_text(encoding="utf-8")
    css = files("geartrain.reporting").joinpath("report.css").read_text(encoding="utf-8")
    return environment.from_string(page).render(
        css=Markup(css),  # noqa: S704 - our own file
        difference=difference,
        headline=headline(difference),
        sentences=sentences(difference),
        figure=draw(difference),
        shifts=[_shift_row(shift) for shift in difference.shifts],
        examples={sort: [_example(row) for row in rows] for sort, rows in difference.examples.items() if rows},
    )


def _shift_row(shift: Shift) -> tuple[str, ...]:
    numbers = f"{shift.mean_a:.4g}", f"{shift.mean_b:.4g}", f"{shift.statistic:.3f}", f"{shift.effect:+.2f}"
    return shift.column, *numbers, "< 0.001" if shift.p_value < 0.001 else f"{shift.p_value:.3f}"


def _example(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _cut(value)) for name, value in row.items()]


def _cut(value: Any) -> str:
    if isinstance(value, list) and len(value) == 2:
        return f"{_cut_text(value[0])} → {_cut_text(value[1])}"
    return _cut_text(value)


def _cut_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
