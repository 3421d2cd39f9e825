"""Tools of the reward: a channel, and what is declared of it: its kind, what it applies to, what it costs.

A tool is a channel itself, so that whoever asks channels asks tools. It asks
its channel only for what it applies to, a batch at a time, and stops when time
is up; what it was not asked for then is a failure, never a 0.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from geartrain.environments.environment import Task
from geartrain.errors import UserError
from geartrain.rewards.channel import Channel, Tasks, ask
from geartrain.rewards.outcome import Failed, NotApplicable, Outcome
from geartrain.trajectory import Trajectory

Kind = Literal["verifier", "rule", "metric", "model", "judge"]
Clock = Callable[[], float]
RATIO_FLOOR = 0.05
"""Smallest spread of a channel in [0, 1] that is a difference: below it the siblings are alike."""


class Cost(IntEnum):
    """What asking costs; cheap tools are asked first."""

    NONE = 0
    """It is known already."""
    CPU = 1
    """Milliseconds of the processor."""
    MODEL = 2
    """A pass of a model of ours."""
    SERVER = 3
    """A call of a server, which may cost money."""


@dataclass(frozen=True)
class Applies:
    """What a tool can judge. A tool may still answer "does not apply" once it has read an episode."""

    families: frozenset[str] | None = None
    """Task families; None is every one."""
    reference: bool = False
    """Whether the task must have a reference answer."""

    def why_not(self, task: Task) -> str | None:
        """Return the kind of reason for which a task cannot be judged, or None."""
        if self.families is not None and task.family not in self.families:
            return "other_family"
        if self.reference and not _has_reference(task):
            return "no_reference"
        return None


@dataclass(frozen=True)
class Tool:
    """A channel with its declaration."""

    channel: Channel
    kind: Kind
    cost: Cost
    what: str
    """One line for people."""
    applies: Applies = Applies()
    gate: bool = False
    """Whether a value below 0.5 makes an answer unsound: where there is no verdict, no praise lifts it then."""
    floor: float = RATIO_FLOOR
    """Spread within a group below which its differences mean less than their size."""
    batch: int = 64
    """Episodes that are asked for between two looks at the clock."""

    @property
    def name(self) -> str:
        """Name of the channel."""
        return self.channel.name

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        """Return one outcome per trajectory, in order; without a limit of time."""
        return self.score_within(trajectories, tasks, deadline=None)

    def score_within(
        self, trajectories: Sequence[Trajectory], tasks: Tasks, *, deadline: float | None, clock: Clock = time.monotonic
    ) -> list[Outcome]:
        """Return one outcome per trajectory; what is not begun when `clock` reads `deadline` is "out_of_time"."""
        outcomes = [self._refusal(trajectory, tasks) for trajectory in trajectories]
        wanted = [row for row, outcome in enumerate(outcomes) if outcome is None]
        for start in range(0, len(wanted), self.batch):
            rows = wanted[start : start + self.batch]
            late = deadline is not None and clock() >= deadline
            found = [Failed("out_of_time")] * len(rows) if late else ask(self.channel, _at(trajectories, rows), tasks)
            for row, outcome in zip(rows, found, strict=True):
                outcomes[row] = outcome
        return [Failed("not_scored") if outcome is None else outcome for outcome in outcomes]

    def _refusal(self, trajectory: Trajectory, tasks: Tasks) -> Outcome | None:
        task = tasks.get(trajectory.task_id)
        if task is None:
            return None  # the channel says whether it needs the task
        reason = self.applies.why_not(task)
        return None if reason is None else NotApplicable(reason)


class Registry:
    """Tools by name, in the order in which they were added."""

    def __init__(self, tools: Sequence[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Add a tool. Raises UserError if its name is taken: a reward must not change its meaning unseen."""
        if tool.name in self._tools:
            raise UserError(f"reward tool {tool.name!r} is there already; give the other one another name")
        self._tools[tool.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, name: str) -> Tool:
        """Return a tool. Raises UserError if there is none of that name."""
        if name not in self._tools:
            raise UserError(f"no reward tool {name!r}; there are {', '.join(self._tools) or 'none'}")
        return self._tools[name]

    def for_task(self, task: Task) -> list[Tool]:
        """Return the tools that apply to a task by their declaration, cheapest first."""
        return sorted((tool for tool in self if tool.applies.why_not(task) is None), key=lambda tool: tool.cost)


def _has_reference(task: Task) -> bool:
    reference = task.spec.get("reference")
    return isinstance(reference, str) and bool(reference.strip())


def _at(trajectories: Sequence[Trajectory], rows: Sequence[int]) -> list[Trajectory]:
    return [trajectories[row] for row in rows]
