"""Statistics against enumeration, published formulas and planted effects."""

import itertools
import math
import warnings

import numpy as np
import pytest

from geartrain.algorithms import statistics


def rate(table, **options):
    return statistics.success_rate(table, **{"confidence": 0.95, "resamples": 2000, "seed": 0, **options})


def gain(before, after, **options):
    return statistics.paired_gain(before, after, **{"confidence": 0.95, "resamples": 2000, "seed": 0, **options})


def test_rate_is_the_mean_and_lies_inside_its_interval():
    table = np.random.default_rng(1).random((60, 3)) < 0.4
    found = rate(table)
    assert found.estimate == pytest.approx(table.mean())
    assert 0 < found.low < found.estimate < found.high < 1


def test_same_seed_repeats_and_another_seed_differs():
    table = np.random.default_rng(1).random((30, 2))
    assert rate(table) == rate(table)
    assert rate(table) != rate(table, seed=1)


def test_samples_of_a_task_stay_together():
    """Copying every episode of a task adds no information, so the interval must not narrow."""
    once = (np.random.default_rng(2).random((50, 1)) < 0.5).astype(float)
    assert rate(np.repeat(once, 8, axis=1)) == rate(once)
    pooled = rate(np.repeat(once, 8, axis=1).reshape(-1, 1))
    assert pooled.high - pooled.low < 0.6 * (rate(once).high - rate(once).low)


@pytest.mark.parametrize(("value", "low", "high"), [(0, 0.0, 1 - 0.025 ** (1 / 20)), (1, 0.025 ** (1 / 20), 1.0)])
def test_unanimous_tasks_get_the_exact_binomial_interval(value, low, high):
    found = rate(np.full((20, 3), value))
    assert (found.low, found.estimate, found.high) == pytest.approx((low, value, high))


def test_every_small_table_gives_a_finite_interval_without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tasks in (1, 2, 3, 4, 5):
            for column in itertools.product([0.0, 0.5, 1.0], repeat=tasks):
                found = rate(np.array(column)[:, None], resamples=200)
                assert 0 <= found.low <= found.estimate <= found.high <= 1, column


@pytest.mark.parametrize("bad", [[], [[]], [[0.0, math.nan]], [[2.0]], np.zeros((2, 2, 2))])
def test_impossible_tables_are_refused(bad):
    with pytest.raises(ValueError, match=r"outcomes"):
        rate(bad)


def test_gain_p_value_matches_enumeration_of_all_swaps():
    before = np.array([[0, 0], [1, 0], [0, 0], [1, 1], [0, 1], [0, 0], [1, 0]], dtype=float)
    after = np.array([[1, 1], [1, 1], [0, 0], [1, 0], [1, 1], [1, 0], [1, 1]], dtype=float)
    difference = (after - before).mean(axis=1)
    swaps = [abs(np.dot(difference, signs)) for signs in itertools.product([1, -1], repeat=len(difference))]
    exact = np.mean([value >= abs(difference.sum()) - 1e-12 for value in swaps])
    found = gain(before, after)
    assert found.p_value == pytest.approx(exact)
    assert found.estimate == pytest.approx(difference.mean())
    assert found.tasks == 7


def test_gain_is_antisymmetric():
    generator = np.random.default_rng(3)
    before, after = generator.random((40, 2)) < 0.3, generator.random((40, 2)) < 0.6
    forth, back = gain(before, after), gain(after, before)
    assert forth.estimate == pytest.approx(-back.estimate)
    assert (forth.low, forth.high) == pytest.approx((-back.high, -back.low), abs=0.02)


def test_equal_models_show_no_gain_but_do_not_claim_certainty():
    table = np.random.default_rng(4).random((30, 2)) < 0.5
    found = gain(table, table)
    assert (found.estimate, found.p_value) == (0.0, 1.0)
    assert found.low < 0 < found.high


def test_gain_refuses_other_tasks():
    with pytest.raises(ValueError, match="3 tasks before, 4 after"):
        gain(np.zeros((3, 1)), np.ones((4, 1)))


