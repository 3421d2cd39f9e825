"""Credit of real turns against exact advantages: the exact advantage itself must score 1, its reverse -1."""

from typing import Any

import pytest

from geartrain.config import EnvironmentSection
from geartrain.environments.environment import Task
from geartrain.environments.twophase import TwoPhaseEnvironment
from geartrain.environments.twophase.exact import Mdp, evaluate
from geartrain.environments.twophase.replay import estimated_policy, exact_steps, trace
from geartrain.rollouts.collect import Limits
from geartrain.study.exact import Said, score_records

LIMITS = Limits(10_000, 26)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Task], list[tuple[Task, list[Any], bool]]]:
    """Tasks, and episodes of the flawed expert: two siblings each, with what every step was answered."""
    environment = TwoPhaseEnvironment(tmp_path_factory.mktemp("none"), EnvironmentSection(name="twophase"))
    tasks = environment.build_tasks(seed=0, sizes={"test": 8})["test"]
    episodes = []
    for task in tasks:
        for seed in range(2):
            episode, result, steps = environment.reset(task, seed=0), None, []
            expert = environment.expert(task, seed=seed, flawed=True)
            while not (steps and steps[-1][1].done):
                message = expert.act(result)
                step = episode.step(message)
                result = step.result
                steps.append((message, step))
            episodes.append((task, steps, episode.verdict().success))
    return {task.task_id: task for task in tasks}, episodes


def records(played: Any, credit: Any, coarse: Any = lambda truth: None) -> list[dict[str, Any]]:
    """Credit records as the policy stage writes them; `credit` and `coarse` (granularity) are of the exact step."""
    tasks, episodes = played
    found = []
    for task in tasks.values():
        mdp = Mdp.of(task, horizon=LIMITS.turns(task))
        siblings = [steps for t, steps, _ in episodes if t is task]
        turns = [[Said(step.call, step.result) for _, step in steps] for steps in siblings]
        values = evaluate(mdp, estimated_policy(mdp, [trace(mdp, said) for said in turns]))
        for steps, said in zip(siblings, turns, strict=True):
            exact = exact_steps(mdp, values, said)
            rows = [
                {
                    "action": message,
                    "observation": step.result.content,
                    "error": step.result.error,
                    "weight": 1.5 if truth.phase == "plan" else 0.5,
                    "credit": credit(truth),
                    "granularity": coarse(truth),
                }
                for (message, step), truth in zip(steps, exact, strict=True)
            ]
            found.append({"task_id": task.task_id, "turns": rows})
    return found


@pytest.mark.parametrize(("sign", "share"), [(1, 1.0), (-1, 0.0)])
def test_the_truth_scores_one_and_its_reverse_minus_one(played: Any, sign: int, share: float) -> None:
    found = score_records(records(played, lambda truth: sign * truth.advantage), played[0], LIMITS)
    assert set(found.scores) == {"all", "plan", "do"}
    assert found.scores["all"].rank_correlation == pytest.approx(sign)
    assert found.scores["all"].sign_agreement == share
    assert found.weight["plan"] == 1.5
    assert found.weight["do"] == 0.5


@pytest.mark.parametrize(("plan", "do", "coarser"), [(0.9, 0.1, 1.0), (0.1, 0.9, 0.0), (0.4, 0.4, 0.5)])
def test_granularity_is_held_against_the_phase_that_is_known(played: Any, plan: float, do: float, coarser: float):
    given = records(played, lambda truth: 0.7, lambda truth: plan if truth.phase == "plan" else do)
    found = score_records(given, played[0], LIMITS)
    assert found.coarser == coarser
    assert found.granularity == {"do": pytest.approx(do), "plan": pytest.approx(plan)}
    without = score_records(records(played, lambda truth: 0.7), played[0], LIMITS)
    assert (without.coarser, without.granularity) == (None, {})


def test_constant_credit_says_nothing_and_turns_without_a_token_are_left_out(played: Any) -> None:
    found = score_records(records(played, lambda truth: 0.7), played[0], LIMITS).scores["all"]
    assert found.rank_correlation == 0.0
    silent = score_records(records(played, lambda truth: 0.0), played[0], LIMITS)
    assert (silent.credited, silent.scores["all"].sign_agreement) == (0.0, 0.5)
    without = score_records(
        records(played, lambda truth: None if truth.phase == "plan" else 0.7), played[0], LIMITS
    ).scores
    assert set(without) == {"all", "do"}
    assert without["all"].steps < found.steps
