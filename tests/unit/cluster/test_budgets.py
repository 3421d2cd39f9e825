"""What counts against which budget, and what does not."""

import pytest

from geartrain.cluster.budgets import Budgets, Ledger
from geartrain.cluster.phase import Observation, Phase

BUDGETS = Budgets(queue_seconds=100, start_seconds=50, run_seconds=200)
S, P, R = Phase.SUSPENDED, Phase.PENDING, Phase.RUNNING


def _ledger(*phases: Phase, step: float = 10, since: tuple[float | None, ...] = ()) -> Ledger:
    """A ledger that saw these phases, ten seconds apart."""
    ledger = Ledger(BUDGETS, step_seconds=step)
    times = since or (0.0,) * len(phases)
    for index, (phase, time) in enumerate(zip(phases, times, strict=True)):
        seen = Observation(phase, since=time)
        if index == 0:
            ledger.begin(seen, monotonic=0, wall=None)
        else:
            ledger.note(seen, monotonic=10.0 * index)
    return ledger


@pytest.mark.parametrize(("phase", "polls"), [(S, 11), (P, 6), (R, 21)])
def test_each_phase_has_its_own_budget(phase: Phase, polls: int) -> None:
    assert not _ledger(*[phase] * polls).is_overrun()
    assert _ledger(*[phase] * (polls + 1)).is_overrun()


def test_a_phase_that_is_over_cannot_overrun() -> None:
    assert not _ledger(*[S] * 12, P).is_overrun()
    assert not _ledger(*[R] * 30, Phase.COMPLETE).is_overrun()


def test_queue_and_start_begin_anew_when_the_job_has_run_and_running_adds_up() -> None:
    ledger = _ledger(*[S] * 11, P, R, *[S] * 11)
    assert not ledger.is_overrun()
    assert (ledger.total[S], ledger.spent(S)) == (210, 100)
    assert _ledger(*[R] * 11, S, *[R] * 11).spent(R) == 210


def test_turns_of_admission_and_eviction_do_not_begin_anew() -> None:
    assert _ledger(*[S] * 6, P, *[S] * 6).is_overrun()


def test_suspensions_are_counted_the_first_wait_is_none() -> None:
    assert _ledger(S, S, P, R).suspends == 0
    assert _ledger(S, P, S, R, S, S).suspends == 2


def test_a_resumption_between_two_observations_is_seen_by_its_time() -> None:
    assert _ledger(S, S, S, since=(1.0, 1.0, 5.0)).suspends == 1
    assert _ledger(S, S, since=(None, 5.0)).suspends == 0


def test_an_outage_counts_as_one_step_if_the_phase_has_changed_meanwhile() -> None:
    ledger = Ledger(BUDGETS, step_seconds=10)
    ledger.begin(Observation(S, since=0.0), monotonic=0, wall=None)
    ledger.note(Observation(S, since=900.0), monotonic=1000)
    assert (ledger.spent(S), ledger.total[S]) == (10, 1000)
    ledger.note(Observation(S, since=900.0), monotonic=2000)
    assert ledger.is_overrun()


@pytest.mark.parametrize(
    ("phase", "since", "overrun"),
    [(S, 800.0, True), (S, 950.0, False), (S, 2000.0, False), (S, None, False), (R, 700.0, True), (P, 0.0, False)],
)
def test_an_adopter_takes_the_time_over(phase: Phase, since: float | None, overrun: bool) -> None:
    # a pod may be missing since a moment ago in a job that was resumed long ago: starting does begin anew
    ledger = Ledger(BUDGETS, step_seconds=10)
    ledger.begin(Observation(phase, since=since), monotonic=5, wall=1000.0)
    assert ledger.is_overrun() is overrun
