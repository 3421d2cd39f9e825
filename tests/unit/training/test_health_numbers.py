"""Numbers that tell a sick run from a healthy one, by hand-made batches."""

from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch

from geartrain.algorithms.advantage import group_relative
from geartrain.training.batch import make_sequence
from geartrain.training.health_numbers import describe_rewards, describe_step, distance, within_groups
from geartrain.training.lesson import Pooled, select_lesson
from geartrain.trajectory import ToolResult, Trajectory, Turn


def episode(task, success, family="easy"):
    turn = Turn([1], [2], [-0.1], "x", None, ToolResult("ok"))
    return Trajectory(task, family, task, 0, 0, 0, 1.0, [turn], success, float(success), "finished")


@dataclass
class Batch:
    """Two tasks, one easy and one hard, of two families."""

    trajectories = tuple(
        episode(task, success, family)
        for task, family, outcomes in (("a", "easy", (1, 1, 1, 0)), ("b", "hard", (0, 0, 1, 0)))
        for success in map(bool, outcomes)
    )

    def described(self, rewards, advantage=group_relative):
        scored = Pooled(rewards, self.trajectories, Counter())
        return describe_rewards(scored, select_lesson(scored, advantage))


def outcomes():
    return [float(t.success) for t in Batch.trajectories]


def test_a_reward_that_is_the_outcome_goes_with_it_whatever_its_scale():
    told = Batch().described([1000.0 * value for value in outcomes()])
    assert told["reward_outcome"] == pytest.approx(1.0)
    assert told["advantage_reward"] > 0.9
    assert (told["reward_low"], told["reward_high"]) == (0.0, 1000.0)
    assert told["trained_families"] == {"easy": 4, "hard": 4}


def test_a_reward_for_something_else_does_not():
    # half of the siblings, and as many of those that succeed as of those that fail
    assert abs(Batch().described([0, 1, 0, 1, 1, 0, 1, 0])["reward_outcome"]) < 0.01


def test_a_turned_sign_shows():
    def turned(rewards, groups):
        found = group_relative(rewards, groups)
        return replace(found, advantage_N=-found.advantage_N)

    assert Batch().described(outcomes(), turned)["advantage_reward"] < -0.9


def test_what_does_not_vary_has_no_correlation():
    told = Batch().described([0.3] * 8)
    assert (told["reward_outcome"], told["advantage_reward"], told["trained_families"]) == (None, None, {})
    assert Batch().described([None] * 8)["reward_low"] is None
    assert within_groups([0.1 + 0.2, 0.3], [1.0, 2.0], ["a", "a"]) is None, "rounding is no difference"


def test_the_mean_of_a_task_is_no_correlation():
    # an easy task pays more than a hard one: that says nothing about siblings
    assert within_groups([1.0, 1.1, 0.0, 0.1], [5.0, 4.9, 0.0, -0.1], "aabb") == pytest.approx(-1.0)


def test_the_share_that_is_trained_and_the_distances_are_told():
    whole = make_sequence([1, 2, 3, 4], [False, True, True, True])
    hidden = replace(whole, loss_T=torch.tensor([False, True, False, False]))
    assert describe_step([whole, hidden], teacher=None, drift=None) == {"trained_share": pytest.approx(4 / 6)}
    assert describe_step([whole], teacher=0.5, drift=0.2) == {
        "trained_share": 1.0,
        "teacher_distance": 0.5,
        "kl_unpaid": 0.2,
    }


def test_a_distance_counts_what_is_trained():
    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    with torch.no_grad():
        for layer, weight, bias in ((model, 3.0, 9.0), (other, 1.0, 0.0)):
            layer.weight.fill_(weight)
            layer.bias.fill_(bias)
    model.bias.requires_grad_(False)
    assert distance(model, other) == (pytest.approx(2.0), pytest.approx(2.0))
    assert distance(other, other) == (0.0, 0.0)
    assert distance(model, other, frozen_too=True)[1] == pytest.approx(((4 + 4 + 81) / 3) ** 0.5)
