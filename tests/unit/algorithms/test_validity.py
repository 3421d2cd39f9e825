import math

import pytest
import torch

from geartrain.algorithms import validity
from geartrain.algorithms.validity import INERT_ITERATIONS, MIN_SUCCESSES, WINDOW


def test_weights_without_spread_are_inert_once_there_are_enough_of_them():
    inert = [0.0] * (INERT_ITERATIONS - 1)
    assert validity.inert_weights(inert) is None
    assert validity.inert_weights([0.3, *inert]) is None
    assert "plain GRPO" in validity.inert_weights([0.3, *inert, 1e-9])
    assert validity.inert_iterations([0.0, 0.3, *inert]) == INERT_ITERATIONS - 1
    assert (validity.inert_iterations([]), validity.inert_iterations([*inert, 0.001])) == (0, 0)
    assert validity.inert_weights([*inert, 0.0, 0.001]) is None


@pytest.mark.parametrize(("value", "says"), [(0.0, "all 6 values are 0"), (math.nan, "5 of 6 values are not finite")])
def test_features_that_say_nothing(value, says):
    feature = torch.full((2, 3), value)
    if math.isnan(value):
        feature[0, 0] = 1.0
    assert says in validity.silent_features("states", feature)
    assert validity.silent_features("states", torch.tensor([0.0, 1e-9])) is None
    assert validity.silent_features("states", torch.zeros(0)) is None


def test_a_loss_mask_may_hold_sampled_tokens_only():
    action = torch.tensor([False, True, True, False])
    assert validity.trains_what_was_not_sampled(torch.tensor([False, True, False, False]), action) is None
    assert "1 of 2" in validity.trains_what_was_not_sampled(torch.tensor([False, False, True, True]), action)


def test_what_requires_a_gradient_is_named():
    values = {"advantage": torch.ones(2), "pull": torch.ones(2).requires_grad_()}
    assert validity.carries_gradient(values).startswith("pull:")
    assert validity.carries_gradient({"advantage": torch.ones(2), "support": torch.ones(2, dtype=torch.int64)}) is None


@pytest.mark.parametrize("weight", [0.49, 2.01, math.nan, math.inf])
def test_weights_outside_their_bounds(weight):
    weights, mask = torch.tensor([[1.0, weight, 7.0]]), torch.tensor([[True, True, False]])
    assert "leave their bounds" in validity.outside_bounds(weights, mask, low=0.5, high=2.0)
    weights[0, 1] = 2.0
    assert validity.outside_bounds(weights, mask, low=0.5, high=2.0) is None
    assert validity.outside_bounds(weights, ~mask & False, low=0.5, high=2.0) is None


def test_zero_tool_collapse_needs_a_high_share_that_has_risen_and_enough_successes():
    many = MIN_SUCCESSES
    assert "60% of the successes used no tool, 10%" in validity.zero_tool_collapse(
        [many // 10, 0, 6 * many // 10], [many, 3, many]
    )
    assert validity.zero_tool_collapse([many // 2, many // 2 + 1], [many, many]) is None  # it was always so
    assert validity.zero_tool_collapse([0, many - 1], [many, many - 1]) is None  # too few of the latter
    assert validity.zero_tool_collapse([0, many], [many, many])
    assert validity.zero_tool_collapse([0, 0], [many, many]) is None
    assert validity.zero_tool_collapse([], []) is None


def test_the_latest_successes_are_pooled_over_iterations():
    zero, successes = [0] * 5 + [8] * 5, [10] * 10
    assert "80%" in validity.zero_tool_collapse(zero, successes)


@pytest.mark.parametrize(
    ("start", "now", "alarm"), [(0.05, 0.7, True), (0.05, 0.28, False), (0.3, 0.45, False), (0.3, 0.55, True)]
)
def test_tools_are_lost_where_many_calls_fail_that_did_not(start, now, alarm):
    shares = [start] * WINDOW + [0.9] + [now] * WINDOW
    assert (validity.lost_tools(shares) is not None) is alarm
    assert validity.lost_tools(shares[: 2 * WINDOW - 1]) is None


@pytest.mark.parametrize(("later", "alarm"), [([0.1, 0.2], True), ([0.0, 0.4], False), ([0.3, 0.0, 0.0], True)])
def test_held_out_success_must_stay_low_to_be_lost(later, alarm):
    assert (validity.lost_success([0.4, *later]) is not None) is alarm
    assert validity.lost_success([0.4, 0.0]) is None
    assert validity.lost_success([0.0, 0.0, 0.0]) is None
    assert validity.lost_success([1 / 30, 1 / 30, 0.0, 0.0]) is None  # one task of thirty is luck
    assert validity.lost_success([0.2, 0.1, 0.04]) is not None


@pytest.mark.parametrize(
    ("rewards", "held_out", "alarm"),
    [
        ((0.3, 0.5), (0.5, 0.3, 0.3), True),
        ((0.3, 0.5), (0.5, 0.5, 0.45), False),  # rises, and what it learns holds
        ((0.3, 0.3), (0.5, 0.3, 0.3), False),  # harm, but nobody is pleased by it
        ((0.5, 0.3), (0.5, 0.1, 0.1), False),
        ((0.3, 0.5), (0.5, 0.1), False),  # one validation is luck
        ((0.3, 0.5), (0.5, 0.1, 0.5, 0.4), False),  # it has recovered
    ],
)
def test_hacking_is_a_reward_that_rises_while_held_out_success_falls(rewards, held_out, alarm):
    reward_I = [rewards[0]] * WINDOW + [rewards[1]] * WINDOW
    reason = validity.reward_hacking(reward_I, held_out)
    assert (reason is not None) is alarm
    assert reason is None or ("0.30 to 0.50" in reason and "50% to 30%" in reason)
    assert validity.reward_hacking(reward_I[1:], held_out) is None


def test_a_policy_is_far_from_its_warm_start_by_its_last_iterations():
    far = [2 * validity.FAR] * WINDOW
    assert "2 nats" in validity.distance([0.01, *far])
    assert validity.distance(far[1:]) is None
    assert validity.distance([*far, 0.01, 0.01, 0.01]) is None


@pytest.mark.parametrize(("now", "alarm"), [(2.1, True), (1.9, False), (0.5, False), (0.3, True)])
def test_lengths_are_compared_with_the_start(now, alarm):
    lengths = [4.0, 6.0, 5.0, 100.0, *[5.0 * now] * WINDOW]
    assert (validity.length_drift("turns", lengths) is not None) is alarm
    assert validity.length_drift("turns", lengths[: 2 * WINDOW - 1]) is None


@pytest.mark.parametrize(("now", "kind"), [(0.05, "collapse"), (0.2, None), (2.5, None), (3.5, "explosion")])
def test_entropies_are_compared_with_the_start(now, kind):
    reason = validity.entropy_drift([0.3] * WINDOW + [0.3 * now] * WINDOW)
    assert reason is None if kind is None else kind in reason
    assert validity.entropy_drift([0.0] * 2 * WINDOW) is None


@pytest.mark.parametrize(
    ("rule", "limit"),
    [
        (validity.stuck_mixture, validity.STUCK_EVEN),
        (validity.stuck_granularity, validity.STUCK_GRANULARITY),
    ],
)
def test_credit_is_stuck_after_enough_iterations_in_a_row(rule, limit):
    stuck = [0.5 * limit] * INERT_ITERATIONS
    assert rule(stuck[1:]) is None
    assert rule([*stuck, limit]) is None
    assert f"the last {INERT_ITERATIONS} iterations" in rule([limit, *stuck])
