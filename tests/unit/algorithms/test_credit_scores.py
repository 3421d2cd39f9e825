"""Scores of credit, by cases that are worked by hand."""

import numpy as np
import pytest
from scipy import stats

from geartrain.algorithms.credit_scores import (
    key_recall,
    probability_above,
    rank_correlation,
    score_by_phase,
    score_credit,
    sign_agreement,
)

RNG = np.random.default_rng(0)


def test_rank_correlation_is_spearmans() -> None:
    credit, advantage = RNG.normal(size=40), RNG.integers(-3, 4, size=40)
    assert rank_correlation(credit, advantage) == pytest.approx(stats.spearmanr(credit, advantage).statistic)
    assert rank_correlation([1, 2, 3], [10, 20, 900]) == pytest.approx(1.0)
    assert rank_correlation([3, 2, 1], [10, 20, 900]) == pytest.approx(-1.0)
    # ranks 1.5 1.5 3 against 1 2 3: covariance 1.5, variances 1.5 and 2
    assert rank_correlation([0, 0, 5], [1, 2, 3]) == pytest.approx(1.5 / np.sqrt(1.5 * 2))


def test_what_says_nothing_is_no_number_by_accident() -> None:
    assert rank_correlation([0.3, 0.3, 0.3], [1, 2, 3]) == 0.0
    assert rank_correlation([0.0, 0.0, 0.0], [1, 2, 3]) == 0.0
    assert rank_correlation([1, 2, 3], [0.5, 0.5, 0.5]) is None
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([], []) is None


def test_rounding_errors_make_no_order() -> None:
    credit = np.array([0.1 + 0.2, 0.3, 0.3 + 1e-16])
    assert rank_correlation(credit, [1, 2, 3]) == 0.0
    assert sign_agreement([1.0, 1e-17], [1.0, 1.0]) == 0.75
    assert key_recall([0.1 + 0.2, 0.3], [True, False], 1) == 0.5


def test_sign_agreement() -> None:
    assert sign_agreement([1, -1, 2, -2], [3, -3, -3, 3]) == 0.5
    assert sign_agreement([1, -1], [0.1, -9]) == 1.0
    assert sign_agreement([0, 0, 0], [1, -1, 1]) == 0.5
    assert sign_agreement([5, 1], [0, 2]) == 1.0  # an advantage of 0 does not count
    assert sign_agreement([5, 1], [0, 0]) is None


@pytest.mark.parametrize(
    ("credit", "key", "k", "expected"),
    [
        ([5, 1, 1, 1], [1, 0, 0, 0], 1, 1.0),
        ([-5, 1, 1, 1], [1, 0, 0, 0], 1, 1.0),  # blame finds a step as praise does
        ([5, 1, 0, 0], [0, 0, 1, 0], 2, 0.0),
        ([5, 4, 3, 0], [1, 0, 1, 1], 2, 0.5),  # of the 2 that k allows, 1 is found
        ([5, 4, 3, 0], [1, 0, 0, 1], 3, 0.5),
        ([1, 1, 1, 1], [1, 0, 0, 0], 1, 0.25),  # constant credit: chance
        ([1, 1, 1, 1], [1, 1, 0, 0], 2, 0.5),
        ([9, 1, 1, 1], [0, 1, 0, 0], 2, 1 / 3),  # one place left among three
        ([2, 1], [1, 1], 5, 1.0),
        ([2, 1], [0, 0], 1, None),
    ],
)
def test_key_recall(credit: list[float], key: list[int], k: int, expected: float | None) -> None:
    assert key_recall(credit, key, k) == (None if expected is None else pytest.approx(expected))


def test_key_steps_are_sought_within_episodes() -> None:
    credit, key, episode = [9, 8, 1, 2], [1, 0, 1, 0], [0, 0, 1, 1]
    score = score_credit(credit, [4, 3, 1, 2], key_N=key, episode_N=episode, k=1)
    assert (score.key_recall, score.key_episodes, score.steps, score.signed_steps) == (0.5, 2, 4, 4)
    assert score.rank_correlation == pytest.approx(1.0)
    assert score.sign_agreement == 1.0
    assert score_credit(credit, credit, key_N=[0] * 4, episode_N=episode, k=1).key_recall is None


def test_phases_are_scored_apart() -> None:
    credit, advantage = [1, 2, 3, 3, 2, 1], [1, 2, 3, 1, 2, 3]
    phase = ["plan"] * 3 + ["do"] * 3
    scores = score_by_phase(credit, advantage, phase, key_N=[0, 0, 1, 0, 0, 1], episode_N=[0] * 6, k=1)
    assert list(scores) == ["all", "do", "plan"]
    assert scores["plan"].rank_correlation == pytest.approx(1.0)
    assert scores["do"].rank_correlation == pytest.approx(-1.0)
    assert scores["all"].rank_correlation == pytest.approx(0.0)
    assert (scores["plan"].key_recall, scores["do"].key_recall, scores["all"].key_recall) == (1.0, 0.0, 0.5)
    assert (scores["plan"].steps, scores["all"].steps) == (3, 6)


def test_the_probability_to_be_above_counts_pairs() -> None:
    first, second = RNG.integers(0, 4, size=15), RNG.integers(0, 4, size=11)
    pairs = np.sign(first[:, None] - second[None, :])
    assert probability_above(first, second) == pytest.approx(((1 + pairs) / 2).mean())
    assert probability_above([0.9, 0.8], [0.1]) == 1.0
    assert probability_above([0.5], [0.5, 0.5]) == 0.5
    assert probability_above([], [0.5]) is None
    with pytest.raises(ValueError, match="finite"):
        probability_above([float("inf")], [0.5])


def test_what_is_impossible_is_named() -> None:
    with pytest.raises(ValueError, match="differ"):
        score_credit([1, 2], [1, 2], key_N=[1], episode_N=[0, 0], k=1)
    with pytest.raises(ValueError, match="finite"):
        rank_correlation([1, 2, float("nan")], [1, 2, 3])
    with pytest.raises(ValueError, match="2 credits for 3"):
        sign_agreement([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="at least 1"):
        key_recall([1, 2], [1, 0], 0)
    with pytest.raises(ValueError, match="called 'all'"):
        score_by_phase([1, 2], [1, 2], ["all", "do"], key_N=[1, 0], episode_N=[0, 0], k=1)
