"""A panel of tools that is asked about a batch of episodes: cheap ones first, within a time, all of it on record."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from geartrain.rewards.audit import AuditLog
from geartrain.rewards.channel import Tasks
from geartrain.rewards.learned import Learned
from geartrain.rewards.outcome import Outcome
from geartrain.rewards.tools import Clock, Tool
from geartrain.rewards.weights import Weights
from geartrain.trajectory import Trajectory

LEARNED = Learned.name


@dataclass(frozen=True)
class Panel:
    """Which tools are asked beside the verdict and the reward model, and how much each weighs."""

    tools: Sequence[Tool] = ()
    weights: Weights = field(default_factory=Weights)
    iterations: int = 1
    """Of the run: with an episode's policy version they give the share of the run that is over."""
    seconds: float | None = None
    """Time that one batch of episodes may take; None is no limit."""
    audit: AuditLog | None = None

    def weight(self, tool: str, trajectory: Trajectory, learned: float) -> float:
        """Return the weight of a tool for an episode's family at its time; `learned` is the reward model's own."""
        share = min(1.0, trajectory.policy_version / max(1, self.iterations - 1))
        weights = replace(self.weights, everywhere={LEARNED: learned, **self.weights.everywhere})
        return weights.of(tool, family=trajectory.family, share=share)


Columns = dict[str, list[Outcome]]
"""Outcomes by tool, in the order of the trajectories."""


def ask_panel(
    tools: Sequence[Tool],
    trajectories: Sequence[Trajectory],
    tasks: Tasks,
    *,
    seconds: float | None = None,
    audit: AuditLog | None = None,
    clock: Clock = time.monotonic,
) -> Columns:
    """Ask every tool about every episode; `seconds` is the time for all of them, None is no limit.

    The columns come in the order of `tools`, whatever the order of asking.
    """
    deadline = None if seconds is None else clock() + seconds
    found: Columns = {}
    for tool in sorted(tools, key=lambda tool: tool.cost):
        started = clock()
        found[tool.name] = tool.score_within(trajectories, tasks, deadline=deadline, clock=clock)
        if audit is not None:
            audit.write(tool, trajectories, found[tool.name], seconds=clock() - started)
    return {tool.name: found[tool.name] for tool in tools}
