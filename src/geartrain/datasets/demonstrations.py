"""Demonstrations: the scripted expert plays, and its episodes become supervised sequences.

The expert reads what the agent would read. It is deliberately imperfect (see
the environment), so that the warm start leaves something to learn.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from geartrain.environments.environment import Environment, Task
from geartrain.seeds import seed_of


@dataclass(frozen=True)
class Exchange:
    """One expert message and the tool's answer to it."""

    action: str
    observation: str
    error: str | None


@dataclass(frozen=True)
class Demonstration:
    """One expert episode, as text."""

    task_id: str
    opening: Sequence[dict[str, str]]
    exchanges: Sequence[Exchange]
    success: bool

    def texts(self) -> Iterator[str]:
        """Yield every text that the tokenizer must be able to write, each after its role, as chat templates do."""
        yield from (f"{message['role']}\n{message['content']}" for message in self.opening)
        for exchange in self.exchanges:
            yield f"assistant\n{exchange.action}"
            yield f"tool\n{exchange.observation}"


def demonstrate(environment: Environment, task: Task, *, seed: int, max_turns: int) -> Demonstration:
    """Let the flawed expert play one task. The same arguments give the same episode."""
    episode = environment.reset(task, seed=seed)
    expert = environment.expert(task, seed=seed, flawed=True)
    exchanges: list[Exchange] = []
    last = None
    try:
        for _ in range(max_turns):
            action = expert.act(last)
            step = episode.step(action)
            last = step.result
            exchanges.append(Exchange(action, last.content, last.error))
            if step.done:
                break
        return Demonstration(task.task_id, episode.opening(), exchanges, episode.verdict().success)
    finally:
        episode.close()


def demonstrate_all(
    environment: Environment, tasks: Sequence[Task], *, count: int, seed: int, max_turns: int
) -> Iterable[Demonstration]:
    """Yield `count` demonstrations that go round the tasks, each with its own seed."""
    for index in range(count):
        task = tasks[index % len(tasks)]
        yield demonstrate(environment, task, seed=seed_of(seed, task.task_id, index // len(tasks)), max_turns=max_turns)
