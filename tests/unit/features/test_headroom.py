import math

import numpy as np
import pytest

from geartrain.features import headroom


def test_what_was_never_played_has_its_familys_record_and_that_failing_one_half():
    nan = math.nan
    success = headroom.expected_success([nan, 0, 6], [nan, 0, 6], [nan, 12, 12], [nan, 3, 3])
    family = (3 + headroom.PRIOR / 2) / (12 + headroom.PRIOR)
    assert success.tolist() == [0.5, family, (6 + headroom.PRIOR * family) / (6 + headroom.PRIOR)]


@pytest.mark.parametrize("siblings", [2, 6])
def test_headroom_is_the_share_of_groups_that_are_mixed(siblings):
    random = np.random.default_rng(0)
    for success in (0.05, 0.5, 0.9):
        solved = (random.random((20_000, siblings)) < success).sum(axis=1)
        mixed = ((solved > 0) & (solved < siblings)).mean()
        assert headroom.headroom(success, siblings) == pytest.approx(mixed, abs=0.015)
    assert headroom.headroom([0.0, 1.0], siblings).tolist() == [0.0, 0.0]


def test_tasks_are_drawn_once_each_in_proportion_and_none_is_written_off():
    headroom_N = np.array([0.0] * 10 + [0.9] * 10)
    counts = np.zeros(20)
    for seed in range(2000):
        drawn = headroom.draw(headroom_N, 2, seed=seed)
        assert len(set(drawn)) == 2
        counts[drawn] += 1
    hopeless = counts[:10].sum() / counts.sum()
    assert hopeless == pytest.approx(headroom.EXPLORATION / 2, abs=0.02)
    assert (counts > 0).all()
    assert headroom.draw(headroom_N, 5, seed=1) == headroom.draw(headroom_N, 5, seed=1)
    assert sorted(headroom.draw(np.zeros(3), 3, seed=0)) == [0, 1, 2]  # nothing left to learn: all are drawn alike
