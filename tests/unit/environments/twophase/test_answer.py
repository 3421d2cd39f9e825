"""The answer that a privileged teacher is told solves the task."""

import re

import pytest

from geartrain.environments.tools import render_call


@pytest.mark.parametrize("family", ["route", "recipe", "convoy", "order"])
def test_who_follows_the_answer_succeeds(environment, tasks, family):
    chosen = [task for items in tasks.values() for task in items if task.family == family][:20]
    assert chosen
    for task in chosen:
        plan, stops = environment.answer(task).removeprefix("The answer: plan ").split("; ")
        verbs = dict(stop.split(": ") for stop in stops.split(", "))
        episode = environment.reset(task, seed=0)
        content = episode.step(render_call("look", {})).result.content
        for choice in plan.split(", "):
            content = episode.step(render_call("plan", {"choice": choice})).result.content
        while (stop := re.search(r"stop \d+ of \d+: (\w+)", content)) is not None:
            name = stop[1]
            content = episode.step(render_call("do", {"action": verbs[name]})).result.content
        episode.step(render_call("finish", {}))
        assert episode.verdict().success, (task.prompt, environment.answer(task), stop)