def test_interval_covers_a_planted_gain_and_a_null_is_rarely_rejected():
    """120 tasks of spread difficulty, gain +0.15: the 95 % interval must hold it about 95 times in 100."""
    generator = np.random.default_rng(5)
    covered = rejected = 0
    runs = 200
    for run in range(runs):
        difficulty = generator.uniform(0.1, 0.75, size=(120, 1))
        before = generator.random((120, 2)) < difficulty
        after = generator.random((120, 2)) < difficulty + 0.15
        found = gain(before, after, resamples=400, seed=run)
        covered += found.low <= 0.15 <= found.high
        rejected += gain(before, generator.random((120, 2)) < difficulty, resamples=400, seed=run).p_value < 0.05
    assert 0.90 <= covered / runs <= 0.99
    assert rejected / runs <= 0.10


@pytest.mark.parametrize(
    ("gained", "lost", "expected"),
    [(0, 0, 1.0), (5, 0, 2 * 0.5**5), (3, 3, 1.0), (8, 1, 2 * (1 + 9) / 2**9)],
)
def test_mcnemar_counts_only_discordant_pairs(gained, lost, expected):
    before = [False] * gained + [True] * lost + [True, False] * 10
    after = [True] * gained + [False] * lost + [True, False] * 10
    assert statistics.mcnemar_exact(before, after) == pytest.approx(expected)


def test_mcnemar_refuses_unequal_vectors():
    with pytest.raises(ValueError, match="equal length"):
        statistics.mcnemar_exact([True], [True, False])


@pytest.mark.parametrize(
    ("given", "adjusted"),
    [
        ([], []),
        ([0.04], [0.04]),
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),  # 3 x 0.01, 2 x 0.03, then 1 x 0.04, raised to the one before
        ([0.2, 0.001, 0.2], [0.4, 0.003, 0.4]),
        ([0.6, 0.7], [1.0, 1.0]),
        ([0.0, 1.0], [0.0, 1.0]),
    ],
)
def test_holm_by_hand(given, adjusted):
    assert statistics.holm(given) == pytest.approx(adjusted)


def test_holm_keeps_the_error_of_the_family():
    """Of families without any effect, at most the stated share has a finding; without Holm most have one."""
    p_values = np.random.default_rng(7).random((2000, 20))
    assert 0.03 < np.mean([min(statistics.holm(row)) < 0.05 for row in p_values]) < 0.065
    assert np.mean(p_values.min(axis=1) < 0.05) > 0.5


@pytest.mark.parametrize("bad", [[0.5, -0.1], [1.1], [math.nan, 0.1]])
def test_holm_refuses_what_is_no_probability(bad):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        statistics.holm(bad)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_pass_at_k_and_pass_hat_k_match_enumeration_of_subsets(k):
    table = [[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
    subsets = list(itertools.combinations(range(4), k))
    some = np.mean([np.mean([any(row[i] for i in subset) for subset in subsets]) for row in table])
    every = np.mean([np.mean([all(row[i] for i in subset) for subset in subsets]) for row in table])
    counts = [sum(row) for row in table]
    assert statistics.pass_at_k(counts, 4, k) == pytest.approx(some)
    assert statistics.pass_hat_k(counts, 4, k) == pytest.approx(every)


@pytest.mark.parametrize(("counts", "k"), [([1], 0), ([1], 3), ([3], 1), ([-1], 1), ([], 1)])
def test_pass_at_k_refuses_impossible_counts(counts, k):
    for estimator in (statistics.pass_at_k, statistics.pass_hat_k):
        with pytest.raises(ValueError, match=r"must be in"):
            estimator(counts, 2, k)


def test_minimum_detectable_effect_is_the_textbook_value():
    assert statistics.minimum_detectable_effect(120) == pytest.approx(2.8016 * 0.5 / math.sqrt(120), abs=1e-4)
    # of benchmarks in the papers: what they could have seen where one task in four changes its outcome
    smaller = [statistics.minimum_detectable_effect(tasks) for tasks in (20, 168, 417)]
    assert smaller == pytest.approx([0.3132, 0.1081, 0.0686], abs=1e-4)
    more = [statistics.minimum_detectable_effect(20, deviation=deviation) for deviation in (0.1, 0.5, 1.0)]
    assert more == sorted(more)
    with pytest.raises(ValueError, match="tasks >= 1"):
        statistics.minimum_detectable_effect(0)


def test_planted_effect_at_the_detectable_size_is_found_with_the_stated_power():
    generator = np.random.default_rng(6)
    effect = statistics.minimum_detectable_effect(100, deviation=0.5, power=0.8)
    found = [
        gain(np.zeros(100), generator.normal(effect, 0.5, 100), resamples=300, seed=run).p_value < 0.05
        for run in range(150)
    ]
    assert 0.7 <= np.mean(found) <= 0.9
