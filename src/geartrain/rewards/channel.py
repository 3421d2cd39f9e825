"""One interface for every source of reward, and the guard through which it is asked."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from geartrain.environments.environment import Task
from geartrain.rewards.outcome import Failed, Outcome
from geartrain.trajectory import Trajectory

Tasks = Mapping[str, Task]
"""Tasks by id."""


class Channel(Protocol):
    """A source of global-grain reward: a verifier, a rule, a learned model."""

    name: str

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        """Return one outcome per trajectory, in order. May raise: `ask` turns that into failures."""
        ...


def ask(channel: Channel, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
    """Return exactly one outcome per trajectory, whatever the channel does.

    When the whole batch raises, trajectories are asked one by one, so that one
    bad record costs one outcome and not the batch.
    """
    if not trajectories:
        return []
    try:
        return _checked(channel.score(trajectories, tasks), len(trajectories))
    except Exception as error:
        if len(trajectories) == 1:
            return [Failed(f"raised_{type(error).__name__}", str(error)[:200])]
    return [outcome for trajectory in trajectories for outcome in ask(channel, [trajectory], tasks)]


def _checked(outcomes: list[Outcome], count: int) -> list[Outcome]:
    if len(outcomes) != count:
        return [Failed("wrong_count", f"{len(outcomes)} outcomes for {count} trajectories")] * count
    return [
        outcome if isinstance(outcome, Outcome) else Failed("not_an_outcome", repr(outcome)[:80])
        for outcome in outcomes
    ]
