"""The script solves everything; its flaws break what they say, as often as they say."""

from collections import defaultdict
from collections.abc import Callable
from statistics import fmean

import pytest

from geartrain.environments.environment import Expert, Step, Task, Verdict
from geartrain.environments.tools import parse_call, render_call
from geartrain.environments.twophase import FLAWS, Habits, TwoPhaseEnvironment
from geartrain.environments.twophase.flaws import DO_LURES, PLAN_LURES

Play = Callable[[Task, Expert], tuple[list[tuple[str, Step]], Verdict]]
SPLITS = ("train", "val", "test", "ood", "paraphrase")
ALWAYS = Habits(flaw=1.0, slip=0.0, dawdle=0.0, broken_call=0.0)


@pytest.mark.parametrize("split", SPLITS)
def test_the_flawless_expert_solves_everything_in_necessary_steps(
    environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]], play: Play, split: str
) -> None:
    for task in tasks[split]:
        log, verdict = play(task, environment.expert(task, seed=0, flawed=False))
        assert verdict.success, (task.prompt, verdict.reasons)
        assert verdict.progress == 1.0
        assert len(log) == task.necessary_steps
        assert all(step.result.error is None for _, step in log)
        reached = [name for _, step in log for name in step.subgoals]
        assert sorted(reached) == sorted(verdict.subgoals)
        assert [name.partition(":")[0] for name in reached] == sorted(
            (name.partition(":")[0] for name in reached), reverse=True
        )


def test_it_reads_results_and_parameters_but_no_truth(
    environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    for task in [*tasks["test"][:30], *tasks["ood"][:10]]:
        blind = Task.from_record({**task.to_record(), "spec": {"parameters": task.spec["parameters"]}})
        assert play(task, environment.expert(blind, seed=0, flawed=False))[1].success


@pytest.mark.parametrize("split", SPLITS)
def test_a_flaw_always_breaks_its_task_and_only_that(
    environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]], play: Play, split: str
) -> None:
    for task in tasks[split]:
        log, verdict = play(task, environment.expert(task, seed=0, flawed=True, habits=ALWAYS))
        assert verdict.success is not bool(task.spec["flaws"]), (task.prompt, verdict.reasons)
        assert log[-1][1].result.content == "finished"
        assert all(step.result.error is None for _, step in log)
        in_plan = any(reason.startswith("plan:") for reason in verdict.reasons)
        assert in_plan is any(flaw in PLAN_LURES for flaw in task.spec["flaws"])
        assert ("do: something broke for good" in verdict.reasons) is any(f in DO_LURES for f in task.spec["flaws"])


def test_every_flaw_occurs(tasks: dict[str, list[Task]]) -> None:
    assert {flaw for split in ("train", "ood") for task in tasks[split] for flaw in task.spec["flaws"]} == set(FLAWS)
    assert set(FLAWS) == {*PLAN_LURES, *DO_LURES}


def test_the_flawed_expert_succeeds_about_half_of_the_time(
    environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    """40% have no lure, 25% one, 35% two: 0.40 + 0.25 x 0.35 + 0.35 x 0.35 ** 2 = 0.53."""
    by_lures = defaultdict(list)
    for split in SPLITS:
        outcomes = []
        for task in tasks[split]:
            for seed in range(3):
                success = play(task, environment.expert(task, seed=seed, flawed=True))[1].success
                outcomes.append(success)
                by_lures[len(task.spec["flaws"])].append(success)
        assert 0.42 < fmean(outcomes) < 0.64, split
    assert fmean(by_lures[0]) > 0.98
    assert 0.28 < fmean(by_lures[1]) < 0.42
    assert 0.07 < fmean(by_lures[2]) < 0.18


def test_slips_are_repaired_and_broken_calls_mended(
    environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    habits = Habits(flaw=0.0, slip=0.5, dawdle=1.0, broken_call=0.0)
    faults = Habits(flaw=0.0, slip=0.0, dawdle=0.0, broken_call=0.3)
    repaired, errors = 0, set()
    for task in tasks["train"][:40]:
        log, verdict = play(task, environment.expert(task, seed=0, flawed=True, habits=habits))
        repairs = [step.result.content for message, step in log if parse_call(message).name == "repair"]
        assert all(content.startswith("mended; stop") for content in repairs if "no calls left" not in content)
        repaired += len(repairs)
        # A wait and two slips are a call too many: then, and only then, time runs out.
        assert verdict.success is (len(repairs) < 2)
        log, _ = play(task, environment.expert(task, seed=0, flawed=True, habits=faults))
        errors |= {step.result.error for _, step in log}
    assert repaired > 10
    assert errors == {None, "malformed_json", "unknown_tool"}


def test_messages_are_canonical_and_seeds_repeat(
    environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    task = next(task for task in tasks["train"] if len(task.spec["flaws"]) == 2)
    runs = [
        [message for message, _ in play(task, environment.expert(task, seed=seed, flawed=True))[0]]
        for seed in (*range(8), 0)
    ]
    assert runs[0] == runs[-1]
    assert len({tuple(run) for run in runs}) > 1
    for message, step in play(task, environment.expert(task, seed=0, flawed=False))[0]:
        assert message == render_call(step.call.name, step.call.arguments)
    expert = environment.expert(task, seed=0, flawed=False)
    play(task, expert)
    assert expert.act(None) == render_call("finish", {})
