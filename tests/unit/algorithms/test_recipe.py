"""Invariants of every row of RECIPES: a new variant cannot escape them."""

from dataclasses import replace

import pytest
import torch

from geartrain.algorithms.recipe import RECIPES, Evidence, assign_credit
from geartrain.algorithms.surrogate import clipped_surrogate

EVERY_RECIPE = pytest.mark.parametrize("name", RECIPES)
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.3, 0.9, 0.1, 0.0]
GROUPS = ["a", "a", "a", "a", "b", "b", "b", "b"]
LENGTH = 11


def _evidence(name, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def noise():
        return torch.randn(8, LENGTH, generator=generator)

    mask = torch.rand(8, LENGTH, generator=generator) > 0.4
    mask[:, 3] = True
    return Evidence(
        advantage_N=RECIPES[name].advantage(REWARDS, GROUPS).advantage_N,
        group_N=torch.tensor([0] * 4 + [1] * 4),
        mask_NT=mask,
        step_NT=noise(),
        token_NT=(noise() > 1).float(),
        critic_NT=3 * noise(),
        critic_reliability=0.8,
    )


def _mixture(name, seed=7):
    grains = len(RECIPES[name].grains)
    logits = torch.randn(8, LENGTH, grains, generator=torch.Generator().manual_seed(seed))
    return torch.softmax(logits, -1) if grains > 1 else None


def _loss_and_gradient(credit, evidence):
    generator = torch.Generator().manual_seed(4)
    logprob = (-torch.rand(8, LENGTH, generator=generator)).requires_grad_()
    behaviour = logprob.detach() + 0.2 * torch.randn(8, LENGTH, generator=generator)
    loss = clipped_surrogate(
        logprob, behaviour, credit.advantage_NT, evidence.mask_NT, denominator=50, clip_low=0.2, clip_high=0.28
    )
    loss.backward()
    return loss.detach(), logprob.grad


@EVERY_RECIPE
def test_strength_zero_is_the_plain_algorithm_bit_for_bit(name):
    evidence = _evidence(name)
    neutral = assign_credit(RECIPES[name], evidence, _mixture(name), strength=0.0, bound=2.0)
    plain = assign_credit(replace(RECIPES[name], grains={}), evidence, strength=0.5, bound=2.0)
    assert torch.equal(neutral.weight_NT, torch.ones(8, LENGTH))
    for found, expected in zip(_loss_and_gradient(neutral, evidence), _loss_and_gradient(plain, evidence), strict=True):
        assert torch.equal(found, expected)


@EVERY_RECIPE
def test_grpo_is_where_every_standardised_recipe_meets_at_strength_zero(name):
    if RECIPES[name].advantage is not RECIPES["grpo"].advantage:
        return
    evidence = _evidence(name)
    neutral = assign_credit(RECIPES[name], evidence, _mixture(name), strength=0.0, bound=2.0)
    grpo = assign_credit(RECIPES["grpo"], _evidence("grpo"), strength=0.5, bound=2.0)
    assert torch.equal(neutral.advantage_NT, grpo.advantage_NT)


@EVERY_RECIPE
@pytest.mark.parametrize("strength", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("bound", [1.2, 2.0, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_sign_bounds_and_masked_mean(name, strength, bound, seed):
    evidence = _evidence(name, seed)
    credit = assign_credit(RECIPES[name], evidence, _mixture(name, seed), strength=strength, bound=bound)
    mask = evidence.mask_NT
    sign = evidence.advantage_N.sign()[:, None].expand(mask.shape)
    assert torch.equal(credit.advantage_NT.sign()[mask], sign[mask])
    assert credit.weight_NT.min() >= 1 / bound - 1e-6
    assert credit.weight_NT.max() <= bound + 1e-6
    means = [row[chosen].mean().item() for row, chosen in zip(credit.weight_NT, mask, strict=True)]
    assert means == pytest.approx([1.0] * 8, abs=1e-6)
    if RECIPES[name].grains:
        assert credit.weight_NT[mask].std() > 0.01  # the test is not about W = 1


@EVERY_RECIPE
def test_nothing_flows_back_through_the_weights(name):
    evidence = _evidence(name)
    watched = {
        field: getattr(evidence, field).clone().requires_grad_() for field in ("step_NT", "token_NT", "critic_NT")
    }
    mixture = _mixture(name)
    if mixture is not None:
        mixture.requires_grad_()
    credit = assign_credit(RECIPES[name], replace(evidence, **watched), mixture, strength=0.5, bound=2.0)
    assert not credit.advantage_NT.requires_grad
    assert not credit.weight_NT.requires_grad


@EVERY_RECIPE
def test_what_lies_at_masked_positions_changes_nothing(name):
    evidence = _evidence(name)
    credit = assign_credit(RECIPES[name], evidence, _mixture(name), strength=0.5, bound=2.0)
    poisoned = replace(
        evidence,
        **{
            field: torch.where(evidence.mask_NT, getattr(evidence, field), torch.nan)
            for field in ("step_NT", "token_NT", "critic_NT")
        },
    )
    mixture = _mixture(name)
    if mixture is not None:
        mixture = torch.where(evidence.mask_NT[..., None], mixture, torch.nan)
    again = assign_credit(RECIPES[name], poisoned, mixture, strength=0.5, bound=2.0)
    assert torch.equal(credit.advantage_NT, again.advantage_NT)
    assert credit.advantage_NT[~evidence.mask_NT].abs().max() == 0
    for found, expected in zip(_loss_and_gradient(again, evidence), _loss_and_gradient(credit, evidence), strict=True):
        assert torch.equal(found, expected)


@EVERY_RECIPE
def test_a_weighted_span_leaves_the_other_tokens_of_its_row_to_the_normalisation_only(name):
    # an expanded advantage that is written in place would change every token of the row alike
    evidence = _evidence(name)
    moved = replace(evidence, critic_NT=evidence.critic_NT.clone(), step_NT=evidence.step_NT.clone())
    moved.critic_NT[0, 3] += 4
    moved.step_NT[0, 3] += 4
    credit = [assign_credit(RECIPES[name], e, _mixture(name), strength=0.5, bound=2.0) for e in (evidence, moved)]
    if RECIPES[name].grains:
        change = (credit[1].weight_NT - credit[0].weight_NT)[0]
        assert change[3].abs() > 3 * change[evidence.mask_NT[0]].median().abs()
    else:
        assert torch.equal(credit[0].advantage_NT, credit[1].advantage_NT)


@pytest.mark.parametrize("name", ["sgcd_s", "gear_a_sgcd"])
def test_a_critic_that_knows_nothing_is_silenced(name):
    evidence = replace(_evidence(name), critic_reliability=0.0)
    credit = assign_credit(RECIPES["sgcd_s"], evidence, strength=1.0, bound=2.0)
    assert torch.equal(credit.weight_NT, torch.ones(8, LENGTH))


def test_denominators():
    assert RECIPES["grpo"].denominator(120, 8, 1000) == 120
    assert RECIPES["dr_grpo"].denominator(120, 8, 1000) == 8000


def test_needs():
    assert {name for name, recipe in RECIPES.items() if recipe.needs_critic} == {"sgcd_s", "gear_a_sgcd"}
    assert {name for name, recipe in RECIPES.items() if recipe.needs_mixture} == {"gear_a", "gear_a_sgcd"}
