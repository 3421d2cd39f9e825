"""What is trained on: groups with a signal, and episodes that ended by themselves."""

from collections import Counter
from dataclasses import dataclass, replace

import pytest

from geartrain.algorithms.advantage import group_relative
from geartrain.rollouts.collect import EpisodeRequest
from geartrain.training.lesson import describe_lesson, select_lesson, shorten
from geartrain.trajectory import Trajectory
from tests.fakes.parity import ParityPlayers, make_config, make_policy, make_tasks


@dataclass(frozen=True)
class Scores:
    rewards: list[float | None]
    trajectories: list[Trajectory]
    failures: Counter[str]


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
