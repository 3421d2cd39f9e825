"""`geartrain top`: a run in the terminal, live. A frame is a pure function of what is known of a workspace."""

import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from geartrain.viewer.curves import points
from geartrain.viewer.state import StageState, Watched, alarms_of, current
from geartrain.viewer.workspaces import OWN, require_workspaces
from geartrain.wording import compact, duration, printable

EVERY_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 10.0
"""How often the folder is searched for new workspaces."""
BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
MARKS = {
    "done": ("✔", "green"), "running": ("▶", "bold cyan"), "failed": ("✘", "bold red"), "killed": ("✘", "bold red"),
    "interrupted": ("■", "yellow"), "waiting": ("·", "dim"),
}  # fmt: skip
PLAIN_MARKS = {"✔": "+", "▶": ">", "✘": "x", "■": "=", "·": "."}
WORDS = {"killed": "was killed", "interrupted": "was stopped", "failed": "failed", "running": "is running"}
CURVES = (
    # key of `curves.points`, label
    ("success", "success"),
    ("val_sampled", "val, sampled"),
    ("reward", "reward"),
    ("kl", "KL"),
    ("entropy", "entropy"),
    ("gradient_norm", "gradient norm"),
    ("weight_spread", "weight spread"),
    ("tokens_played", "tokens/s played"),
    ("tokens_trained", "tokens/s trained"),
)
LABEL, VALUE, LONGEST_SPARK = 16, 26, 60
"""Columns of a label, of the values beside a spark line, and of the longest spark line."""


@dataclass
class View:
    """What is looked at: the workspaces below a folder, and which of them is shown."""

    root: Path
    runs: dict[str, Watched] = field(default_factory=dict)
    chosen: str | None = None
    """None follows whatever happened last."""
    looked: float = 0.0

    def refresh(self) -> None:
        """Read what is new. Raises UserError: there is no workspace (any more)."""
        if not self.runs or time.monotonic() - self.looked > LOOK_AGAIN_SECONDS:
            found = require_workspaces(self.root)
            self.runs = {name: self.runs.get(name) or Watched(folder) for name, folder in found.items()}
            self.looked = time.monotonic()
        for watched in self.runs.values():
            watched.refresh()

    @property
    def shown(self) -> str:
        """Name of the workspace that is shown: the chosen one, else the one at work, else the last one heard of."""
        if self.chosen in self.runs:
            return str(self.chosen)
        return max(self.runs, key=lambda name: (is_running(self.runs[name]), self.runs[name].updated))

    def step(self) -> None:
        """Choose the next workspace."""
        names = list(self.runs)
        self.chosen = names[(names.index(self.shown) + 1) % len(names)]


def is_running(watched: Watched) -> bool:
    """Tell whether a stage of a workspace is at work."""
    return any(stage.state == "running" for stage in watched.stages())


def frame(view: View, *, width: int, plain: bool = False) -> RenderableType:
    """Return what a terminal of so many columns shows.

    Args:
        view: refreshed.
        width: columns.
        plain: for a terminal that knows ASCII alone.
    """
    name, watched = view.shown, view.runs[view.shown]
    stages = watched.stages()
    at, tail = current(stages), watched.latest.get("policy")
    parts: list[RenderableType] = [_title(view.root, name, watched, at), _stages(stages, plain)]
    if at is not None:
        parts += _work(at, width, plain)
    alarms = alarms_of(tail.records()) if tail else []
    parts += [Text(f"alarm  {printable(alarm)}", style="bold red") for alarm in alarms]
    lines = [tail.iterations[index] for index in sorted(tail.iterations)] if tail else []
    if lines:
        parts += [Text(), _curves(lines, width, plain)]
        parts.append(_foot(lines, tail.checkpoint if tail else None))
    others = [other for other in view.runs if other != name and is_running(view.runs[other])]
    if others:
        parts.append(
            Text(f"also running: {', '.join(map(printable, others))}", style="dim", overflow="ellipsis", no_wrap=True)
        )
    return Group(*parts)


def spark(values: Sequence[float], width: int, *, plain: bool = False) -> str:
    """Return values as a line of at most `width` blocks: means of stretches, from the least to the greatest."""
    count = min(width, len(values))
    edges = [round(number * len(values) / count) for number in range(count + 1)] if count else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    blocks = PLAIN_BLOCKS if plain else BLOCKS
    scale = (len(blocks) - 1) / (high - low) if high - low > 1e-9 * max(abs(low), abs(high)) else 0.0
    return "".join(blocks[round((value - low) * scale)] for value in means)


