"""From a matplotlib figure to inline SVG that takes its colours and fonts from the page.

Figures are drawn in placeholder colours, one per role; `to_svg` replaces each
by a CSS variable, so that the same figure serves light and dark pages. Text
stays text: it can be searched, copied and read aloud. Nothing else imports
matplotlib.
"""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

__all__ = ["Axes", "drawing", "label_ticks", "limit_ticks", "new_figure", "to_file", "to_svg"]

INK, MUTED, GRID, SURFACE = "#000001", "#000002", "#000003", "#000004"
BEFORE, AFTER, BAD = "#000005", "#000006", "#000007"
SERIES = ("#000011", "#000012", "#000013", "#000014")
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    SURFACE: "surface",
    BEFORE: "before",
    AFTER: "after",
    BAD: "bad",
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES, start=1)},
}
_LIGHT = {
    INK: "#15191f",
    MUTED: "#5c6672",
    GRID: "#e2e6eb",
    SURFACE: "#ffffff",
    BEFORE: "#87919f",
    AFTER: "#1a5fd0",
    BAD: "#b3361f",
    **dict(zip(SERIES, ("#1a5fd0", "#b85c00", "#0b7a4b", "#7a45b8"), strict=True)),
}
"""The page's light colours, for files that stand alone."""
_FONTS = "system-ui, Helvetica Neue, Liberation Sans, DejaVu Sans, Arial, sans-serif"
POINTS_PER_PIXEL = 0.75
_CLEANING = [
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        (r"<metadata>.*?</metadata>", ""),
        (r"<!--.*?-->\s*", ""),
        (r"<style.*?</style>", ""),  # would reach every element of the page
        (r"xlink:href=", "href="),
        (r"font-family: [^;\"]*;? ?", ""),
        (r' transform="rotate\(-?0 [^)]*\)"', ""),
    )
]
_RC: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "geartrain",
    "text.parse_math": False,
    "axes.formatter.useoffset": False,
    "font.size": 9.0,  # points: 12 CSS pixels
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.75,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 5,
    "ytick.major.pad": 5,
    "lines.linewidth": 1.75,
    "lines.solid_capstyle": "round",
}

_GEOMETRY = re.compile(r' (?:d|x|y|width|height|transform)="[^"]*"')
_DIGITS = re.compile(r"(\.\d\d)\d+")
"""A hundredth of a point is enough."""


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the page's style to what matplotlib draws inside the block; nothing leaks out of it."""
    with matplotlib.rc_context(_RC):
        yield


def new_figure(width: float, height: float, *, room: float | None = None) -> Figure:
    """Return an empty figure; width and height in CSS pixels, `room` around panels in points (None: matplotlib's)."""
    figure = Figure(figsize=(width / 96, height / 96), layout="constrained")
    if room is not None:
        figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=room / 72, h_pad=room / 72))
    return figure


def label_ticks(axis: Axis, text: Callable[[float], str]) -> None:
    """Write the ticks of an axis by a function of their value."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def limit_ticks(axis: Axis, count: int, *, integer: bool = False) -> None:
    """Put at most `count` + 1 ticks on an axis, at round numbers."""
    axis.set_major_locator(MaxNLocator(count, integer=integer))


def to_svg(figure: Figure, *, name: str, label: str) -> Markup:
    """Return a figure as one `<svg>` element without external reference, date or clashing id.

    Args:
        figure: drawn inside `drawing`.
        name: prefix of every id; unique in the page.
        label: what a screen reader says.
    """
    text, shape = _cleaned(figure, name)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    opening = f'<svg class="figure" role="img" aria-label="{escape(label)}" {shape}>'
    # Drawn here; matplotlib escapes the texts that it writes.
    return Markup(opening + text)  # noqa: S704


def to_file(figure: Figure, *, name: str, label: str) -> str:
    """Return a figure as an SVG file that stands alone, light colours on white; arguments as `to_svg`.

    Viewers of files know neither the page's variables nor its fonts.
    """
    text, shape = _cleaned(figure, name)
    for colour, shown in _LIGHT.items():
        text = text.replace(colour, shown)
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" {shape}'
    style = f'font-family="{_FONTS}"><rect width="100%" height="100%" fill="#ffffff"/>'
    return f"{opening} {style}{text.rstrip()}\n"


def _cleaned(figure: Figure, name: str) -> tuple[str, str]:
    """Return what is inside the figure's `<svg>` element, and the attributes of its size."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for pattern, replacement in _CLEANING:
        text = pattern.sub(replacement, text)
    text = _GEOMETRY.sub(lambda match: _DIGITS.sub(r"\1", match[0]), text)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    shape = f'viewBox="0 0 {width * POINTS_PER_PIXEL:g} {height * POINTS_PER_PIXEL:g}" style="max-width: {width}px"'
    return text.partition(">")[2], shape
