"""How good the credit of single steps is, where their exact advantage is known (all ours, but the rank correlation).

Credit and advantage need no common scale: what is asked is whether credit ranks
steps rightly, has the right sign, and finds the steps that matter.

What holds where nothing can be told:

- Constant credit says nothing: rank correlation 0, never NaN. So does a
  constant advantage: there is nothing to rank, and the correlation is None.
- Values that differ by less than 1e-9 of the largest magnitude are equal.
- Fewer than `MIN_STEPS` steps have no rank correlation (None): two points always
  lie on a line. Below some 30 steps its standard error, about 1/sqrt(N - 1), is
  above 0.18; the numbers of steps and episodes are returned beside each score.
- Credit 0 agrees in sign by half, as a coin would. Steps whose exact advantage is 0
  have no sign and do not count; None when none is left.
- Ties for the last of the k places are drawn by lot: the expected recall is given.
  Episodes without a key step do not count; None when none is left.

Legend: N steps, of any number of episodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]
MIN_STEPS = 3
"""Fewest steps that have a rank correlation."""
_TIE = 1e-9


@dataclass(frozen=True)
class CreditScore:
    """How well credit agrees with exact advantage; None where nothing can be told."""

    steps: int
    rank_correlation: float | None
    """Spearman, in [-1, 1]."""
    sign_agreement: float | None
    """Share of steps with the right sign, in [0, 1]; chance is 0.5."""
    signed_steps: int
    """Steps that counted for it."""
    key_recall: float | None
    """Mean share of an episode's key steps among its k steps of largest credit, in [0, 1]."""
    key_episodes: int
    """Episodes that counted for it."""


def score_credit(
    credit_N: ArrayLike, advantage_N: ArrayLike, *, key_N: ArrayLike, episode_N: ArrayLike, k: int
) -> CreditScore:
    """Return how well per-step credit agrees with the exact advantage (ours).

    Args:
        credit_N: what a method gave each step, any scale.
        advantage_N: exact advantage of each step.
        key_N: whether the step is a key step, one where the choice matters.
        episode_N: which episode the step is of (any labels); key steps are sought within episodes.
        k: how many steps of an episode are looked at.

    Raises:
        ValueError: lengths differ, a value is not finite, or k < 1.
    """
    credit, advantage = _vector("credit", credit_N), _vector("advantage", advantage_N)
    key, episode = np.asarray(key_N, dtype=bool), np.asarray(episode_N)
    if not credit.shape == advantage.shape == key.shape == episode.shape:
        raise ValueError(f"score_credit: lengths {credit.size}, {advantage.size}, {key.size} and {episode.size} differ")
    signed = _signs(advantage) != 0
    recalls = [
        recall
        for name in np.unique(episode)
        if (recall := key_recall(credit[episode == name], key[episode == name], k)) is not None
    ]
    return CreditScore(
        steps=credit.size,
        rank_correlation=rank_correlation(credit, advantage),
        sign_agreement=sign_agreement(credit, advantage),
        signed_steps=int(signed.sum()),
        key_recall=float(np.mean(recalls)) if recalls else None,
        key_episodes=len(recalls),
    )


def score_by_phase(
    credit_N: ArrayLike,
    advantage_N: ArrayLike,
    phase_N: Sequence[str],
    *,
    key_N: ArrayLike,
    episode_N: ArrayLike,
    k: int,
) -> dict[str, CreditScore]:
    """Return `score_credit` of all steps under "all", and of the steps of each phase under its name (ours).

    Within a phase, key steps are sought among the episode's steps of that phase.
    Raises ValueError as `score_credit`, and when a phase is called "all".
    """
    credit, advantage, key, episode = map(np.asarray, (credit_N, advantage_N, key_N, episode_N))
    phase = np.asarray(phase_N, dtype=str)
    if phase.shape != credit.shape or "all" in phase:
        raise ValueError(
            f"score_by_phase: one phase per step and none called 'all'; got {phase.size} for {credit.size}"
        )
    scores = {"all": score_credit(credit, advantage, key_N=key, episode_N=episode, k=k)}
    for name in np.unique(phase):
        here = phase == name
        scores[str(name)] = score_credit(credit[here], advantage[here], key_N=key[here], episode_N=episode[here], k=k)
    return scores


