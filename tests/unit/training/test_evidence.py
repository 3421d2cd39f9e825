"""From trajectories to evidence: values lie on the sampled tokens of their own turn, groups are told by row id."""

from dataclasses import replace

import pytest
import torch

from geartrain.algorithms.recipe import RECIPES, assign_credit
from geartrain.methods import settings_of
from geartrain.training.credit import CreditAssigner
from geartrain.training.evidence import gather
from geartrain.training.features import FrozenScores, TurnFeatures
from geartrain.training.lesson import Lesson
from geartrain.trajectory import ToolResult, Trajectory, Turn


def _turn(prompt, action, reward=0.0, goals=(), text="x"):
    logprobs = [-0.1 * (index + 1) for index in range(len(action))]
    return Turn(prompt, action, logprobs, text, None, ToolResult("ok"), goals, reward)


def _trajectory(group, sibling, *turns, success=False):
    return Trajectory("t", "f", group, sibling, 0, 0, 1.0, turns, success, float(success), "finished")


FIRST = _trajectory("a", 0, _turn([1, 1], [5, 6], 0.5, ("plan",)), _turn([7, 7, 7], [8], -0.1), success=True)
SECOND = _trajectory("a", 1, _turn([1], [5], 0.0), _turn([7], [8, 9, 9], 1.0, ("plan", "done")))


def _gather(*trajectories, rewards=(1.0, 0.0), **discounts):
    return gather(
        trajectories,
        advantage_N=torch.tensor([1.0, -1.0]),
        reward_N=torch.tensor(rewards),
        run_share=0.0,
        **discounts,
    )


def test_the_value_of_a_turn_lies_on_its_own_sampled_tokens_and_nowhere_else():
    evidence = _gather(FIRST, SECOND, step_discount=0.25)
    assert evidence.turn_NT.tolist() == [[-1, -1, 0, 0, -1, -1, -1, 1], [-1, 2, -1, 3, 3, 3, -1, -1]]
    first = 0.5 + 0.25 * -0.1
    assert evidence.step_NT[0].tolist() == pytest.approx([0, 0, first, first, 0, 0, 0, -0.1])
    assert evidence.step_NT[1].tolist() == pytest.approx([0, 0.25, 0, 1, 1, 1, 0, 0])
    assert evidence.mask_NT.tolist() == (evidence.turn_NT >= 0).tolist()


def test_a_token_s_return_counts_the_sampled_tokens_in_between_and_nothing_else():
    faulty = replace(FIRST, turns=[replace(FIRST.turns[0], token_rewards=(0.0, -1.0)), FIRST.turns[1]])
    later = replace(SECOND, turns=[SECOND.turns[0], replace(SECOND.turns[1], token_rewards=(-1.0, 0.0, -0.5))])
    alone = _gather(faulty, later).token_NT
    assert alone.tolist() == [[0, 0, 0, -1, 0, 0, 0, 0], [0, 0, 0, -1, 0, -0.5, 0, 0]]
    found = _gather(faulty, later, token_discount=0.5).token_NT
    # a reward of the second turn reaches the first over one step, however much was shown in between
    assert found.tolist() == [[0, 0, -0.5, -1, 0, 0, 0, 0], [0, -0.5625, 0, -1.125, -0.25, -0.5, 0, 0]]
    longer = replace(later, turns=[later.turns[0], replace(later.turns[1], prompt_ids=[7] * 9)])
    assert _gather(faulty, longer, token_discount=0.5).token_NT[1, 1] == -0.5625


@pytest.mark.parametrize("name", ["gear_a", "fixed_weights"])
def test_the_discounts_of_a_method_reach_its_grains(name):
    settings = settings_of(name, {"step_discount": 0.75, "token_discount": 0.5})
    assigner = CreditAssigner(RECIPES[name], settings, critic=None, width=4, iterations=1, seed=0)
    faulty = replace(FIRST, turns=[replace(FIRST.turns[0], token_rewards=(0.0, -1.0)), FIRST.turns[1]])
    lesson = Lesson([faulty, SECOND], torch.tensor([1.0, -1.0]), torch.tensor([1.0, 0.0]), 0, 0)
    states = [FrozenScores(torch.zeros(8), TurnFeatures(*torch.ones(2, 2, 4)))] * 2
    evidence = assigner.assign(lesson, states).evidence
    assert (evidence.step_NT[0, 2], evidence.token_NT[0, 2]) == (pytest.approx(0.5 - 0.075), -0.5)


def test_progress_is_what_was_reached_before_a_turn_of_all_that_any_sibling_reached():
    evidence = _gather(FIRST, SECOND)
    assert evidence.progress_NT[0].tolist() == [0, 0, 0, 0, 0, 0, 0, 0.5]
    assert evidence.progress_NT[1].tolist() == [0.0] * 8


def test_groups_are_row_ids_whatever_the_prompts_say():
    path = replace(FIRST, turns=[replace(FIRST.turns[0], prompt_ids=[1, 2, 3]), FIRST.turns[1]])
    assert _gather(path, SECOND).group_N.tolist() == [0, 0]
    assert _gather(FIRST, replace(FIRST, group_id="b")).group_N.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["ppo", "gigpo"])
def test_the_outcome_reaches_every_turn_whatever_lies_between(name):
    evidence = replace(_gather(FIRST, SECOND), value_S=torch.zeros(4), step_reward_S=torch.zeros(4))
    credit = assign_credit(RECIPES[name], evidence, settings=settings_of(name, {"discount": 1.0}))
    assert (credit.advantage_NT[0][evidence.mask_NT[0]] > 0).all()
    assert (credit.advantage_NT[1][evidence.mask_NT[1]] < 0).all()
    longer = replace(FIRST, turns=[FIRST.turns[0], replace(FIRST.turns[1], prompt_ids=[7] * 40)])
    other = replace(_gather(longer, SECOND), value_S=torch.zeros(4), step_reward_S=torch.zeros(4))
    again = assign_credit(RECIPES[name], other, settings=settings_of(name, {"discount": 1.0}))
    assert torch.equal(again.advantage_NT[other.mask_NT], credit.advantage_NT[evidence.mask_NT])
