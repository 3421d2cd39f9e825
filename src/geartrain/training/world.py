"""What the policy loop asks of the outside: to play, to score, to measure, to describe."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from geartrain.models.backbone import Policy
from geartrain.training.best import Validation
from geartrain.training.lesson import Scored
from geartrain.trajectory import Trajectory

Record = dict[str, Any]
"""Numbers of one iteration, JSON-ready."""


class World(Protocol):
    """An environment with tasks, players and rewards; ranks share its work and all get its answers."""

    def play(self, policy: Policy, iteration: int, refill: int = 0) -> list[Trajectory]:
        """Play the siblings of this iteration's tasks, or of further ones; same arguments and memory, same episodes."""
        ...

    def remember(self, iteration: int, scored: Scored) -> None:
        """Keep what an iteration's episodes say of their tasks; later ones may be drawn by it."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what is remembered."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`'s value."""
        ...

    def score(self, trajectories: Sequence[Trajectory]) -> Scored:
        """Score trajectories, in order."""
        ...

    def validate(self, policy: Policy) -> Validation:
        """Measure a policy on `val`, always with the same seeds."""
        ...

    def describe(self, trajectories: Sequence[Trajectory]) -> Record:
        """Return numbers about trajectories for the history."""
        ...

    def answer(self, trajectory: Trajectory) -> str:
        """Return the ground truth of a trajectory's task in words; for a privileged teacher alone."""
        ...

    def opening(self, trajectory: Trajectory, hint: str) -> list[int] | None:
        """Return the opening ids with a hint added; None if the trajectory would no longer fit the context."""
        ...
