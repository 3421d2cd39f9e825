"""Numbers, texts of others and tables as people read them."""

from collections.abc import Mapping, Sequence


def percent(value: float, digits: int = 0) -> str:
    """Return a share in percent."""
    return f"{100 * value:.{digits}f} %"


def points(gain: Mapping[str, float]) -> str:
    """Return a gain as "+12.0 points [+5.0, +19.0]"."""
    return f"{100 * gain['estimate']:+.1f} points [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"


def rate(record: Mapping[str, float]) -> str:
    """Return a success rate as "42.0 % [34.0, 50.0]"."""
    return f"{100 * record['estimate']:.1f} % [{100 * record['low']:.1f}, {100 * record['high']:.1f}]"


def compact(value: float) -> str:
    """Return a number in at most about six characters."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.2g}"


def duration(seconds: float) -> str:
    """Return seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def p_value(value: float) -> str:
    """Return a p-value as "p = 0.031"."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def printable(text: str) -> str:
    """Return a text of somebody else's for a terminal: what would move the cursor, or end the line, is spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns, so that it reads as text too."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    padded = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    padded.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in padded)
