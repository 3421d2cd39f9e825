"""On `twophase`: how a method's credit of real turns agrees with their exact advantage.

The policy stage writes down the credit that it would give to fresh siblings of
some `val` tasks, before the first update and after the last. The exact
advantages are those of the policy that played, as far as the counts of the same
siblings show it (`replay.estimated_policy`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geartrain.algorithms.credit_scores import CreditScore, probability_above, score_by_phase
from geartrain.config import Config
from geartrain.datasets.task_sets import read_tasks
from geartrain.environments.environment import Task
from geartrain.environments.tools import ToolError, parse_call
from geartrain.environments.twophase.exact import Mdp, evaluate
from geartrain.environments.twophase.phases import score_phases
from geartrain.environments.twophase.replay import ExactStep, estimated_policy, exact_steps, trace
from geartrain.rollouts.collect import Limits
from geartrain.stages.stage import FOLDERS
from geartrain.study.outcomes import MOMENTS, read_credit
from geartrain.trajectory import ToolCall, ToolResult, read_trajectories

KEY_STAKE = 0.1
"""Probability of success that hangs on a choice from which a step is a key step."""
LOOKED_AT = 2
"""Steps of largest credit in an episode that are looked at for key steps."""


@dataclass(frozen=True)
class CreditMoment:
    """Agreement of credit and exact advantage on the siblings of one moment."""

    scores: Mapping[str, CreditScore]
    """Phase, or "all" -> score."""
    weight: Mapping[str, float]
    """Phase -> mean weight of its turns; 1 is what plain GRPO gives."""
    credited: float
    """Share of turns whose credit is not 0; at 0 no siblings differed, and the scores say nothing about the method."""
    granularity: Mapping[str, float] = field(default_factory=dict)
    """Phase -> mean g of its turns, 1 coarsest; empty of a method that has none."""
    coarser: float | None = None
    """Probability that a planning turn has a higher g than a doing turn, ties by half; 0.5 is chance, 1 is what g is
    meant to be (GEAR-111). None of a method without g, or where a phase is missing."""


@dataclass(frozen=True)
class Said:
    """A turn of a credit record, as `replay` reads turns."""

    call: ToolCall | None
    result: ToolResult

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Said":
        """Parse a turn again; one that was answered by an error is an error, whatever it says."""
        try:
            call = None if record["error"] else parse_call(record["action"])
        except ToolError:
            call = None
        return cls(call, ToolResult(record["observation"], record["error"]))


def score_moments(folder: Path, config: Config) -> dict[str, CreditMoment]:
    """Score a cell's `credit_before.jsonl` and `credit_after.jsonl`."""
    tasks = {task.task_id: task for task in read_tasks(folder / FOLDERS["tasks"], "val")}
    limits = Limits.of(config)
    found = {}
    for moment in MOMENTS:
        found[moment] = score_records(read_credit(folder, moment), tasks, limits)
    return found


def read_phases(folder: Path, config: Config) -> dict[str, float]:
    """Score the phases of the sampled test episodes of a cell's result."""
    tasks = {task.task_id: task for task in read_tasks(folder / FOLDERS["tasks"], "test")}
    path = folder / FOLDERS["evaluation"] / "episodes/after_test_sampled.parquet"
    return score_phases(list(read_trajectories(path)), tasks, Limits.of(config).turns) if path.is_file() else {}


def score_records(records: Sequence[Mapping[str, Any]], tasks: Mapping[str, Task], limits: Limits) -> CreditMoment:
    """Hold the credit of recorded turns against their exact advantages; the policy is estimated from the same turns."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        groups[record["task_id"]].append(record)
    exact: list[list[ExactStep]] = []
    for task_id, siblings in groups.items():
        mdp = Mdp.of(tasks[task_id], horizon=limits.turns(tasks[task_id]))
        played = [[Said.of(turn) for turn in record["turns"]] for record in siblings]
        values = evaluate(mdp, estimated_policy(mdp, [trace(mdp, turns) for turns in played]))
        exact += [exact_steps(mdp, values, turns) for turns in played]
    return score_steps([record for siblings in groups.values() for record in siblings], exact)


def score_steps(records: Sequence[Mapping[str, Any]], exact: Sequence[Sequence[ExactStep]]) -> CreditMoment:
    """Hold the credit of recorded turns against the truth about them; turns without a token are left out.

    Args:
        records: one per episode, from `training.credit_report`.
        exact: of the same episodes, the truth about every turn.
    """
    credit, advantage, phase, key, episode, weight = ([] for _ in range(6))
    coarse: dict[str, list[float]] = defaultdict(list)
    for number, (record, steps) in enumerate(zip(records, exact, strict=True)):
        for turn, step in zip(record["turns"], steps, strict=True):
            if turn["credit"] is None:
                continue
            credit.append(turn["credit"])
            advantage.append(step.advantage)
            phase.append(step.phase)
            key.append(step.stake > KEY_STAKE)
            episode.append(number)
            weight.append(turn["weight"])
            if (g := turn.get("granularity")) is not None:
                coarse[step.phase].append(g)
    scores = score_by_phase(credit, advantage, phase, key_N=key, episode_N=episode, k=LOOKED_AT) if credit else {}
    by_phase: dict[str, list[float]] = {"all": weight} if weight else {}
    for name, value in zip(phase, weight, strict=True):
        by_phase.setdefault(name, []).append(value)
    weights = {name: sum(values) / len(values) for name, values in sorted(by_phase.items())}
    credited = sum(value != 0 for value in credit) / len(credit) if credit else 0.0
    means = {name: sum(values) / len(values) for name, values in sorted(coarse.items())}
    return CreditMoment(scores, weights, credited, means, probability_above(coarse["plan"], coarse["do"]))
