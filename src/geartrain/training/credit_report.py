"""What credit a policy's episodes get, turn by turn, for people to read."""

from collections.abc import Mapping
from typing import Any

import torch

from geartrain.algorithms.weighing import granularity_of
from geartrain.training.credit import BatchCredit, CreditAssigner
from geartrain.training.credit_numbers import turn_means
from geartrain.training.lesson import Lesson
from geartrain.trajectory import Trajectory

Record = dict[str, Any]


def credit_records(
    batch: BatchCredit, assigner: CreditAssigner, lesson: Lesson, prompts: Mapping[str, str]
) -> list[Record]:
    """Return one record per trajectory, as the training would credit it.

    Args:
        batch: credit of the lesson.
        assigner: what gave it.
        lesson: scored siblings of some tasks.
        prompts: the tasks' wording, by task id.
    """
    trajectories, advantage_N = lesson.trajectories, lesson.advantage_N
    coarse_S = _granularity(batch, assigner)
    records: list[Record] = []
    first = 0
    for row, trajectory in enumerate(trajectories):
        records.append(
            {
                "task_id": trajectory.task_id,
                "family": trajectory.family,
                "prompt": prompts[trajectory.task_id],
                "sibling": trajectory.sibling,
                "success": trajectory.success,
                "progress": trajectory.progress,
                "advantage": round(float(advantage_N[row]), 4),
                "turns": _turns(assigner, batch, trajectory, row, first),
            }
        )
        first += len(trajectory.turns)
    turns = [turn for record in records for turn in record["turns"]]
    for turn, coarse in zip(turns, coarse_S, strict=True):
        turn["granularity"] = coarse
    return records


def _granularity(batch: BatchCredit, assigner: CreditAssigner) -> list[float | None]:
    """Return g of every turn, 1 coarsest; None where the recipe asks for none, and of a turn without a token."""
    evidence, source = batch.evidence, str(assigner.settings.get("granularity", "none"))
    turns = len(evidence.row_S)
    if source == "none":
        return [None] * turns
    coarse_S = turn_means(granularity_of(evidence, source), evidence.turn_NT, turns).tolist()
    spoken_S = turn_means(evidence.mask_NT.float(), evidence.turn_NT, turns) > 0
    return [_round(coarse) if spoken else None for coarse, spoken in zip(coarse_S, spoken_S, strict=True)]


def _turns(assigner: CreditAssigner, batch: BatchCredit, trajectory: Trajectory, row: int, first: int) -> list[Record]:
    """Describe the turns of one trajectory; `first` counts the turns before it."""
    turns = []
    for index, (turn, (start, stop)) in enumerate(zip(trajectory.turns, trajectory.action_spans(), strict=True)):
        grains = batch.credit.grain_NTK
        named = {}
        if grains is not None:
            means = grains[row, start:stop].mean(0).tolist()
            named = {name: _round(mean) for name, mean in zip(assigner.recipe.grains, means, strict=True)}
        critic = None if batch.critic_S is None else _round(float(batch.critic_S[first + index]))
        turns.append(
            {
                "action": turn.action_text,
                "observation": turn.result.content,
                "error": turn.result.error,
                "subgoals": list(turn.subgoals),
                "weight": _round(float(batch.credit.weight_NT[row, start:stop].mean())),
                "credit": _round(float(batch.credit.advantage_NT[row, start:stop].mean())),
                "critic": critic,
                "grains": named,
            }
        )
    return turns


def _round(value: float) -> float | None:
    """Round for the report; None for a turn without a token, whose mean is no number."""
    return round(value, 4) if torch.isfinite(torch.tensor(value)) else None
