"""What a tool that reads text is shown of an episode: what the agent wrote and handed in, never what tools told it.

A judge or a metric that reads tool messages can be fed by them: an agent has a
tool print the right answer, or praise, and is paid for it. So the answer is
what the agent itself wrote: its last message where that is no call, else the
texts in its delivering calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from geartrain.datasets.transcript import DELIVERING
from geartrain.environments.environment import Task
from geartrain.trajectory import ToolResult, Trajectory, Turn


@dataclass(frozen=True)
class Reading:
    """One episode as text."""

    prompt: str
    """What was asked."""
    said: str
    """Everything that the agent wrote, one message a line."""
    answer: str | None
    """What it handed in; None where it did so in no words."""
    prose: bool
    """Whether the answer is words for people, not the arguments of a call."""
    reference: str | None
    """A right answer, where the task has one (`spec["reference"]`); never shown to the agent."""
    wishes: Mapping[str, Any]
    """What the task says of the form of its answer (`spec["wishes"]`): see `rules`."""


def read(trajectory: Trajectory, task: Task) -> Reading:
    """Return the texts of an episode."""
    messages = [turn.action_text for turn in trajectory.turns]
    spoken = bool(trajectory.turns) and trajectory.turns[-1].call is None
    reference = task.spec.get("reference")
    wishes = task.spec.get("wishes")
    return Reading(
        prompt=task.prompt,
        said="\n".join(messages),
        answer=messages[-1] if spoken else _delivered(trajectory),
        prose=spoken,
        reference=reference if isinstance(reference, str) and reference.strip() else None,
        wishes=wishes if isinstance(wishes, Mapping) else {},
    )


def spoken(task: Task, answer: str, *, sibling: int = 0, group: str | None = None, success: bool = False) -> Trajectory:
    """Return the episode of an agent that called no tool and said `answer`."""
    turn = Turn((), (), (), answer, None, ToolResult(""))
    return Trajectory(
        task_id=task.task_id,
        family=task.family,
        group_id=group or task.task_id,
        sibling=sibling,
        seed=0,
        policy_version=0,
        temperature=0.0,
        turns=(turn,),
        success=success,
        progress=float(success),
        end="finished",
    )


def _delivered(trajectory: Trajectory) -> str | None:
    texts = [
        str(value)
        for turn in trajectory.turns
        if turn.call is not None and turn.call.name in DELIVERING and turn.result.error is None
        for value in turn.call.arguments.values()
    ]
    return "\n".join(texts) if texts else None
