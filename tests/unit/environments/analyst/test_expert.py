"""The script solves everything; its flaws break what they say, as often as they say."""

import json
from collections import defaultdict
from collections.abc import Callable
from statistics import fmean

import pytest

from geartrain.environments.analyst import FLAWS, AnalystEnvironment, Habits
from geartrain.environments.environment import Expert, Step, Task, Verdict
from geartrain.environments.tools import parse_call, render_call

Play = Callable[[Task, Expert], tuple[list[tuple[str, Step]], Verdict]]
SPLITS = ("train", "val", "test", "ood", "paraphrase")
ALWAYS = Habits(flaw=1.0, broken_call=0.0, look_around=0.0)


@pytest.mark.parametrize("split", SPLITS)
def test_the_flawless_expert_solves_everything_in_necessary_steps(
    environment: AnalystEnvironment, tasks: dict[str, list[Task]], play: Play, split: str
) -> None:
    for task in tasks[split]:
        log, verdict = play(task, environment.expert(task, seed=0, flawed=False))
        assert verdict.success, (task.prompt, verdict.reasons)
        assert verdict.progress == 1.0
        assert len(log) == task.necessary_steps
        assert all(step.result.error is None for _, step in log)


def test_it_reads_results_and_parameters_but_no_truth(
    environment: AnalystEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    for task in tasks["test"][:30]:
        blind = {key: task.spec[key] for key in ("parameters", "sections")}
        expert = environment.expert(Task.from_record({**task.to_record(), "spec": blind}), seed=0, flawed=False)
        assert play(task, expert)[1].success


@pytest.mark.parametrize("split", SPLITS)
def test_a_flaw_always_breaks_its_task_and_only_that(
    environment: AnalystEnvironment, tasks: dict[str, list[Task]], play: Play, split: str
) -> None:
    for task in tasks[split]:
        log, verdict = play(task, environment.expert(task, seed=0, flawed=True, habits=ALWAYS))
        assert verdict.success is not bool(task.spec["flaws"]), (task.prompt, verdict.reasons)
        assert log[-1][1].done
        assert all(step.result.error is None for _, step in log)


def test_every_flaw_occurs(tasks: dict[str, list[Task]]) -> None:
    assert {flaw for task in tasks["train"] for flaw in task.spec["flaws"]} == set(FLAWS)


def test_the_flawed_expert_succeeds_about_half_of_the_time(
    environment: AnalystEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    """30% have no flaw site, 45% one, 25% two: 0.30 + 0.45 x 0.35 + 0.25 x 0.35 ** 2 = 0.49."""
    by_sites = defaultdict(list)
    for split in SPLITS:
        outcomes = []
        for task in tasks[split]:
            for seed in range(3):
                success = play(task, environment.expert(task, seed=seed, flawed=True))[1].success
                outcomes.append(success)
                by_sites[len(task.spec["flaws"])].append(success)
        assert 0.38 < fmean(outcomes) < 0.60, split
    assert fmean(by_sites[0]) > 0.98
    assert 0.28 < fmean(by_sites[1]) < 0.42
    assert 0.07 < fmean(by_sites[2]) < 0.18


def test_a_broken_call_is_answered_by_an_error_and_repaired(
    environment: AnalystEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    habits = Habits(flaw=0.0, broken_call=0.5, look_around=1.0)
    errors: set[str | None] = set()
    for task in tasks["train"][:40]:
        log, verdict = play(task, environment.expert(task, seed=0, flawed=True, habits=habits))
        assert verdict.success
        broken = [turn for turn, (_, step) in enumerate(log) if step.result.error]
        assert len(log) == task.necessary_steps + 1 + len(broken)
        assert all(log[turn + 1][1].result.error is None for turn in broken)
        errors |= {log[turn][1].result.error for turn in broken}
    assert errors == {"malformed_json", "unknown_tool", "sql_error"}


def test_messages_are_canonical(environment: AnalystEnvironment, tasks: dict[str, list[Task]], play: Play) -> None:
    for task in tasks["val"][:12]:
        for message, step in play(task, environment.expert(task, seed=0, flawed=False))[0]:
            call = parse_call(message)
            assert call == step.call
            assert message == render_call(call.name, call.arguments)
            assert message == json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


def test_seeds_repeat_and_differ(environment: AnalystEnvironment, tasks: dict[str, list[Task]], play: Play) -> None:
    task = next(task for task in tasks["train"] if len(task.spec["flaws"]) == 2)
    runs = [
        [message for message, _ in play(task, environment.expert(task, seed=seed, flawed=True))[0]]
        for seed in (*range(8), 0)
    ]
    assert runs[0] == runs[-1]
    assert len({tuple(run) for run in runs}) > 1


def test_after_the_end_it_only_finishes(environment: AnalystEnvironment, tasks: dict[str, list[Task]]) -> None:
    expert = environment.expert(tasks["val"][0], seed=0, flawed=False)
    messages, last = [], None
    episode = environment.reset(tasks["val"][0], seed=0)
    for _ in range(40):
        messages.append(expert.act(last))
        last = episode.step(messages[-1]).result
    assert set(messages[tasks["val"][0].necessary_steps - 1 :]) == {render_call("finish", {})}
