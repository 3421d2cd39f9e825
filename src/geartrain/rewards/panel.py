"""A panel of tools that is asked about a batch of episodes: cheap ones first, within a time, all of it on record."""

import time
from collections.abc import Sequence

from geartrain.rewards.audit import AuditLog
from geartrain.rewards.channel import Tasks
from geartrain.rewards.outcome import Outcome
from geartrain.rewards.tools import Clock, Tool
from geartrain.trajectory import Trajectory

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
