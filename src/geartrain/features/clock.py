"""The clock of the pipeline's own features: it counts iterations, so that the same work has the same times.

An artifact holds no time of the wall. What is learned from the collected rollouts is known at tick 0; the policy's
iteration k draws its tasks by what is known at tick k, and what it learns from them is known at tick k + 1.
"""

from datetime import datetime, timedelta

COLLECTED = 0
"""The tick at which the collected rollouts are known."""
TICK = timedelta(hours=1)
"""What one iteration counts for; how long it took is no property of the result."""


def after(iteration: int) -> int:
    """Return the tick at which what an iteration has played is known."""
    return iteration + 1


def time_of(origin: datetime, tick: int) -> datetime:
    """Return a tick as a time; tick 0 is `origin`."""
    return origin + tick * TICK
