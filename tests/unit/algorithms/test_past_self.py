"""GEAR-B: signs, bounds, and the article's literal form, which loses the sign (methods.md T3, B1 to B5)."""

import math

import pytest
import torch

from geartrain.algorithms.past_self import (
    entropy_granularity,
    mean_over_turns,
    past_self_weight,
    progress_granularity,
    turn_log_ratio,
)

SETTINGS = {"temperature": 0.5, "strength": 0.8, "scale": 2.0, "dead_zone": 0.02, "dampen": True}


def _weight(shift, advantage, granularity=0.0, **given):
    one = torch.ones(1, 1)
    found = past_self_weight(shift * one, advantage * one, granularity * one, **SETTINGS | given)
    return float(found)


def test_closed_forms():
    assert _weight(0.52, 1.0) == pytest.approx(1 + 0.8 * math.tanh(1.0))
    assert _weight(-0.52, 1.0) == pytest.approx(1 - 0.8 * math.tanh(1.0))
    assert _weight(0.52, -1.0) == pytest.approx(1 - 0.8 * math.tanh(1.0))
    assert _weight(0.52, -1.0, dampen=False) == pytest.approx(1 + 0.8 * math.tanh(1.0))
    assert _weight(-0.52, -1.0, dampen=False) == pytest.approx(1 + 0.8 * math.tanh(1.0))
    assert _weight(0.52, 0.0) == 1.0


def test_a_policy_that_is_its_snapshot_is_weighed_one_and_so_is_rounding():
    for shift in (0.0, 0.019, -0.019):
        assert _weight(shift, 1.0) == 1.0


def test_coarse_states_are_weighed_less_by_the_scale():
    fine, coarse = (_weight(0.3, 1.0, granularity) - 1 for granularity in (0.0, 1.0))
    assert fine / coarse == pytest.approx(3.0)


def test_the_weight_is_positive_whatever_kappa():
    assert _weight(-50.0, 1.0, strength=100.0) > 0


@pytest.mark.parametrize(("advantage", "ratio"), [(-1.0, 1.1), (1.0, 0.9)])
def test_the_articles_own_form_loses_the_sign_of_the_advantage(advantage, ratio):
    # omega = sign(A) tanh(x) |A| + 0.1 A already holds A, and the loss multiplies by A again
    sensitivity, beta = 1.0 + (1.0 - 0.5) * 2.0, 0.1
    literal = advantage * (math.tanh((ratio - 1.0) * sensitivity / beta) + 0.1)
    assert math.copysign(1.0, literal * advantage) != math.copysign(1.0, advantage)
    assert _weight(math.log(ratio), advantage, 0.5) * advantage * advantage > 0


def test_the_articles_factor_shrinks_the_step_tenfold_right_after_a_snapshot():
    literal = math.tanh(0.0) + 0.1
    assert literal == pytest.approx(0.1)
    assert _weight(0.0, 1.0) == 1.0


def test_a_turn_has_one_mean_log_ratio_whatever_its_length_and_of_its_own_tokens():
    logprob = torch.tensor([[-1.0, -2.0, 99.0, -1.0, 99.0]])
    snapshot = torch.tensor([[-1.5, -2.5, -99.0, -0.8, 0.0]])
    turn = torch.tensor([[0, 0, -1, 1, -1]])
    assert turn_log_ratio(logprob, snapshot, turn)[0].tolist() == pytest.approx([0.5, 0.5, 0.0, -0.2, 0.0])


def test_a_mean_over_turns_without_a_turn_is_zero():
    assert mean_over_turns(torch.ones(2, 3), torch.full((2, 3), -1)).tolist() == [[0.0] * 3] * 2


def test_granularity_falls_with_progress_and_rises_with_entropy():
    assert progress_granularity(torch.tensor([[0.0, 0.25, 1.0]])).tolist() == [[1.0, 0.75, 0.0]]
    entropy = torch.tensor([[0.1, 0.3, 9.0, 2.0, 1.0]])
    turn = torch.tensor([[0, 0, -1, 1, 2]])
    assert entropy_granularity(entropy, turn).tolist() == [[0.0, 0.0, 0.0, 1.0, 0.5]]


def test_turns_of_one_entropy_have_the_middle_rank():
    assert entropy_granularity(torch.ones(1, 3), torch.tensor([[0, 1, 2]])).tolist() == [[0.5, 0.5, 0.5]]
    assert entropy_granularity(torch.ones(1, 2), torch.tensor([[0, 0]])).tolist() == [[0.5, 0.5]]
