"""Invariants of every row of RECIPES: a new variant cannot escape them (methods.md T1, T2)."""

from dataclasses import replace

import pytest
import torch

from geartrain.algorithms.evidence import Evidence, TeacherView
from geartrain.algorithms.recipe import RECIPES, assign_credit, by_rows
from geartrain.algorithms.surrogate import clipped_surrogate
from geartrain.methods import METHODS, settings_of

EVERY_RECIPE = pytest.mark.parametrize("name", RECIPES)
WEIGHING = [name for name, recipe in RECIPES.items() if recipe.weigh is not None]
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.3, 0.9, 0.1, 0.0]
GROUPS = ["a", "a", "a", "a", "b", "b", "b", "b"]
LENGTH, TURNS = 11, 3
SIGNALS = ("step_NT", "token_NT", "logprob_NT", "entropy_NT", "progress_NT", "critic_NT", "granularity_NT")


def _evidence(name, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def noise():
        return torch.randn(8, LENGTH, generator=generator)

    mask = torch.rand(8, LENGTH, generator=generator) > 0.4
    mask[:, [3, 6, 9]] = True
    turn = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]) + TURNS * torch.arange(8)[:, None]
    logprob = -noise().abs()
    return Evidence(
        advantage_N=RECIPES[name].advantage(REWARDS, GROUPS).advantage_N,
        group_N=torch.tensor([0] * 4 + [1] * 4),
        sibling_N=torch.arange(8) % 4,
        mask_NT=mask,
        step_NT=noise(),
        token_NT=(noise() > 1).float(),
        turn_NT=torch.where(mask, turn, -1),
        logprob_NT=logprob,
        entropy_NT=noise().abs(),
        progress_NT=torch.rand(8, LENGTH, generator=generator),
        reward_N=torch.tensor(REWARDS),
        row_S=torch.arange(8).repeat_interleave(TURNS),
        state_S=["start", "left", "left"] * 4 + ["start", "left", "right"] * 4,
        step_reward_S=torch.zeros(8 * TURNS),
        value_S=torch.rand(8 * TURNS, generator=generator),
        critic_NT=3 * noise(),
        critic_reliability=0.8,
        granularity_NT=torch.rand(8, LENGTH, generator=generator),
        teacher=TeacherView(logprob + noise(), noise().abs(), noise().square()),
    )


def _mixture(name, seed=7):
    grains = len(RECIPES[name].grains)
    logits = torch.randn(8, LENGTH, grains, generator=torch.Generator().manual_seed(seed))
    return torch.softmax(logits, -1) if grains > 1 else None


