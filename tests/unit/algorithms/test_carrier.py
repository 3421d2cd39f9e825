"""Turn-level advantages: GAE counted in turns, GiGPO's anchors."""

import itertools

import pytest
import torch

from geartrain.algorithms.carrier import anchored_advantage
from geartrain.algorithms.returns import generalised_advantage, later_returns


def _naive(rewards, values, discount, trace):
    """The sum of the definition, term by term."""
    following = [*values[1:], 0.0]
    delta = [r + discount * v_next - v for r, v_next, v in zip(rewards, following, values, strict=True)]
    count = len(rewards)
    return [sum((discount * trace) ** (k - t) * delta[k] for k in range(t, count)) for t in range(count)]


@pytest.mark.parametrize(("discount", "trace"), [(1.0, 1.0), (0.9, 0.95), (0.5, 0.0), (1.0, 0.3)])
def test_generalised_advantage_is_its_definition(discount, trace):
    rewards, values = [0.1, 0.0, -0.2, 1.0], [0.5, 0.4, 0.3, 0.9]
    found = generalised_advantage(rewards, values, discount=discount, trace=trace)
    assert found.tolist() == pytest.approx(_naive(rewards, values, discount, trace))


def test_what_comes_later_leaves_the_turn_s_own_reward_out():
    assert later_returns([1.0, 2.0, 4.0], discount=0.5).tolist() == [2.0, 2.0, 0.0]


def test_trace_one_is_return_minus_value_and_trace_zero_one_step():
    rewards, values = [0.0, 0.0, 1.0], [0.2, 0.4, 0.7]
    full = generalised_advantage(rewards, values, discount=1.0, trace=1.0)
    assert full.tolist() == pytest.approx([0.8, 0.6, 0.3])
    one = generalised_advantage(rewards, values, discount=1.0, trace=0.0)
    assert one.tolist() == pytest.approx([0.2, 0.3, 0.3])


def test_a_low_trace_has_low_variance_and_high_bias_not_the_reverse():
    # a chain of three fair coins, each worth its outcome; the value head is wrong by 0.5 everywhere
    first = {}
    for trace in (0.0, 0.5, 1.0):
        outcomes = [
            float(generalised_advantage(list(coins), [2.0, 1.5, 1.0], discount=1.0, trace=trace)[0])
            for coins in itertools.product([0.0, 1.0], repeat=3)
        ]
        mean = sum(outcomes) / 8
        first[trace] = (abs(mean - (1.5 - 2.0)), sum((x - mean) ** 2 for x in outcomes) / 8)
    assert first[0.0][0] > first[0.5][0] > first[1.0][0] == pytest.approx(0.0)
    assert first[0.0][1] < first[0.5][1] < first[1.0][1]


def test_turns_are_compared_with_turns_of_their_anchor_alone():
    returns = torch.tensor([1.0, 0.0, 5.0, 0.7, 0.7])
    found = anchored_advantage(returns, ["a", "a", "b", "c", "c"])
    assert found[:2].tolist() == pytest.approx([2**-0.5, -(2**-0.5)], abs=1e-5)
    assert found[2:].tolist() == [0.0, 0.0, 0.0]  # alone, and all alike
