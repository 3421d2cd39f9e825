"""Numbers about credit, on a batch of two episodes written by hand."""

from dataclasses import replace

import pytest
import torch

from geartrain.algorithms.evidence import Evidence
from geartrain.algorithms.recipe import Credit
from geartrain.training.credit_numbers import describe_weights, turn_means

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
