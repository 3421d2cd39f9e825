"""Statistics of an evaluation: how sure a success rate is, and whether a gain is one.

Episodes of one task share its difficulty, so the task is the unit that is
resampled, never the episode: intervals that resample episodes come out too
narrow by up to the square root of the samples per task.

Legend: N tasks, S samples per task. `outcome_NS` holds 0/1 (or any score), row
by row the same tasks in the same order wherever two tables are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate and a two-sided confidence interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Gain:
    """A paired difference "after minus before", its interval and a two-sided p-value."""

    estimate: float
    low: float
    high: float
    p_value: float
    tasks: int


def success_rate(outcome_NS: ArrayLike, *, confidence: float, resamples: int, seed: int) -> Interval:
    """Return the mean outcome with a bootstrap interval over tasks.

    Source: Efron (1987), bias-corrected and accelerated, as scipy implements it. Where
    all tasks agree there is nothing to resample: the exact binomial interval
    over tasks (Clopper-Pearson 1934) is given instead (that choice: ours), so that 0 of 120 is not
    reported as certainty. A task counts once there, however many samples it has.

    Raises:
        ValueError: the table is empty, ragged, not finite or outside [0, 1].
    """
    mean_N = _task_means(outcome_NS)
    if np.any((mean_N < 0) | (mean_N > 1)):
        raise ValueError("success_rate: outcomes lie in [0, 1]")
    low, high = _bootstrap_mean(mean_N, confidence=confidence, resamples=resamples, seed=seed)
    return Interval(float(mean_N.mean()), max(low, 0.0), min(high, 1.0))


def paired_gain(before_NS: ArrayLike, after_NS: ArrayLike, *, confidence: float, resamples: int, seed: int) -> Gain:
    """Return the mean gain over the same tasks, with interval and p-value.

    Interval: bootstrap of the per-task differences, as in `success_rate` (ours).
    p-value: permutation test that swaps before and after within a task (Source:
    Fisher, 1935, The Design of Experiments); exact when the
    2**N swaps are no more than `resamples`, else by that many random ones.

    Raises:
        ValueError: the tables are empty, ragged or of different numbers of tasks.
    """
    before_N, after_N = _task_means(before_NS), _task_means(after_NS)
    if before_N.shape != after_N.shape:
        raise ValueError(f"paired_gain: {before_N.size} tasks before, {after_N.size} after; pairs need the same tasks")
    difference_N = after_N - before_N
    low, high = _bootstrap_mean(difference_N, confidence=confidence, resamples=resamples, seed=seed)
    p_value = _swap_test(before_N, after_N, resamples=resamples, seed=seed)
    return Gain(float(difference_N.mean()), max(low, -1.0), min(high, 1.0), p_value, before_N.size)


def mcnemar_exact(before_N: ArrayLike, after_N: ArrayLike) -> float:
    """Return the two-sided exact McNemar p-value of one 0/1 outcome per task and model.

    Binomial test of the discordant pairs against 1/2 (source: McNemar, 1947,
    Psychometrika 12, in its exact form). 1.0 when no pair disagrees.

    Raises:
        ValueError: the two vectors differ in length.
    """
    before = np.asarray(before_N, dtype=bool)
    after = np.asarray(after_N, dtype=bool)
    if before.ndim != 1 or before.shape != after.shape:
        raise ValueError(f"mcnemar_exact: two vectors of equal length, got shapes {before.shape} and {after.shape}")
    gained, lost = int(np.sum(after & ~before)), int(np.sum(before & ~after))
    return float(stats.binomtest(gained, gained + lost, 0.5).pvalue) if gained + lost else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for having looked at all of them; one below alpha keeps the family's error below alpha.

    In ascending order the i-th of m is multiplied by m - i + 1, and none is smaller than the one before it; at most 1.
    Valid whatever the p-values have in common, such as a control that all are compared with.
    Source: Holm (1979), Scandinavian Journal of Statistics 6.

    Raises:
        ValueError: a p-value is outside [0, 1].
    """
    if not all(0 <= p <= 1 for p in p_values):  # put so that NaN is refused too
        raise ValueError(f"holm: p-values lie in [0, 1], got {list(p_values)}")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def pass_at_k(successes_N: ArrayLike, samples: int, k: int) -> float:
    """Return the mean chance that at least one of k fresh samples succeeds.

    Unbiased: `1 - C(n-c, k) / C(n, k)` per task (Chen et al. 2021, arXiv 2107.03374).

    Raises:
        ValueError: k is not in 1..samples, or a count is not in 0..samples.
    """
    count_N = _counts(successes_N, samples, k)
    return float(np.mean(1.0 - special.comb(samples - count_N, k) / special.comb(samples, k)))


