"""What a sign of trouble is: something that can be read off the records, with the number, the place and the limit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from geartrain.diagnosis.records import WINDOW, Records

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Reading:
    """A sign that is there."""

    text: str
    """What was read, where, and against which limit; for people."""
    iteration: int
    """From which it is there, from 0; causes come before their effects."""
    strength: float = 0.75
    """From 0.5, just past the limit, to 1, far beyond it."""


@dataclass(frozen=True)
class Sign:
    """Something that may be wrong, whatever its cause."""

    means: str
    look: Callable[[Records], Reading | None]
    """Returns None where the sign is not there."""
    needs: tuple[str, ...] = ()
    """Names in `history.jsonl` without which it cannot be looked for."""
    applies: Callable[[Records], bool] = lambda records: True
    """Whether a run of this kind can show it at all."""

    def missing(self, records: Records) -> list[str]:
        """Return what it needs and no record holds."""
        held = {name for record in records.history for name, value in record.items() if value is not None}
        return [name for name in self.needs if name not in held]


def beyond(value: float, limit: float) -> float:
    """Return the strength of a value past a positive limit: 0.5 at the limit, 0.75 at twice that, towards 1."""
    return 1.0 - 0.5 * limit / max(value, limit)


def short_of(value: float, limit: float) -> float:
    """Return the strength of a value below a positive limit: 0.5 at the limit, 1 at 0."""
    return 1.0 - 0.5 * max(0.0, min(value, limit)) / limit


def highest(points: Points, limit: float, say: str) -> Reading | None:
    """Read a value that reached a limit at any time. `say` has places for {value} and {limit}."""
    past = [(iteration, value) for iteration, value in points if value >= limit]
    if not past:
        return None
    place, top = max(past, key=lambda point: point[1])
    text = f"{say.format(value=short(top), limit=short(limit))} at iteration {place + 1}"
    return Reading(text, past[0][0], beyond(top, limit))


def lasting(points: Points, limit: float, say: str, *, below: bool = False, least: int = 1) -> Reading | None:
    """Read a value whose median over the last `WINDOW` points is past a positive limit: one outlier is none.

    `say` has places for {value}, {limit} and {start}, the median of the first points. It is there from the first point
    from which all are past the limit, or the last window.
    """
    if len(points) < max(least, 1):
        return None
    values = [value for _, value in points]
    width = min(WINDOW, len(values))
    now, start = median(values[-width:]), median(values[:width])
    if now > limit if below else now < limit:
        return None
    begin = len(values)
    while begin > 0 and (values[begin - 1] <= limit if below else values[begin - 1] >= limit):
        begin -= 1
    begin = min(begin, len(values) - width)
    text = say.format(value=short(now), limit=short(limit), start=short(start))
    strength = short_of(now, limit) if below else beyond(now, limit)
    return Reading(
        f"{text} in the last {width} iterations, from iteration {points[begin][0] + 1}", points[begin][0], strength
    )


def short(value: float) -> str:
    """Return a number in three digits."""
    return f"{value:.3g}"
