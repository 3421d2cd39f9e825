"""Worlds, tasks and an environment, built once; and one way to play an episode."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from geartrain.config import EnvironmentSection
from geartrain.environments import build_worlds
from geartrain.environments.analyst import AnalystEnvironment
from geartrain.environments.environment import Expert, Step, Task, Verdict

SIZES = {"train": 240, "val": 60, "test": 120, "ood": 48, "paraphrase": 60}

Play = Callable[[Task, Expert], tuple[list[tuple[str, Step]], Verdict]]


@pytest.fixture(scope="session")
def source(root: Path) -> Path:
    path = root / "data" / "raw" / "chinook.json"
    if not path.is_file():
        pytest.skip("no data/raw/chinook.json; run `python data/fetch.py`")
    return path


@pytest.fixture(scope="session")
def worlds(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds")
    build_worlds(EnvironmentSection(source=source), folder, seed=0)
    return folder


@pytest.fixture(scope="session")
def environment(worlds: Path) -> Iterator[AnalystEnvironment]:
    environment = AnalystEnvironment(worlds, EnvironmentSection())
    yield environment
    environment.close()


@pytest.fixture(scope="session")
def tasks(environment: AnalystEnvironment) -> dict[str, list[Task]]:
    return environment.build_tasks(seed=0, sizes=SIZES)


@pytest.fixture(scope="session")
def play(environment: AnalystEnvironment) -> Play:
    """Play an expert to the end; return (message, step) per turn and the verdict."""

    def run(task: Task, expert: Expert) -> tuple[list[tuple[str, Step]], Verdict]:
        episode = environment.reset(task, seed=0)
        log: list[tuple[str, Step]] = []
        while len(log) < 60 and not (log and log[-1][1].done):
            message = expert.act(log[-1][1].result if log else None)
            log.append((message, episode.step(message)))
        return log, episode.verdict()

    return run
