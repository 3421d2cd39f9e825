"""How long a job may queue, start and run, and how long it has.

One time-out for all three is why a queue of an hour fails a job elsewhere: the Kubeflow SDK knows no Suspended, and
opendatahub's components give a job 900 s to run (platform notes, section 4).
"""

from dataclasses import dataclass

from geartrain.cluster.phase import Observation, Phase


@dataclass(frozen=True)
class Budgets:
    """Seconds that a job may spend."""

    queue_seconds: float = 4 * 3600.0
    """Suspended by Kueue, since it ran last."""
    start_seconds: float = 45 * 60.0
    """Admitted with pods not running, since it ran last. Longer than Kueue's waitForPodsReady of 30 min (kueue#11855),
    so that Kueue gets to put a job back into the queue."""
    run_seconds: float = 48 * 3600.0
    """Running, in all its resumptions together."""


class Ledger:
    """Adds up the time that a job spends in each phase, and counts its suspensions.

    Queue and start begin anew whenever the job has run: a job that was preempted after two days may queue as long as a
    new one. One that Kueue admits and evicts in turns, and that never runs, uses its budget up.
    Time between two observations belongs to the phase that the first one saw. Where the second saw another, nobody
    knows when it changed, and an outage of the API may lie between: then at most one step counts against a budget.

    Args:
        budgets: what may be spent.
        step_seconds: the usual time between two observations.
    """

    def __init__(self, budgets: Budgets, *, step_seconds: float) -> None:
        self.budgets = budgets
        self.suspends = 0
        """How often the job lost its place again: preemptions, not failures (jobset#1117)."""
        self.total = dict.fromkeys(Phase, 0.0)
        self._step = step_seconds
        self._spent = dict.fromkeys(Phase, 0.0)
        self._last: Observation | None = None
        self._at = 0.0

    def begin(self, seen: Observation, *, monotonic: float, wall: float | None) -> None:
        """Start with a job's first observation.

        Args:
            seen: what it is doing.
            monotonic: when, in seconds of a clock that only goes forward.
            wall: for an adopted job the time in seconds since the epoch, so that a launcher that starts anew does not
                give it a new budget; None for one just created. Since when a pod is missing is not recorded, so that
                the start budget does begin anew.
        """
        if wall is not None and seen.since is not None and seen.phase in (Phase.SUSPENDED, Phase.RUNNING):
            self._add(seen.phase, max(0.0, wall - seen.since), unknown=False)
        self._last, self._at = seen, monotonic

    def note(self, seen: Observation, *, monotonic: float) -> None:
        """Add the time since the last observation, then take this one."""
        assert self._last is not None, "begin() comes first"
        last = self._last
        same = last.phase is seen.phase and (last.since == seen.since or None in (last.since, seen.since))
        self._add(last.phase, max(0.0, monotonic - self._at), unknown=not same)
        if seen.phase is Phase.SUSPENDED and not same:
            self.suspends += 1
        if seen.phase is Phase.RUNNING:
            self._spent |= {Phase.SUSPENDED: 0.0, Phase.PENDING: 0.0}
        self._last, self._at = seen, monotonic

    def spent(self, phase: Phase) -> float:
        """Return the seconds that count against the budget of a phase."""
        return self._spent[phase]

    def is_overrun(self) -> bool:
        """Whether the phase that the job is in has used its budget up; only that phase counts."""
        assert self._last is not None, "begin() comes first"
        limits = {
            Phase.SUSPENDED: self.budgets.queue_seconds,
            Phase.PENDING: self.budgets.start_seconds,
            Phase.RUNNING: self.budgets.run_seconds,
        }
        phase = self._last.phase
        return phase in limits and self._spent[phase] > limits[phase]

    def _add(self, phase: Phase, seconds: float, *, unknown: bool) -> None:
        self.total[phase] += seconds
        self._spent[phase] += min(seconds, self._step) if unknown else seconds