def rank_correlation(credit_N: ArrayLike, advantage_N: ArrayLike) -> float | None:
    """Return Spearman's correlation with mean ranks for ties (source: Spearman, 1904).

    0 when credit is constant; None when the advantage is, or below `MIN_STEPS` steps.
    Raises ValueError: lengths differ or a value is not finite.
    """
    credit, advantage = _rounded(_vector("credit", credit_N)), _rounded(_vector("advantage", advantage_N))
    if credit.shape != advantage.shape:
        raise ValueError(f"rank_correlation: {credit.size} credits for {advantage.size} advantages")
    if credit.size < MIN_STEPS or np.ptp(advantage) == 0:
        return None
    if np.ptp(credit) == 0:
        return 0.0
    ranks = [stats.rankdata(values) - (credit.size + 1) / 2 for values in (credit, advantage)]
    return float(ranks[0] @ ranks[1] / np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1])))


def sign_agreement(credit_N: ArrayLike, advantage_N: ArrayLike) -> float | None:
    """Return the share of steps whose credit has the sign of the advantage (ours); credit 0 counts half.

    Steps of advantage 0 do not count; None when none is left. Raises ValueError as `rank_correlation`.
    """
    credit, advantage = _vector("credit", credit_N), _vector("advantage", advantage_N)
    if credit.shape != advantage.shape:
        raise ValueError(f"sign_agreement: {credit.size} credits for {advantage.size} advantages")
    product = (_signs(credit) * _signs(advantage))[_signs(advantage) != 0]
    return float(np.mean((1 + product) / 2)) if product.size else None


def key_recall(credit_N: ArrayLike, key_N: ArrayLike, k: int) -> float | None:
    """Return the share of one episode's key steps among its k steps of largest |credit| (ours).

    The share is of min(k, number of key steps), so that 1 can be reached. Ties
    for the last places are drawn by lot and the expectation is returned; None
    without key steps. Raises ValueError: lengths differ, a value is not finite, or k < 1.
    """
    size, key = np.abs(_rounded(_vector("credit", credit_N))), np.asarray(key_N, dtype=bool)
    if size.shape != key.shape or k < 1:
        raise ValueError(f"key_recall: k must be at least 1, got {k}, and {size.size} credits are for {key.size} steps")
    wanted = min(k, int(key.sum()))
    if wanted == 0:
        return None
    last = np.sort(size)[::-1][min(k, size.size) - 1]
    above, tied = size > last, size == last
    places = min(k, size.size) - above.sum()
    return float((key[above].sum() + places * key[tied].mean()) / wanted)


def probability_above(first_N: ArrayLike, second_N: ArrayLike) -> float | None:
    """Return the probability that a value of the first kind is the larger, ties by half, in [0, 1]; chance is 0.5.

    The area under the ROC curve. Source: Mann and Whitney, 1947. None where a kind has no value.
    Raises ValueError: a value is not finite.
    """
    first, second = _vector("first", first_N), _vector("second", second_N)
    if not first.size or not second.size:
        return None
    ranks = stats.rankdata(_rounded(np.concatenate([first, second])))[: first.size]
    return float((ranks.sum() - first.size * (first.size + 1) / 2) / (first.size * second.size))


def _vector(name: str, values: ArrayLike) -> Floats:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not np.all(np.isfinite(vector)):
        raise ValueError(f"{name} is a finite vector, got shape {vector.shape}")
    return vector


def _rounded(value_N: Floats) -> Floats:
    """Return values in units of the largest magnitude, such that rounding errors of a method make no order."""
    largest = np.max(np.abs(value_N), initial=0.0)
    rounded: Floats = np.round(value_N / largest / _TIE) if largest > 0 else value_N
    return rounded


def _signs(value_N: Floats) -> Floats:
    signs: Floats = np.sign(_rounded(value_N))
    return signs