def _assign(name, evidence, mixture=None, **given):
    return assign_credit(RECIPES[name], evidence, mixture, settings=settings_of(name, given))


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
def test_neutral_settings_are_the_plain_algorithm_bit_for_bit(name):
    evidence = _evidence(name)
    neutral = _assign(name, evidence, _mixture(name), **METHODS[name].neutral)
    plain = assign_credit(replace(RECIPES[name], weigh=None, grains={}), evidence, settings=settings_of(name, {}))
    assert torch.equal(neutral.weight_NT, torch.ones(8, LENGTH))
    for found, expected in zip(_loss_and_gradient(neutral, evidence), _loss_and_gradient(plain, evidence), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", WEIGHING)
def test_grpo_is_where_every_credit_method_meets_at_neutral_settings(name):
    assert RECIPES[name].advantage is RECIPES["grpo"].advantage
    neutral = _assign(name, _evidence(name), _mixture(name), **METHODS[name].neutral)
    assert torch.equal(neutral.advantage_NT, _assign("grpo", _evidence("grpo")).advantage_NT)


@EVERY_RECIPE
@pytest.mark.parametrize("lively", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_sign_bounds_and_masked_mean(name, lively, seed):
    evidence, recipe = _evidence(name, seed), RECIPES[name]
    extreme = {"strength": 1.0, "bound": 3.0, "kappa": 5.0, "alpha": 1.5, "gamma": 9.0}
    given = {key: value for key, value in extreme.items() if lively and key in METHODS[name].settings}
    settings = settings_of(name, given)
    credit = assign_credit(recipe, evidence, _mixture(name, seed), settings=settings)
    mask, weights = evidence.mask_NT, credit.weight_NT[evidence.mask_NT]
    assert torch.equal(credit.advantage_NT.sign()[mask], recipe.carrier(evidence, settings).sign()[mask])
    if recipe.weigh is None:
        assert torch.equal(credit.weight_NT, torch.ones(8, LENGTH))
        return
    low, high = recipe.bounds(settings)
    assert weights.std() > 0.01  # the test is not about W = 1
    if settings["normalise"]:
        low, high = min(low, 1 / high), max(high, 1 / low)
        means = [row[chosen].mean().item() for row, chosen in zip(credit.weight_NT, mask, strict=True)]
        assert means == pytest.approx([1.0] * 8, abs=1e-6)
    assert 0 < low - 1e-6 <= weights.min()
    assert weights.max() <= high + 1e-6


@pytest.mark.parametrize("name", WEIGHING)
def test_the_gradient_of_a_token_is_its_weight_times_the_plain_one_within_the_bound(name):
    # SGCD's propositions 1 and 2 and its corollaries 1 to 3, over every method that weighs
    evidence, settings = _evidence(name), settings_of(name, {})
    credit = assign_credit(RECIPES[name], evidence, _mixture(name), settings=settings)
    plain = assign_credit(replace(RECIPES[name], weigh=None, grains={}), evidence, settings=settings)
    (_, weighed_NT), (_, plain_NT) = (_loss_and_gradient(c, evidence) for c in (credit, plain))
    torch.testing.assert_close(weighed_NT, credit.weight_NT * plain_NT, rtol=1e-5, atol=1e-9)
    low, high = RECIPES[name].bounds(settings)
    assert (weighed_NT * plain_NT >= 0).all()
    assert (weighed_NT.abs() <= max(high, 1 / low) * plain_NT.abs() + 1e-7).all()
    assert plain_NT.abs().max() > 0


@EVERY_RECIPE
def test_nothing_flows_back_through_the_weights(name):
    evidence = _evidence(name)
    watched = {field: getattr(evidence, field).clone().requires_grad_() for field in SIGNALS}
    teacher = TeacherView(
        *(
            getattr(evidence.teacher, field).clone().requires_grad_()
            for field in ("logprob_NT", "entropy_NT", "divergence_NT")
        )
    )
    mixture = _mixture(name)
    if mixture is not None:
        mixture.requires_grad_()
    credit = _assign(name, replace(evidence, teacher=teacher, **watched), mixture)
    assert not credit.advantage_NT.requires_grad
    assert not credit.weight_NT.requires_grad


@EVERY_RECIPE
def test_what_lies_at_masked_positions_changes_nothing(name):
    evidence = _evidence(name)

    def poison(value):
        return torch.where(evidence.mask_NT, value, torch.nan)

    credit = _assign(name, evidence, _mixture(name))
    poisoned = replace(
        evidence,
        teacher=TeacherView(
            *(poison(getattr(evidence.teacher, field)) for field in ("logprob_NT", "entropy_NT", "divergence_NT"))
        ),
        **{field: poison(getattr(evidence, field)) for field in SIGNALS},
    )
    mixture = _mixture(name)
    if mixture is not None:
        mixture = torch.where(evidence.mask_NT[..., None], mixture, torch.nan)
    again = _assign(name, poisoned, mixture)
    assert torch.equal(credit.advantage_NT, again.advantage_NT)
    assert credit.advantage_NT[~evidence.mask_NT].abs().max() == 0
    for found, expected in zip(_loss_and_gradient(again, evidence), _loss_and_gradient(credit, evidence), strict=True):
        assert torch.equal(found, expected)


@EVERY_RECIPE
def test_a_trajectory_is_weighed_by_its_own_group_alone(name):
    # statistics over the whole batch are scale alone: a quantile, ranks; none may turn or drop another group's credit
    evidence = _evidence(name)
    order = torch.tensor([4, 5, 6, 7, 0, 1, 2, 3])
    turns = torch.cat([TURNS * row + torch.arange(TURNS) for row in order.tolist()])
    moved = {}
    for field in ("advantage_N", "group_N", "reward_N", "mask_NT", "turn_NT", *SIGNALS):
        moved[field] = getattr(evidence, field)[order]
    renumbered = torch.argsort(turns)
    moved["turn_NT"] = torch.where(moved["mask_NT"], renumbered[moved["turn_NT"].clamp(min=0)], -1)
    moved["group_N"] = 1 - moved["group_N"]
    teacher = TeacherView(
        *(getattr(evidence.teacher, field)[order] for field in ("logprob_NT", "entropy_NT", "divergence_NT"))
    )
    states = [evidence.state_S[turn] for turn in turns.tolist()]
    permuted = replace(evidence, teacher=teacher, state_S=states, value_S=evidence.value_S[turns], **moved)
    mixture = _mixture(name)
    found = _assign(name, permuted, None if mixture is None else mixture[order])
    expected = _assign(name, evidence, mixture)
    torch.testing.assert_close(found.advantage_NT, expected.advantage_NT[order])


@EVERY_RECIPE
def test_observations_between_turns_pass_no_time_and_take_no_credit(name):
    # three masked positions before each turn, with noise in them: advantages of sampled tokens are as before
    evidence = _evidence(name)
    old = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    new = old + 3 * torch.tensor([1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3])

    def widen(value, fill):
        wide = torch.full((8, LENGTH + 9, *value.shape[2:]), fill, dtype=value.dtype)
        wide[:, new] = value
        return wide

    moved = {field: widen(getattr(evidence, field), 7.0) for field in SIGNALS}
    moved |= {"mask_NT": widen(evidence.mask_NT, False), "turn_NT": widen(evidence.turn_NT, -1)}
    teacher = TeacherView(
        *(widen(getattr(evidence.teacher, field), 7.0) for field in ("logprob_NT", "entropy_NT", "divergence_NT"))
    )
    mixture = _mixture(name)
    found = _assign(name, replace(evidence, teacher=teacher, **moved), None if mixture is None else widen(mixture, 0.0))
    expected = _assign(name, evidence, mixture)
    torch.testing.assert_close(found.advantage_NT[:, new], expected.advantage_NT, rtol=1e-5, atol=1e-6)
    assert found.advantage_NT.abs().sum() == pytest.approx(expected.advantage_NT.abs().sum().item(), rel=1e-5)


@EVERY_RECIPE
def test_weighing_writes_into_nothing_that_it_was_given(name):
    evidence, untouched = _evidence(name), _evidence(name)
    mixture = _mixture(name)
    advantage = evidence.broadcast(evidence.advantage_N)  # a view without rows of its own: one write shows everywhere
    _assign(name, evidence, mixture)
    for field in ("advantage_N", "reward_N", "mask_NT", "turn_NT", "value_S", "step_reward_S", *SIGNALS):
        assert torch.equal(getattr(evidence, field), getattr(untouched, field)), field
    for field in ("logprob_NT", "entropy_NT", "divergence_NT"):
        assert torch.equal(getattr(evidence.teacher, field), getattr(untouched.teacher, field)), field
    assert torch.equal(advantage, untouched.advantage_N[:, None].expand(8, LENGTH))
    assert mixture is None or torch.equal(mixture, _mixture(name))


@EVERY_RECIPE
def test_a_trajectory_without_a_trained_token_gets_nothing_and_gives_no_nan(name):
    evidence = _evidence(name)
    mask = evidence.mask_NT.clone()
    mask[7] = False
    evidence = replace(evidence, mask_NT=mask, turn_NT=torch.where(mask, evidence.turn_NT, -1))
    credit = _assign(name, evidence, _mixture(name))
    assert credit.advantage_NT[7].tolist() == [0.0] * LENGTH
    assert credit.weight_NT[7].tolist() == [1.0] * LENGTH
    assert torch.isfinite(credit.advantage_NT).all()
    assert credit.advantage_NT[:7].abs().sum() > 0


@pytest.mark.parametrize("name", ["sgcd_s", "gear_a_sgcd", "gear_a", "single_grain"])
def test_a_weighted_span_leaves_the_other_tokens_of_its_row_to_the_normalisation_only(name):
    # an expanded advantage that is written in place would change every token of the row alike
    evidence = _evidence(name)
    moved = replace(evidence, critic_NT=evidence.critic_NT.clone(), step_NT=evidence.step_NT.clone())
    moved.critic_NT[0, 3] += 4
    moved.step_NT[0, 3] += 4
    before, after = (_assign(name, e, _mixture(name)).weight_NT for e in (evidence, moved))
    change = (after - before)[0]
    assert change[3].abs() > 3 * change[evidence.mask_NT[0]].median().abs()


def test_a_critic_that_knows_nothing_is_silenced():
    evidence = replace(_evidence("sgcd_s"), critic_reliability=0.0)
    assert torch.equal(_assign("sgcd_s", evidence, strength=1.0).weight_NT, torch.ones(8, LENGTH))


@pytest.mark.parametrize("name", ["gear_p", "sgcd_p"])
def test_a_trajectory_that_the_teacher_did_not_score_keeps_weight_one(name):
    evidence = _evidence(name)
    scored = torch.tensor([True] * 7 + [False])
    credit = _assign(name, replace(evidence, teacher=replace(evidence.teacher, scored_N=scored)))
    assert torch.equal(credit.weight_NT[7], torch.ones(LENGTH))
    assert credit.weight_NT[:7].std() > 0.01


def test_gear_b_is_blended_in_after_its_warm_up():
    early, middle, late = (
        _assign("gear_b", replace(_evidence("gear_b"), run_share=share), warm_share=0.2, blend_share=0.2)
        for share in (0.2, 0.3, 0.4)
    )
    assert torch.equal(early.weight_NT, torch.ones(8, LENGTH))
    assert 0 < (middle.weight_NT - 1).abs().mean() < (late.weight_NT - 1).abs().mean()


def test_denominators():
    assert RECIPES["grpo"].denominator(120, 8, 1000) == 120
    assert RECIPES["dr_grpo"].denominator(120, 8, 1000) == 8000
    assert by_rows(120, 8, 1000) == 8


def test_needs():
    assert {name for name, recipe in RECIPES.items() if recipe.needs_critic} == {"sgcd_s", "gear_a_sgcd"}
    assert {name for name, recipe in RECIPES.items() if recipe.learns_mixture} == {"gear_a", "gear_a_sgcd"}


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.teacher == "siblings"])
@pytest.mark.parametrize("boundaries", ["adaptive", "none"])
def test_values_that_the_teacher_cannot_read_earn_no_credit(name, boundaries):
    # SGCD-P3: at a masked literal the teacher differs because of the mask
    evidence = _evidence(name)
    masked = torch.zeros_like(evidence.mask_NT)
    masked[:, 3:6] = True
    spike = evidence.teacher.divergence_NT.masked_fill(masked, 99.0)
    blind = replace(evidence, teacher=replace(evidence.teacher, divergence_NT=spike, masked_NT=masked))
    settings = {"boundaries": boundaries, "normalise": False}
    found, seeing = (
        _assign(name, e, **settings).weight_NT
        for e in (blind, replace(blind, teacher=replace(blind.teacher, masked_NT=None)))
    )
    inside = masked & evidence.mask_NT
    assert found[inside].eq(1.0).all()
    assert seeing[inside].max() > 1.5
    # nor do they set the scale of the others
    calm = evidence.teacher.divergence_NT.masked_fill(masked, 0.0)
    expected = _assign(name, replace(evidence, teacher=replace(evidence.teacher, divergence_NT=calm)), **settings)
    outside = evidence.mask_NT & ~masked
    if boundaries == "none":
        assert torch.equal(found[outside], expected.weight_NT[outside])
