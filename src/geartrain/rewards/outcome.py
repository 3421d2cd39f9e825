"""What a reward channel may answer: a value, "does not apply", or a failure with its reason.

A failure is counted and left out. It is never a 0 that looks like a bad
episode, and a number that is not finite is a failure (rl-faults C14, C15, E5).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Spent:
    """What one answer has cost beside time."""

    requests: int = 0
    """Calls of a server that were answered or tried; 0 for what came from a cache."""
    tokens_in: int = 0
    tokens_out: int = 0
    price: float = 0.0
    """In the currency of the configured prices."""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.requests + other.requests,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.price + other.price,
        )


NOTHING = Spent()


@dataclass(frozen=True)
class Value:
    """A finite reward. Raises ValueError otherwise: build from untrusted numbers with `measured`."""

    value: float
    why: str = field(default="", compare=False)
    """For people: what the number rests on."""
    spent: Spent = field(default=NOTHING, compare=False)

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a reward must be finite, got {self.value}; use measured()")


@dataclass(frozen=True)
class NotApplicable:
    """The channel has no opinion on this trajectory, and that is no fault."""

    reason: str
    """Stable snake_case kind."""


@dataclass(frozen=True)
class Failed:
    """The channel should have had an opinion and could not form one."""

    reason: str
    """Stable snake_case kind: what failures are counted by."""
    detail: str = ""
    """For people; never counted by."""
    spent: Spent = field(default=NOTHING, compare=False)


Outcome = Value | NotApplicable | Failed


def measured(value: float, why: str = "", spent: Spent = NOTHING) -> Value | Failed:
    """Return the value of a measurement, or a failure if it is not a finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return Failed("not_a_number", repr(value)[:80], spent)
    return Value(number, why, spent) if math.isfinite(number) else Failed("not_finite", str(number), spent)


def raw(outcome: Outcome) -> float | None:
    """Return the number, or None where there is none."""
    return outcome.value if isinstance(outcome, Value) else None


def reason(outcome: Outcome) -> str:
    """Return why an outcome is what it is, for people."""
    if isinstance(outcome, Value):
        return outcome.why
    if isinstance(outcome, Failed) and outcome.detail:
        return f"{outcome.reason}: {outcome.detail}"
    return outcome.reason


def count_missing(outcomes: Mapping[str, Sequence[Outcome]]) -> Counter[str]:
    """Count what has no value, by "channel.kind"; "not applicable" kinds carry the prefix "n/a "."""
    return Counter(name for channel, column in outcomes.items() for name in _kinds(channel, column))


def _kinds(channel: str, column: Iterable[Outcome]) -> Iterable[str]:
    for outcome in column:
        if isinstance(outcome, Failed):
            yield f"{channel}.{outcome.reason}"
        elif isinstance(outcome, NotApplicable):
            yield f"n/a {channel}.{outcome.reason}"
