"""Tasks and the environment, built once; one way to play an expert; small tasks by family."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from geartrain.config import EnvironmentSection
from geartrain.environments.environment import Expert, Step, Task, Verdict
from geartrain.environments.twophase import TwoPhaseEnvironment

SIZES = {"train": 240, "val": 60, "test": 120, "ood": 48, "paraphrase": 60}


@pytest.fixture(scope="session")
def environment() -> TwoPhaseEnvironment:
    return TwoPhaseEnvironment(Path("no-such-folder"), EnvironmentSection(name="twophase"))


@pytest.fixture(scope="session")
def tasks(environment: TwoPhaseEnvironment) -> dict[str, list[Task]]:
    return environment.build_tasks(seed=0, sizes=SIZES)


@pytest.fixture(scope="session")
def play(environment: TwoPhaseEnvironment) -> Callable[[Task, Expert], tuple[list[tuple[str, Step]], Verdict]]:
    """Play an expert to the end; return (message, step) per turn and the verdict."""

    def run(task: Task, expert: Expert) -> tuple[list[tuple[str, Step]], Verdict]:
        episode = environment.reset(task, seed=0)
        log: list[tuple[str, Step]] = []
        while not (log and log[-1][1].done):
            message = expert.act(log[-1][1].result if log else None)
            log.append((message, episode.step(message)))
        return log, episode.verdict()

    return run


@pytest.fixture(scope="session")
def smallest(tasks: dict[str, list[Task]]) -> Callable[..., Task]:
    """Return the shortest task of a family, with another budget if one is given."""

    def find(family: str, budget: int | None = None) -> Task:
        of_family = [task for items in tasks.values() for task in items if task.family == family]
        task = min(of_family, key=lambda task: task.necessary_steps)
        return task if budget is None else replace(task, spec={**task.spec, "budget": budget})

    return find
