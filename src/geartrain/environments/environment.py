"""What an environment is: tasks in, tool results out, a verdict on the final state.

An environment holds the tools and the world; an episode is one attempt at one
task in a private copy of that world. Siblings are episodes of the same task
with the same world seed, so they start from byte-identical state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from geartrain.trajectory import ToolCall, ToolResult, Trajectory


def nobody(count: int) -> None:
    """Hear of progress, and do nothing."""


@dataclass(frozen=True)
class Task:
    """One task of an environment.

    `spec` is the hidden part (parameters, ground truth, sub-goals): it is read
    by the environment's verifier and by the scripted expert, never rendered
    into a prompt.
    """

    task_id: str
    environment: str
    family: str
    split: str
    prompt: str
    world: str
    """Name of the world contents (for `analyst`: the database edition)."""
    necessary_steps: int
    """Tool calls in the shortest scripted solution, `finish` included."""
    spec: Mapping[str, Any] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """Return a JSON-ready dict; `Task.from_record` restores an equal task."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Task":
        """Rebuild a task from `to_record`'s dict. Raises TypeError on unknown keys."""
        return cls(**record)


@dataclass(frozen=True)
class ToolSpec:
    """A tool as the model is told about it (JSON schema, as OpenAI and MCP use)."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """What one agent message did to the episode."""

    call: ToolCall | None
    """The parsed call, or None when the message held no well-formed call."""
    result: ToolResult
    """What the agent is shown next; an error is a result, never an exception."""
    subgoals: tuple[str, ...]
    """Sub-goals that this step reached for the first time."""
    done: bool


@dataclass(frozen=True)
class Verdict:
    """Judgement of the final state; computed outside the agent's reach."""

    success: bool
    subgoals: Mapping[str, bool]
    reasons: tuple[str, ...] = ()
    """Why the verdict is not a success, for people."""

    @property
    def progress(self) -> float:
        """Share of sub-goals reached, in [0, 1]."""
        return sum(self.subgoals.values()) / len(self.subgoals) if self.subgoals else float(self.success)


class Episode(Protocol):
    """One attempt at one task, in a private world."""

    task: Task

    def opening(self) -> list[dict[str, str]]:
        """Return the first chat messages: system (tools, rules), then user (the task)."""
        ...

    def step(self, message: str) -> Step:
        """Apply one assistant message. Never raises on model output."""
        ...

    def verdict(self) -> Verdict:
        """Judge the state as it is now; may be asked at any time."""
        ...

    def close(self) -> None:
        """Release the world (open database, temporary files)."""
        ...


class Environment(Protocol):
    """A family of worlds with one tool set."""

    name: str

    def tools(self) -> Sequence[ToolSpec]:
        """Return the tools, in the order in which the prompt lists them."""
        ...

    def build_tasks(
        self, *, seed: int, sizes: Mapping[str, int], on_task: Callable[[int], object] = nobody
    ) -> dict[str, list[Task]]:
        """Generate every split; the same arguments give the same tasks. `on_task` hears of each as it is made."""
        ...

    def reset(self, task: Task, *, seed: int) -> Episode:
        """Start an episode. The same (task, seed) gives the same initial state."""
        ...

    def answer(self, task: Task) -> str:
        """Return what a right final state holds, in words; for a privileged teacher, never shown to a student."""
        ...

    def describe_phases(
        self, trajectories: Sequence[Trajectory], tasks: Mapping[str, Task], *, horizon: Callable[[Task], int]
    ) -> dict[str, float]:
        """Return how each phase of episodes went, by names of the environment's own; empty where it has no phases.

        `tasks` are by task id; `horizon` gives the turns after which episodes of a task were cut.
        """
        ...

    def expert(self, task: Task, *, seed: int, flawed: bool) -> "Expert":
        """Return a scripted policy for demonstrations; `flawed=False` always solves the task."""
        ...


class Expert(Protocol):
    """A scripted policy: reads what the agent would read, writes what it would write."""

    def act(self, last: ToolResult | None) -> str:
        """Return the next assistant message, given the last tool result (None at the start)."""
        ...
