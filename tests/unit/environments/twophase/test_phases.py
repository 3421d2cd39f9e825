"""Planning and doing, told apart in episodes that were played."""

from typing import Any

import pytest

from geartrain.environments.environment import Step, Task
from geartrain.environments.tools import render_call
from geartrain.environments.twophase import TwoPhaseEnvironment
from geartrain.trajectory import Trajectory, Turn

PLANNING, DOING = 0.5, 0.25
"""Nats of every token, as the tests make them up."""


def horizon(task: Task) -> int:
    return 26


def record(task: Task, steps: list[Step], success: bool) -> Trajectory:
    planned = max((i for i, step in enumerate(steps) if step.call and step.call.name == "plan"), default=len(steps))
    turns = [
        Turn([1], [2], [0.0], "", step.call, step.result, action_entropies=[PLANNING if index <= planned else DOING])
        for index, step in enumerate(steps)
    ]
    return Trajectory(task.task_id, task.family, task.task_id, 0, 0, 0, 1.0, turns, success, 1.0, "finished")


@pytest.fixture(scope="module")
def by_id(tasks: dict[str, list[Task]]) -> dict[str, Task]:
    return {task.task_id: task for task in tasks["test"]}


@pytest.fixture(scope="module")
def played(environment: TwoPhaseEnvironment, by_id: dict[str, Task], play: Any) -> list[Trajectory]:
    """Episodes of the flawed expert, two siblings of each of 20 tasks."""
    found = []
    for task in list(by_id.values())[:20]:
        for seed in range(2):
            log, verdict = play(task, environment.expert(task, seed=seed, flawed=True))
            found.append(record(task, [step for _, step in log], verdict.success))
    return found


def test_phases_are_judged_apart(
    environment: TwoPhaseEnvironment, by_id: dict[str, Task], played: list[Trajectory]
) -> None:
    found = environment.describe_phases(played, by_id, horizon=horizon)
    assert set(found) == {"plan_success", "do_success", "entropy_plan", "entropy_do"}
    won = sum(trajectory.success for trajectory in played) / len(played)
    assert 0 < won <= min(found["plan_success"], found["do_success"]) < 1
    assert (found["entropy_plan"], found["entropy_do"]) == (PLANNING, DOING)
    winners = [trajectory for trajectory in played if trajectory.success]
    of_winners = environment.describe_phases(winners, by_id, horizon=horizon)
    assert (of_winners["plan_success"], of_winners["do_success"]) == (1.0, 1.0)


def test_what_never_came_is_left_out(environment: TwoPhaseEnvironment, by_id: dict[str, Task]) -> None:
    assert environment.describe_phases([], by_id, horizon=horizon) == {}
    task = next(iter(by_id.values()))
    episode = environment.reset(task, seed=0)
    lost = record(task, [episode.step(message) for message in ("", render_call("look", {}))], success=False)
    found = environment.describe_phases([lost], by_id, horizon=lambda task: 2)
    assert found == {"plan_success": 0.0, "entropy_plan": PLANNING}
