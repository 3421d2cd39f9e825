"""What is asked of a sandbox, and what it answers: limits, calls, values and failures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NoReturn

from geartrain.errors import UserError

Reason = Literal["error", "value", "time", "memory", "output", "disk", "killed", "unavailable"]
"""error: it raised. value: what it returned is no data. time, memory, output, disk: over a limit. killed: it ended, or
had to be ended, for any other cause. unavailable: the sandbox itself failed, which says nothing of the code."""


@dataclass(frozen=True)
class Limits:
    """What one run may use."""

    seconds: float = 5.0
    """Wall clock, the time between calls not counted."""
    cpu_seconds: int = 5
    memory_bytes: int = 512 << 20
    """On top of what the interpreter has."""
    output_bytes: int = 64 << 10
    """stdout and stderr together."""
    value_bytes: int = 1 << 20
    """One answer, as JSON."""
    disk_bytes: int = 8 << 20
    files: int = 64

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            whole = limit.name != "seconds"
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                raise UserError(f"limits.{limit.name}={value!r}: expected a {'whole ' if whole else ''}number")
            if not math.isfinite(value) or value <= 0:
                raise UserError(f"limits.{limit.name}={value!r}: expected a finite number above 0")


@dataclass(frozen=True)
class Call:
    """A function of the code, and what it is called with: plain data (`values`)."""

    function: str
    arguments: Sequence[Any] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


class _Untrue:
    """An answer has no truth of its own: `all(answers)` would call failures right."""

    def __bool__(self) -> NoReturn:
        raise TypeError("an answer is neither true nor false: look whether it is a Value, and compare its data")


@dataclass(frozen=True)
class Value(_Untrue):
    """What a call returned: None, bool, int, finite float, str, or list, tuple, set, frozenset, dict of those."""

    data: Any


@dataclass(frozen=True)
class Failed(_Untrue):
    """Why there is no value."""

    reason: Reason
    detail: str
    """For people, and for whoever mends the code; text that the code may have chosen."""


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    answers: tuple[Value | Failed, ...]
    """One for each call, in order. A run that ended early has that failure for each call that it did not answer."""
    seconds: float
    """Wall clock, from start to end of the process."""
    cpu_seconds: float
    output: str
    """The beginning of what was printed, within the limit."""

    @property
    def failed(self) -> Failed | None:
        """The first failure."""
        return next((answer for answer in self.answers if isinstance(answer, Failed)), None)

    @property
    def values(self) -> list[Any]:
        """What the calls returned.

        Raises:
            ValueError: one of them failed.
        """
        if self.failed is not None:
            raise ValueError(f"{self.failed.reason}: {self.failed.detail}")
        return [answer.data for answer in self.answers if isinstance(answer, Value)]
