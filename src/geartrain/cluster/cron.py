"""Cron expressions as Kubeflow Pipelines reads them: six fields, seconds first, in UTC.

Kubeflow's parser (robfig/cron 1.2) also takes five fields, and then reads them as seconds first: `0 2 * * *`, meant
as "every night at two", starts a run each hour (kubeflow/kubeflow#5306, kubeflow/pipelines#2318). So five are refused.
"""

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from geartrain.errors import UserError

FIELDS = ("second", "minute", "hour", "day", "month", "weekday")
BOUNDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NICKNAMES = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_PART = re.compile(r"(?:([*?])|(\w+)(?:-(\w+))?)(?:/(\d+))?")


@dataclass(frozen=True)
class Cron:
    """A checked expression: for each field the values at which it fires, ascending."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    """0 is Sunday."""

    def matches(self, moment: datetime) -> bool:
        """Tell whether it fires in this second (UTC)."""
        clock = moment.hour in self.hours and moment.minute in self.minutes and moment.second in self.seconds
        return clock and self._on(moment)

    def firings(self, after: datetime) -> Iterator[datetime]:
        """Yield the times, in UTC, at which it fires, each later than `after`, in order; without end."""
        start = after.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)
        day = start.replace(hour=0, minute=0, second=0)
        first = (start.hour, start.minute, start.second)
        while True:
            if self._on(day):
                yield from (day.replace(hour=h, minute=m, second=s) for h, m, s in self._clock(first))
            day, first = day + timedelta(days=1), (0, 0, 0)

    def next(self, after: datetime) -> datetime:
        """Return the first firing later than `after`, in UTC."""
        return next(self.firings(after))

    def _clock(self, first: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
        """Yield the times of a day from `first` on."""
        for hour in self.hours[bisect_left(self.hours, first[0]) :]:
            minutes = self.minutes if hour > first[0] else self.minutes[bisect_left(self.minutes, first[1]) :]
            for minute in minutes:
                late = (hour, minute) > first[:2]
                seconds = self.seconds if late else self.seconds[bisect_left(self.seconds, first[2]) :]
                yield from ((hour, minute, second) for second in seconds)

    def _on(self, day: datetime) -> bool:
        return day.month in self.months and day.day in self.days and day.isoweekday() % 7 in self.weekdays


def parse_cron(text: str, *, source: str = "cron") -> Cron:
    """Return a checked expression.

    Raises:
        UserError: not six fields, a value out of its range, both a day and a weekday,
            or a date that never comes; the message has the mended expression where there is one.
    """
    words = text.split()
    if text.strip().lower() in NICKNAMES:
        raise UserError(f"{source}: {text!r}: give the fields. You mean {NICKNAMES[text.strip().lower()]!r}.")
    if len(words) == 5:
        raise UserError(_five(text, source))
    if len(words) != 6:
        raise UserError(f"{source}: {text!r} has {len(words)} fields; it needs 6: {' '.join(FIELDS)}, in UTC.")
    values = [_field(word, index, f"{source}: {text!r}") for index, word in enumerate(words)]
    day, weekday = words[3], words[5]
    if not _open(day) and not _open(weekday):
        raise UserError(
            f"{source}: {text!r} names a day of the month and a weekday; systems disagree on whether both must hold."
            f" Leave one as *: {' '.join([*words[:5], '*'])!r} or {' '.join([*words[:3], '*', *words[4:]])!r}."
        )
    cron = Cron(" ".join(words), *values)
    if all(min(cron.days) > monthrange(2024, month)[1] for month in cron.months):  # 2024 is a leap year
        raise UserError(f"{source}: {text!r} never fires: no month of it has a day {min(cron.days)}.")
    return cron


def to_argo(cron: Cron, *, source: str = "cron") -> str:
    """Return the five-field expression of Argo and Kubernetes. Raises UserError: it fires on a second other than 0."""
    if cron.seconds != (0,):
        raise UserError(f"{source}: {cron.text!r}: Argo's schedules know no seconds; make the first field 0.")
    return " ".join(word.replace("?", "*") for word in cron.text.split()[1:])


def _open(word: str) -> bool:
    return word in ("*", "?")


def _five(text: str, source: str) -> str:
    words = text.split()
    words[4] = re.sub(r"\b7\b", "0", words[4])  # Sunday, in other systems
    mended = " ".join(["0", *words])
    return (
        f"{source}: {text!r} has five fields; Kubeflow would read them as seconds first, and run it at other times"
        f" (kubeflow/kubeflow#5306). You mean {mended!r}: {' '.join(FIELDS)}, in UTC."
    )


def _field(word: str, index: int, source: str) -> tuple[int, ...]:
    """Return the values of one field, which may be a list of values, ranges and steps."""
    low, high = BOUNDS[index]
    chosen: set[int] = set()
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise UserError(f"{source}: {FIELDS[index]} {part!r}: expected a number, a-b, * or one of them with /step")
        star, first, last, step = match.groups()
        if star:
            start, end = low, high
        else:
            start = _value(first, index, source)
            # like the server: "5/15" is "5-59/15"
            end = _value(last, index, source) if last else high if step else start
        if step == "0" or start > end:
            raise UserError(f"{source}: {FIELDS[index]} {part!r}: names no value; a range goes up, a step is 1 or more")
        chosen.update(range(start, end + 1, int(step or 1)))
    return tuple(sorted(chosen))


def _value(word: str, index: int, source: str) -> int:
    low, high = BOUNDS[index]
    names = {4: MONTHS, 5: WEEKDAYS}.get(index, ())
    if word.lower() in names:
        return names.index(word.lower()) + low
    if not (word.isascii() and word.isdecimal()) or not low <= int(word) <= high:
        hint = "; Sunday is 0" if index == 5 and word == "7" else ""
        raise UserError(f"{source}: {FIELDS[index]} {word!r}: expected {low} to {high}{hint}")
    return int(word)
