"""Clocks, SIGTERM, and how long an API server's trouble is borne."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from geartrain.errors import InfrastructureError

T = TypeVar("T")
LONGEST_PAUSE = 60.0
"""Seconds between two requests in a row of failing ones, unless the server asks for more."""


class StoppedError(Exception):
    """This process was asked to end."""


@dataclass(frozen=True)
class Clock:
    """Time as the launcher has it; tests have their own."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]
    """Seconds since the epoch; only to read the server's time stamps."""
    sleep: Callable[[float], object]
    """Waits these seconds, or until the process is asked to end."""
    stopping: Callable[[], bool]


@contextmanager
def until_terminated() -> Iterator[Clock]:
    """Give a clock that SIGTERM and SIGINT stop; only in the main thread. Handlers are put back at the end.

    KFP's launcher passes no signal on (kubeflow/pipelines#7903), so that it may never come: nothing depends on it.
    """
    stop = threading.Event()
    kinds = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(kind, lambda *_: stop.set()) for kind in kinds]
    try:
        yield Clock(time.monotonic, time.time, stop.wait, stop.is_set)
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


class Patience:
    """Repeats what meets trouble, so many times in a row; a success starts the count anew.

    Args:
        clock: where to wait.
        errors: failures in a row that are borne; one more is raised.
        pause_seconds: first pause; it doubles up to `LONGEST_PAUSE`. The server's Retry-After is kept if it is longer.
    """

    def __init__(self, clock: Clock, *, errors: int, pause_seconds: float) -> None:
        self._clock, self._errors, self._pause = clock, errors, pause_seconds

    def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns.

        Raises:
            InfrastructureError: it met trouble too often.
            StoppedError: the process was asked to end.
            GeartrainError: whatever else `work` raises, at once.
        """
        failures = 0
        while True:
            self.check()
            try:
                return work()
            except InfrastructureError as error:
                failures += 1
                if failures > self._errors:
                    raise InfrastructureError(f"{failures} failures in a row, the last: {error}") from error
                pause = min(self._pause * 2 ** (failures - 1), LONGEST_PAUSE)
                self.pause(max(pause, getattr(error, "retry_after", None) or 0.0))

    def pause(self, seconds: float) -> None:
        """Wait. Raises StoppedError if the process was asked to end."""
        self.check()
        self._clock.sleep(seconds)
        self.check()

    def check(self) -> None:
        """Raise StoppedError if the process was asked to end."""
        if self._clock.stopping():
            raise StoppedError
