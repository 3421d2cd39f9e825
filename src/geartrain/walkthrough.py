"""Show an environment to a person: its tools, a task, and how the expert solves it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geartrain.config import SPLITS, Config
from geartrain.datasets.task_sets import read_tasks
from geartrain.environments import build_worlds, load_environment
from geartrain.environments.environment import Environment, Task
from geartrain.errors import UserError
from geartrain.seeds import seed_of

FEW = dict.fromkeys(SPLITS, 12)


@contextmanager
def open_environment(config: Config, tasks: Path | None, split: str) -> Iterator[tuple[Environment, list[Task]]]:
    """Yield the environment and the tasks of a split: those in `tasks` if they are there, else a few made now."""
    if split not in SPLITS:
        raise UserError(f"no split {split!r}; there are {', '.join(SPLITS)}")
    with tempfile.TemporaryDirectory() as folder:
        found = None
        if tasks is not None and (tasks / "worlds").is_dir():
            worlds = tasks / "worlds"
            found = read_tasks(tasks, split)
        else:
            worlds = Path(folder)
            build_worlds(config.environment, worlds, seed=config.seed)
        environment = load_environment(config.environment, worlds)
        if found is None:
            found = environment.build_tasks(seed=config.seed, sizes=FEW)[split]
        yield environment, found


def describe_tools(environment: Environment) -> Iterator[str]:
    """Yield one line per tool: its call, then what it does."""
    for tool in environment.tools():
        properties = tool.parameters.get("properties", {})
        yield f"{tool.name}({', '.join(properties)}): {tool.description}"


def play_expert(environment: Environment, task: Task, *, seed: int, max_turns: int) -> Iterator[tuple[str, str]]:
    """Yield (speaker, text) of one episode of the unflawed expert, and the verdict."""
    seed = seed_of(seed, task.task_id, "walkthrough")
    episode, expert = environment.reset(task, seed=seed), environment.expert(task, seed=seed, flawed=False)
    try:
        yield from ((message["role"], message["content"]) for message in episode.opening())
        last = None
        for _ in range(max_turns):
            message = expert.act(last)
            step = episode.step(message)
            last = step.result
            yield "assistant", message
            reached = f"  [reached: {', '.join(step.subgoals)}]" if step.subgoals else ""
            yield "tool", step.result.content + reached
            if step.done:
                break
        verdict = episode.verdict()
        yield "verdict", "success" if verdict.success else "; ".join(verdict.reasons)
    finally:
        episode.close()
