"""What is trained on: groups with a signal, and episodes that ended by themselves."""

import math
from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch

from geartrain.algorithms.advantage import group_relative
from geartrain.algorithms.recipe import RECIPES
from geartrain.rewards.mix import RewardMix
from geartrain.rewards.outcome import measured
from geartrain.rollouts.collect import EpisodeRequest
from geartrain.training.lesson import describe_lesson, select_lesson, shorten, task_batch, whole_lesson
from geartrain.trajectory import Trajectory
from tests.fakes.parity import ParityPlayers, make_config, make_policy, make_tasks


@dataclass(frozen=True)
class Scores:
    rewards: list[float | None]
    trajectories: list[Trajectory]
    failures: Counter[str]
    judge_seconds: float = 0.0


@pytest.fixture(scope="module")
def played():
    requests = [EpisodeRequest(task, sibling, task.task_id) for task in make_tasks(2) for sibling in range(3)]
    options = {"sampling": make_config().policy.sampling, "seed": 0, "policy_version": 0}
    return ParityPlayers(make_config()).play(make_policy(), requests, **options)


def scores(played, ends=()):
    trajectories = [replace(t, end="max_turns" if index in ends else "finished") for index, t in enumerate(played)]
    return Scores([1.0, 0.0, 0.0, 0.5, 0.5, 0.5], trajectories, Counter())


def test_a_group_without_a_difference_is_left_out(played):
    lesson = select_lesson(scores(played), group_relative)
    assert list(lesson.trajectories) == scores(played).trajectories[:3]
    assert lesson.filtered_groups == 1


def test_an_episode_that_was_cut_counts_in_its_group_and_is_not_trained_on(played):
    scored = scores(played, ends=(2,))
    lesson = select_lesson(scored, group_relative, learn_from_cut=False)
    assert list(lesson.trajectories) == scored.trajectories[:2]
    assert lesson.cut == 1
    # its failure is part of what the others are compared with
    assert lesson.advantage_N.tolist() == select_lesson(scored, group_relative).advantage_N.tolist()[:2]
    assert describe_lesson(scored, lesson)["cut_short"] == 1


def test_it_is_trained_on_where_that_is_asked_for(played):
    lesson = select_lesson(scores(played, ends=(2,)), group_relative, learn_from_cut=True)
    assert (len(lesson.trajectories), lesson.cut) == (3, 0)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("broken", [None, math.nan, math.inf])
def test_a_reward_that_is_no_number_is_counted_and_neither_trained_on_nor_averaged(played, recipe, broken):
    scored = replace(scores(played), rewards=[broken, 0.2, 0.8, 0.5, 0.5, 0.5])
    lesson = select_lesson(scored, RECIPES[recipe].advantage)
    assert played[0] not in lesson.trajectories
    assert (lesson.excluded, describe_lesson(scored, lesson)["unscored"]) == (1, 1)
    assert torch.isfinite(lesson.reward_N).all()
    assert torch.isfinite(lesson.advantage_N).all()
    assert describe_lesson(scored, lesson)["reward"] == pytest.approx(2.5 / 5)
    assert torch.isfinite(whole_lesson(scored, RECIPES[recipe].advantage).reward_N).all()


def test_the_reward_that_is_reported_is_the_one_that_is_trained_on(played):
    mixed = [replace(t, rewards={"verified": 0.0, "learned": 700.0}) for t in played]
    scored = replace(scores(played), trajectories=mixed)
    assert describe_lesson(scored, select_lesson(scored, group_relative))["reward"] == pytest.approx(2.5 / 6)


def test_siblings_that_differ_in_the_models_opinion_alone_are_left_out(played):
    class Opinion:
        name = "learned"

        def score(self, trajectories, tasks):
            return [measured(float(trajectory.sibling)) for trajectory in trajectories]

    tied = [replace(t, success=t.group_id == "train-01", progress=0.5) for t in played]
    options = {"model_weight": 0.5, "invalid_call_reward": 0.0, "learned": Opinion()}
    for in_ties, expected in ((False, 0), (True, 6)):
        scored = RewardMix(make_policy().tokenizer, learned_in_ties=in_ties, **options).score(tied, {})
        assert len(select_lesson(scored, group_relative).trajectories) == expected


def test_nothing_but_cut_episodes_leaves_nothing(played):
    lesson = select_lesson(scores(played, ends=(0, 1, 2)), group_relative, learn_from_cut=False)
    assert (len(lesson.trajectories), len(lesson.advantage_N), lesson.cut) == (0, 0, 3)


def test_long_episodes_are_lowered_and_failures_stay_failures(played):
    scored = Scores([1.0, None, *[0.0] * (len(played) - 2)], played, Counter())
    lengths = [len(trajectory.token_ids()) for trajectory in played]
    found = shorten(scored, context=max(lengths), share=1.0)
    assert found.rewards[1] is None
    assert found.rewards[0] == pytest.approx(1.0 - lengths[0] / max(lengths))
    assert shorten(scored, context=max(lengths), share=0.0).rewards == scored.rewards


def test_every_task_is_played_once_an_epoch_and_never_twice_a_batch():
    batches = [task_batch(7, 3, iteration, seed=1) for iteration in range(4)]
    assert all(len(set(batch)) == 3 for batch in batches)
    assert len({*batches[0], *batches[1]}) == 6
    assert task_batch(7, 3, 2, seed=1) == batches[2]
    assert [batches[0], batches[1]] != [batches[2], batches[3]]