def pass_hat_k(successes_N: ArrayLike, samples: int, k: int) -> float:
    """Return the mean chance that all of k fresh samples succeed (pass^k).

    Unbiased: `C(c, k) / C(n, k)` per task (tau-bench, arXiv 2406.12045).

    Raises:
        ValueError: as `pass_at_k`.
    """
    count_N = _counts(successes_N, samples, k)
    return float(np.mean(special.comb(count_N, k) / special.comb(samples, k)))


def minimum_detectable_effect(
    tasks: int, *, deviation: float = 0.5, confidence: float = 0.95, power: float = 0.8
) -> float:
    """Return the smallest mean gain that a paired comparison of `tasks` tasks would find.

    Normal approximation: `(z_{1-alpha/2} + z_power) * deviation / sqrt(tasks)`
    (source: Cohen, 1988, Statistical Power Analysis).
    `deviation` is the standard deviation of the per-task differences; for one
    0/1 outcome each it is the square root of the share of discordant tasks when
    the gain is small (0.5: one task in four changes its outcome).

    Raises:
        ValueError: tasks < 1, deviation < 0, or a probability outside (0, 1).
    """
    if tasks < 1 or deviation < 0 or not (0 < confidence < 1 and 0 < power < 1):
        raise ValueError("minimum_detectable_effect: tasks >= 1, deviation >= 0, confidence and power in (0, 1)")
    quantiles = stats.norm.ppf(0.5 + confidence / 2) + stats.norm.ppf(power)
    return float(quantiles * deviation / np.sqrt(tasks))


def _task_means(outcome_NS: ArrayLike) -> Floats:
    """Return [N]; a vector is taken as one sample per task."""
    table = np.asarray(outcome_NS, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.size == 0 or not np.all(np.isfinite(table)):
        raise ValueError(f"outcomes form a finite table [tasks, samples]; got shape {table.shape}")
    mean_N: Floats = table.mean(axis=1)
    return mean_N


def _bootstrap_mean(value_N: Floats, *, confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    if np.ptp(value_N) < 1e-12:
        return _agreeing(float(value_N[0]), value_N.size, confidence)
    result = stats.bootstrap(
        (value_N,),
        np.mean,
        n_resamples=resamples,
        vectorized=True,
        confidence_level=confidence,
        # Two values give BCa nothing to accelerate by.
        method="BCa" if value_N.size > 2 else "percentile",
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _agreeing(value: float, tasks: int, confidence: float) -> tuple[float, float]:
    """Return an interval for tasks that all score `value`.

    The chance that a task scores otherwise is at most that of 0 hits in `tasks`
    draws, and a task that does moves the mean by at most its whole distance.
    """
    slack = float(stats.binomtest(0, tasks).proportion_ci(confidence, method="exact").high)
    return value - slack, value + slack


def _swap_test(before_N: Floats, after_N: Floats, *, resamples: int, seed: int) -> float:
    def gain(after: Floats, before: Floats, axis: int = -1) -> Any:
        return np.mean(after - before, axis=axis)

    if np.array_equal(before_N, after_N):
        return 1.0
    if before_N.size == 1:
        return 1.0  # two swaps, equally likely
    result = stats.permutation_test(
        (after_N, before_N),
        gain,
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=1024,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def _counts(successes_N: ArrayLike, samples: int, k: int) -> Floats:
    count_N = np.asarray(successes_N, dtype=np.float64)
    if not 1 <= k <= samples:
        raise ValueError(f"k must be in 1..{samples}, got {k}")
    if count_N.size == 0 or np.any((count_N < 0) | (count_N > samples)):
        raise ValueError(f"successes per task must be in 0..{samples}")
    return count_N
