import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from geartrain.rewards.channel import Tasks, ask
from geartrain.rewards.outcome import Failed, Outcome, Value
from geartrain.rewards.verified import Verified, verified_score
from geartrain.trajectory import Trajectory


class Raises:
    """Fails on one sibling, as a scorer with a bug on one record would."""

    name = "raises"

    def __init__(self, on: int) -> None:
        self._on = on

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        if any(trajectory.sibling == self._on for trajectory in trajectories):
            raise KeyError("no such column")
        return [Value(float(trajectory.sibling)) for trajectory in trajectories]


class Short:
    name = "short"

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        return [Value(1.0)] * (len(trajectories) - 1)


class Careless:
    name = "careless"

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        return [0.5 for _ in trajectories]  # type: ignore[misc]


def test_a_scorer_that_raises_on_one_of_four_gives_four_outcomes_in_order(episode: Callable[..., Trajectory]) -> None:
    outcomes = ask(Raises(on=2), [episode(sibling=i) for i in range(4)], {})
    assert outcomes[:2] + outcomes[3:] == [Value(0.0), Value(1.0), Value(3.0)]
    assert isinstance(outcomes[2], Failed)
    assert outcomes[2].reason == "raised_KeyError"
    assert "no such column" in outcomes[2].detail


def test_a_wrong_count_is_no_answer_for_anyone(episode: Callable[..., Trajectory]) -> None:
    outcomes = ask(Short(), [episode(sibling=i) for i in range(3)], {})
    assert [type(outcome) for outcome in outcomes] == [Failed] * 3


def test_a_bare_number_is_no_outcome(episode: Callable[..., Trajectory]) -> None:
    (outcome,) = ask(Careless(), [episode()], {})
    assert isinstance(outcome, Failed)
    assert outcome.reason == "not_an_outcome"


def test_nothing_to_score_is_nothing(episode: Callable[..., Trajectory]) -> None:
    assert ask(Short(), [], {}) == []


def test_success_always_ranks_above_failure_and_progress_orders_failures(episode: Callable[..., Trajectory]) -> None:
    ranked = [(True, 0.0), (False, 1.0), (False, 0.5), (False, 0.0)]
    outcomes = Verified().score([episode(success=s, progress=p) for s, p in ranked], {})
    assert outcomes == [Value(1.0), Value(0.2), Value(0.1), Value(0.0)]
    assert verified_score(False, 1.0, progress_weight=0.99) < verified_score(True, 0.0, progress_weight=0.99)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"success": -1}, "verdict_not_boolean"),  # a failing test's result code is truthy
        ({"success": "yes"}, "verdict_not_boolean"),
        ({"progress": math.nan}, "progress_out_of_range"),
        ({"progress": 1.5}, "progress_out_of_range"),
        ({"progress": math.inf}, "progress_out_of_range"),
    ],
)
def test_a_verdict_that_is_none_fails(episode: Callable[..., Trajectory], fields: dict[str, Any], reason: str) -> None:
    (outcome,) = ask(Verified(), [episode(**fields)], {})
    assert isinstance(outcome, Failed)
    assert outcome.reason == reason
