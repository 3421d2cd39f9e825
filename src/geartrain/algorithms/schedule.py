"""Coefficients that change over a run, as functions of the share of it that is over. Source: ours."""


def linear(start: float, end: float | None, share: float) -> float:
    """Return the value on the straight line from `start` to `end`; `end` None keeps `start`. Source: ours."""
    if end is None:
        return start
    return start + (end - start) * min(1.0, max(0.0, share))


def blended(share: float, *, start: float, length: float) -> float:
    """Return 0 up to `start`, 1 from `start + length` on, linear between; shares of a run. Source: ours."""
    if length <= 0:
        return float(share >= start)
    return min(1.0, max(0.0, (share - start) / length))


def snapshot_due(iteration: int, iterations: int, *, share: float, warm_share: float) -> bool:
    """Return whether a teacher's snapshot is renewed before `iteration` (counted from 0).

    The first is taken when the warm-up ends, then one every `share` of the run, at least one iteration apart.
    Source: the article on GEAR, its period as a share of the run (ours: a period in steps exceeded whole runs).
    """
    first = round(warm_share * iterations)
    period = max(1, round(share * iterations))
    return iteration >= first and (iteration - first) % period == 0