def _title(root: Path, name: str, watched: Watched, at: StageState | None) -> Text:
    shown = root.resolve().name if name == OWN else name
    section = watched.parameters().get("policy")
    recipe = printable(str(section.get("recipe", ""))) if isinstance(section, Mapping) else ""
    told = f"{at.name} {WORDS[at.state]}" if at else ""
    line = Text.assemble((printable(shown), "bold"), f"  {recipe}  ", (told, MARKS[at.state][1] if at else ""))
    heard = f"  last heard of {_ago(watched.updated)}" if watched.updated else "  nothing has run yet"
    line.append(heard, style="dim")
    line.truncate(200)
    return line


def _stages(stages: Sequence[StageState], plain: bool) -> Table:
    grid = Table.grid(padding=(0, 2), expand=False)
    cells = []
    for stage in stages:
        mark, style = MARKS[stage.state]
        took = duration(stage.seconds) if stage.seconds is not None else ""
        cells.append(Text(f"{PLAIN_MARKS[mark] if plain else mark} {stage.name:<12} {took}", style=style))
    for row in range(0, len(cells), 3):
        grid.add_row(*cells[row : row + 3])
    return grid


def _work(at: StageState, width: int, plain: bool) -> list[RenderableType]:
    parts: list[RenderableType] = []
    progress = at.progress
    if progress is not None and progress.total:
        grid = Table.grid(padding=(0, 1))
        left = f"{duration(progress.left)} left" if progress.left is not None and at.state == "running" else ""
        text = Text(f"{progress.done}/{progress.total}  {left}  {printable(progress.status)}")
        bar = ProgressBar(total=progress.total, completed=progress.done, width=max(10, min(40, width - 50)))
        shown: RenderableType = bar if not plain else Text(f"{100 * progress.done // progress.total} %")
        grid.add_row(Text(printable(progress.label), style="bold"), shown, text)
        parts += [Text(), grid]
    if at.reason:
        parts.append(Text(f"{at.name}: {printable(at.reason)}", style="red"))
    return parts


def _curves(lines: Sequence[dict[str, Any]], width: int, plain: bool) -> Table:
    found = points(lines)
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LABEL, no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", no_wrap=True)
    room = max(8, min(LONGEST_SPARK, width - LABEL - VALUE))
    for key, label in CURVES:
        if key in found:
            values = found[key][1]
            span = f"{_short(min(values))} to {_short(max(values))}"
            table.add_row(label, Text(spark(values, room, plain=plain), style="cyan"), _short(values[-1]), span)
    return table


def _foot(lines: Sequence[dict[str, Any]], checkpoint: dict[str, Any] | None) -> Text:
    seconds = lines[-1].get("seconds") or {}
    parts = [f"{len(lines)} iteration{'s' * (len(lines) != 1)}"]
    if seconds:
        parts.append(f"the last took {duration(sum(seconds.values()))}")
    parts.append(f"checkpoint {_ago(checkpoint['time'])}" if checkpoint else "no checkpoint yet")
    return Text(", ".join(parts), style="dim")


def _short(value: float) -> str:
    return compact(value) if abs(value) < 1e4 else f"{value:.3g}"


def _ago(moment: float) -> str:
    gone = max(0.0, time.time() - moment)
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if gone >= 2 * size:
            return f"{gone / size:.0f} {unit} ago"
    return f"{gone:.0f} s ago"


def watch(view: View, console: Console) -> None:
    """Show frames until q, Ctrl-C or end of input; n shows the next workspace, f follows what happens."""
    plain = not (console.encoding or "").lower().startswith("utf")
    view.refresh()
    with _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            hints = Text("q quit   n next run   f follow", style="dim")
            live.update(Group(frame(view, width=console.width, plain=plain), Text(), hints), refresh=True)
            pressed = key(EVERY_SECONDS)
            if pressed in ("q", "Q", "\x03", "\x04"):
                return
            if pressed == "n":
                view.step()
            elif pressed == "f":
                view.chosen = None
            view.refresh()


def once(view: View, console: Console) -> None:
    """Print one frame."""
    view.refresh()
    plain = not (console.encoding or "").lower().startswith("utf")
    console.print(frame(view, width=console.width, plain=plain))


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield what waits for a key: its character, or "" after so many seconds. Where stdin is no terminal, it waits."""
    if not sys.stdin.isatty():

        def sleep(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield sleep
        return
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)

    def read(seconds: float) -> str:
        ready, _, _ = select.select([handle], [], [], seconds)
        return sys.stdin.read(1) or "q" if ready else ""

    try:
        tty.setcbreak(handle)
        yield read
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
