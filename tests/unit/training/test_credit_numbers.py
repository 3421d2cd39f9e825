"""Numbers about credit, on a batch of two episodes written by hand."""

import math
from dataclasses import replace

import pytest
import torch

from geartrain.algorithms.evidence import Evidence, TeacherView
from geartrain.algorithms.grains import critic_grain, global_grain, step_grain
from geartrain.algorithms.recipe import Credit
from geartrain.training.credit_numbers import (
    describe_grains,
    describe_granularity,
    describe_mixture,
    describe_ratio,
    describe_weights,
    turn_means,
)

# two episodes of two turns; a turn is two tokens, -1 is what the agent was shown
TURN_NT = torch.tensor([[-1, 0, 0, -1, 1, 1], [-1, 2, 2, 3, 3, -1]])
WEIGHT_NT = torch.tensor([[1.0, 0.5, 0.5, 1.0, 1.5, 1.5], [1.0, 1.25, 1.25, 0.75, 0.75, 1.0]])
ADVANTAGE_N = torch.tensor([1.0, -1.0])


def batch(weight_NT=WEIGHT_NT, rewards=(0.0, 1.0, -0.1, 0.5)):
    mask_NT = TURN_NT >= 0
    nothing = torch.zeros(TURN_NT.shape)
    evidence = Evidence(
        advantage_N=ADVANTAGE_N,
        group_N=torch.zeros(2, dtype=torch.int64),
        sibling_N=torch.arange(2),
        mask_NT=mask_NT,
        step_NT=nothing,
        token_NT=nothing,
        turn_NT=TURN_NT,
        logprob_NT=nothing,
        entropy_NT=nothing,
        progress_NT=nothing,
        reward_N=ADVANTAGE_N,
        row_S=torch.tensor([0, 0, 1, 1]),
        step_reward_S=torch.tensor(rewards),
    )
    return Credit(torch.where(mask_NT, ADVANTAGE_N[:, None] * weight_NT, 0.0), weight_NT, None), evidence


def test_means_of_turns():
    assert turn_means(WEIGHT_NT, TURN_NT, 5).tolist() == [0.5, 1.5, 1.25, 0.75, 0.0]


def test_the_distribution_and_what_goes_with_it():
    found = describe_weights(*batch())
    assert (found["weight_min"], found["weight_max"]) == (0.5, 1.5)
    assert found["weight_median"] == 1.0
    assert found["weight_p05"] < found["weight_median"] < found["weight_p95"]
    # later rewards 0.9, 0, 0.45, 0 against credit 0.5, 1.5, -1.25, -0.75: ranks 4, 1.5, 3, 1.5 and 3, 4, 1, 2
    assert found["credit_later"] == pytest.approx(-1 / 22.5**0.5)
    # rewards 0, 1, -0.1, 0.5 against weights 0.5, 1.5, 1.25, 0.75: ranks 2, 4, 1, 3 and 1, 4, 3, 2
    assert found["weight_reward"] == pytest.approx(0.4)
    assert found["weight_advantage"] == 0.0


def test_weights_that_say_nothing_go_with_nothing_and_missing_rewards_are_none():
    credit, evidence = batch(weight_NT=torch.ones(TURN_NT.shape))
    assert describe_weights(credit, evidence)["weight_reward"] == 0.0
    without = describe_weights(credit, replace(evidence, step_reward_S=None))
    assert (without["credit_later"], without["weight_reward"]) == (None, None)


def _told(*log_ratio_S, scored=(True, True)):
    """Let the policy find its turns likelier than a teacher does, by so many nats a token."""
    credit, evidence = batch()
    shifted_NT = evidence.spread(torch.tensor(log_ratio_S))
    shifted_NT[0, 1] += 0.25  # within the first turn, up and down: its mean is what counts
    shifted_NT[0, 2] -= 0.25
    teacher = TeacherView(-shifted_NT, scored_N=torch.tensor(scored))
    return credit, replace(evidence, teacher=teacher)


def test_the_ratio_to_a_teacher_is_of_turns_and_w_is_held_against_it_by_the_sign_of_the_advantage():
    log2 = math.log(2)
    found = describe_weights(*_told(0.0, log2, -log2, 2 * log2))
    # ratios 1, 2, 1/2, 4
    assert found["teacher_ratio"] == pytest.approx(7.5 / 4)
    assert found["teacher_ratio_spread"] == pytest.approx((((1 + 4 + 0.25 + 16) / 4) - (7.5 / 4) ** 2) ** 0.5)
    assert found["weight_ratio_better"] is found["weight_ratio_worse"] is None  # two turns each rank nothing
    credit, evidence = _told(0.0, 3.0, 2.0, 1.0)  # in the order of the weights
    for sign, name in ((1.0, "better"), (-1.0, "worse")):
        ranked = describe_weights(credit, replace(evidence, advantage_N=torch.full((2,), sign)))
        assert ranked[f"weight_ratio_{name}"] == pytest.approx(1.0)


def test_turns_that_no_teacher_has_scored_do_not_count():
    found = describe_weights(*_told(0.0, math.log(2), -9.0, 9.0, scored=(True, False)))
    assert found["teacher_ratio"] == pytest.approx(1.5)
    assert found["weight_ratio_worse"] is None
    nobody = describe_weights(*_told(0.0, 0.0, 0.0, 0.0, scored=(False, False)))
    assert (nobody["teacher_ratio"], nobody["teacher_ratio_spread"], nobody["weight_ratio_better"]) == (None,) * 3
    assert "teacher_ratio" not in describe_weights(*batch())
    assert describe_ratio(torch.zeros(TURN_NT.shape), batch()[1]) == {"teacher_ratio": 1.0, "teacher_ratio_spread": 0.0}


def test_grains_are_told_as_they_are_before_they_are_standardised():
    _, evidence = batch()
    step_NT = torch.where(TURN_NT == 1, 2.0, 99.0).where(TURN_NT >= 0, 7.0).where(TURN_NT != 0, 0.0)
    evidence = replace(evidence, step_NT=step_NT.where(TURN_NT < 2, 0.0), critic_NT=evidence.spread(torch.ones(4)))
    found = describe_grains({"global": global_grain, "step": step_grain, "critic": critic_grain}, evidence)
    assert (found["raw_global_mean"], found["raw_global_variance"]) == (0.0, 1.0)
    assert (found["raw_step_mean"], found["raw_step_variance"]) == (0.5, 0.75)  # 2 of 8 tokens
    assert (found["raw_critic_mean"], found["raw_critic_variance"]) == (1.0, 0.0)


def test_a_mixture_by_its_distance_from_even_and_a_granularity_by_its_spread():
    assert describe_mixture(torch.full((5, 4), 0.25)) == {"mixture_spread": 0.0}
    # means that are even hide turns that are not
    assert describe_mixture(torch.tensor([[0.75, 0.25], [0.25, 0.75]])) == {"mixture_spread": 0.25}
    evidence = replace(batch()[1], progress_NT=batch()[1].spread(torch.tensor([0.0, 1.0, 0.0, 1.0])))
    assert describe_granularity(evidence, {"granularity": "progress"}) == {
        "granularity": 0.5,
        "granularity_spread": 0.5,
    }
    assert describe_granularity(evidence, {"granularity": "none"}) == describe_granularity(evidence, {}) == {}
