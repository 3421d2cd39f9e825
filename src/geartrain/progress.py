"""Progress of long work, on stderr: a live bar with time left on a terminal, a plain line now and then elsewhere.

with progress.bar("policy", total=30) as advance:
    advance(1, status="success 0.41")

for task in progress.track(tasks, "tasks"): ...
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, Protocol, TextIO, TypeVar

from geartrain import live, logs
from geartrain.preemption import leave_if_asked

PLAIN_EVERY_SECONDS = 10.0
_muted = False
Item = TypeVar("Item")


class Advance(Protocol):
    """Report that `steps` more units are done, and optionally how it goes."""

    def __call__(self, steps: int = 1, *, status: str | None = None) -> None: ...  # noqa: D102


@contextmanager
def bar(label: str, total: int | None, *, stream: TextIO | None = None) -> Iterator[Advance]:
    """Show progress through `total` units (None: unknown) while the block runs; yields `advance`.

    Where a unit is done is a safe point: `advance` raises PreemptedError if the process was asked to end.
    """
    out = sys.stderr if stream is None else stream
    if _muted:
        yield _told(_nothing, label, total)
    elif out.isatty() and not logs.says_json():
        with _live_bar(label, total, out) as advance:
            yield _told(advance, label, total)
    else:
        lines = PlainLines(label, total, out)
        yield _told(lines.advance, label, total)
        lines.close()


def mute() -> None:
    """Show no progress from now on: another rank shows the same."""
    global _muted
    _muted = True


def _nothing(steps: int = 1, *, status: str | None = None) -> None:
    pass


def _told(advance: Advance, label: str, total: int | None) -> Advance:
    """Let those who watch the stage hear of it too, and leave where the process was asked to."""
    done = 0

    def told(steps: int = 1, *, status: str | None = None) -> None:
        nonlocal done
        done += steps
        advance(steps, status=status)
        live.progress(label, done, total, status)
        leave_if_asked()

    return told


def track(
    items: Iterable[Item], label: str, *, total: int | None = None, stream: TextIO | None = None
) -> Iterator[Item]:
    """Yield the items and show how many are done; `total` is taken from `len` when it has one."""
    count = len(items) if total is None and isinstance(items, Sized) else total
    with bar(label, count, stream=stream) as advance:
        for item in items:
            yield item
            advance(1)


def note(message: str, *, stream: TextIO | None = None) -> None:
    """Print one line that people should read while the work goes on, on stderr; a live bar stays below it."""
    if _muted:
        return
    if stream is None:
        logs.say(message)
    else:
        print(message, file=stream, flush=True)


class PlainLines:
    """Progress for logs: at most one line per `every` seconds, and one at the end."""

    def __init__(
        self,
        label: str,
        total: int | None,
        stream: TextIO,
        *,
        every: float = PLAIN_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self._total, self._stream, self._every, self._clock = label, total, stream, every, clock
        self._started = self._printed_at = clock()
        self._done, self._status, self._printed_done = 0, "", -1

    def advance(self, steps: int = 1, *, status: str | None = None) -> None:
        """Count `steps`; print when the last line is old enough."""
        self._done += steps
        self._status = self._status if status is None else status
        if self._clock() - self._printed_at >= self._every:
            self._print()

    def close(self) -> None:
        """Print the final state, unless the last line said it already."""
        if self._done != self._printed_done:
            self._print()

    def _print(self) -> None:
        now = self._clock()
        self._printed_at, self._printed_done = now, self._done
        elapsed = now - self._started
        of_total = "" if self._total is None else f"/{self._total}"
        parts = [f"{self._label}: {self._done}{of_total}", f"{_duration(elapsed)} elapsed"]
        if self._total is not None and 0 < self._done < self._total:
            parts.append(f"{_duration(elapsed / self._done * (self._total - self._done))} left")
        if self._status:
            parts.append(self._status)
        text = ", ".join(parts)
        if self._stream is sys.stderr:
            numbers: dict[str, Any] = {"label": self._label, "done": self._done, "total": self._total}
            logs.say(text, **numbers, seconds=round(elapsed, 3), status=self._status)
        else:
            print(text, file=self._stream, flush=True)


@contextmanager
def _live_bar(label: str, total: int | None, stream: TextIO) -> Iterator[Advance]:
    # imported here: rich.progress takes 0.1 s, and most processes log to a file
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}", markup=False),
    )
    with Progress(*columns, console=Console(file=stream)) as view:
        task = view.add_task(label, total=total, status="")

        def advance(steps: int = 1, *, status: str | None = None) -> None:
            view.update(task, advance=steps)
            if status is not None:
                view.update(task, status=status)

        yield advance


def _duration(seconds: float) -> str:
    """Return 75.2 as "1:15"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
