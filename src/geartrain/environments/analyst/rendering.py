"""What the agent sees of a result: short, one line per row, numbers to two decimals."""

from geartrain.environments.analyst.query import Cell, Table
from geartrain.environments.tools import clip

CELL_LIMIT = 40
"""Characters of a text cell that are shown."""
_LARGE = 1e15
"""From here on a number is shown by its leading digits."""


def format_number(value: float) -> str:
    """Return a number to 2 decimals without trailing zeros."""
    if not abs(value) < _LARGE:
        return f"{value:.6g}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return "0" if text == "-0" else text


def format_cell(value: Cell) -> str:
    """Return a cell as SQL would write it, so that what was read can be asked for as it stands."""
    if value is None:
        return "NULL"
    return quote(clip(value, CELL_LIMIT)) if isinstance(value, str) else format_number(value)


def quote(text: str) -> str:
    """Return text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def unquote(literal: str) -> str:
    """Return the text of an SQL string; anything else as it is."""
    inner = len(literal) > 1 and literal[0] == literal[-1] == "'"
    return literal[1:-1].replace("''", "'") if inner else literal


def render(handle: str, table: Table, row_limit: int) -> str:
    """Return the text of a query's answer: a count, a header, at most `row_limit` rows."""
    count, more = len(table.rows), "+" if table.partial else ""
    lines = [f"{handle}: {count}{more} {'row' if count == 1 else 'rows'}"]
    if count:
        lines.append("|".join(table.columns))
        lines += ["|".join(map(format_cell, row)) for row in table.rows[:row_limit]]
    if count > row_limit:
        lines.append(f"({count - row_limit}{more} more)")
    return "\n".join(lines)
