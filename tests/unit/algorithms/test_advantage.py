import math

import pytest

from geartrain.algorithms.advantage import absolute, group_relative, leave_one_out, without_scale

ESTIMATORS = [group_relative, without_scale, leave_one_out]


def test_closed_forms():
    rewards, groups = [1.0, 0.0, 0.5, 2.0], ["a", "a", "b", "b"]
    std = math.sqrt(0.5)  # of {1, 0}, with n - 1
    assert group_relative(rewards, groups).advantage_N.tolist() == pytest.approx(
        [0.5 / std, -0.5 / std, -0.7071, 0.7071], rel=1e-4
    )
    assert without_scale(rewards, groups).advantage_N.tolist() == pytest.approx([0.5, -0.5, -0.75, 0.75])
    assert leave_one_out(rewards, groups).advantage_N.tolist() == pytest.approx([1.0, -1.0, -1.5, 1.5])


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_groups_are_told_by_id_wherever_their_rows_lie(estimate):
    rewards, groups = [1.0, 5.0, 0.0, 7.0, 0.5, 6.5], ["x", "y", "x", "y", "x", "y"]
    shuffled = [4, 1, 5, 0, 3, 2]
    expected = estimate(rewards, groups).advantage_N
    found = estimate([rewards[i] for i in shuffled], [groups[i] for i in shuffled]).advantage_N
    assert found.tolist() == expected[shuffled].tolist()
    alone = estimate([1.0, 0.0, 0.5], ["x"] * 3).advantage_N
    assert expected[[0, 2, 4]].tolist() == alone.tolist()


@pytest.mark.parametrize("estimate", ESTIMATORS)
@pytest.mark.parametrize("broken", [None, math.nan, math.inf])
def test_a_failed_reward_is_left_out_counted_and_gets_nothing(estimate, broken):
    result = estimate([broken, 0.2, 0.9], ["g"] * 3)
    assert result.excluded == 1
    assert result.advantage_N[0] == 0
    assert result.advantage_N[1:].tolist() == estimate([0.2, 0.9], ["g"] * 2).advantage_N.tolist()


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_a_group_of_one_is_refused(estimate):
    with pytest.raises(ValueError, match="one member"):
        estimate([0.7, 0.1, 0.2], ["alone", "pair", "pair"])


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_equal_rewards_give_exactly_nothing(estimate):
    # the mean of seven times 0.1 is not 0.1 in floating point; divided by a tiny deviation it would be noise
    result = estimate([0.1] * 7 + [1.0, 0.0], ["flat"] * 7 + ["live"] * 2)
    assert result.advantage_N[:7].tolist() == [0.0] * 7
    assert result.flat == {"flat"}


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_a_group_left_with_one_reward_is_flat(estimate):
    result = estimate([0.3, None, None], ["g"] * 3)
    assert result.flat == {"g"}
    assert result.excluded == 2
    assert result.advantage_N.tolist() == [0.0, 0.0, 0.0]


def test_rescaled_rewards_leave_standardised_advantages_alone_but_not_the_others():
    rewards = [0.0, 1.0, 0.25, 0.5]
    scaled = [3.0 * r - 7.0 for r in rewards]
    assert group_relative(scaled, "aaaa").advantage_N.tolist() == pytest.approx(
        group_relative(rewards, "aaaa").advantage_N.tolist(), rel=1e-4
    )
    for estimate in (without_scale, leave_one_out):
        assert estimate(scaled, "aaaa").advantage_N.tolist() == pytest.approx(
            [3.0 * a for a in estimate(rewards, "aaaa").advantage_N.tolist()], rel=1e-5
        )


def test_an_absolute_reward_is_kept_and_no_group_is_flat():
    found = absolute([1.0, 1.0, None, float("nan")], ["a", "a", "b", "b"])
    assert found.advantage_N.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert (found.excluded, found.flat) == (2, frozenset())
