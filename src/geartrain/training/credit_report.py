"""What credit a policy's episodes get, turn by turn, for people to read."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from geartrain.models.backbone import Policy
from geartrain.training.credit import BatchCredit, CreditAssigner
from geartrain.training.features import frozen_pass, sequence_of
from geartrain.trajectory import Trajectory

Record = dict[str, Any]


def credit_records(
    reference: Policy,
    assigner: CreditAssigner,
    trajectories: Sequence[Trajectory],
    rewards: Sequence[float | None],
    prompts: Mapping[str, str],
    *,
    microbatch_tokens: int,
) -> list[Record]:
    """Return one record per trajectory, as the training would credit it.

    Args:
        reference: the frozen warm start.
        assigner: the recipe with what it has learned.
        trajectories: scored siblings of some tasks.
        rewards: their totals.
        prompts: the tasks' wording, by task id.
        microbatch_tokens: padded tokens per forward pass.
    """
    if not trajectories:
        return []
    advantage_N = assigner.recipe.advantage(rewards, [t.group_id for t in trajectories]).advantage_N
    scores = None
    if assigner.needs_hidden:
        scores = frozen_pass(
            reference.model,
            trajectories,
            [sequence_of(trajectory) for trajectory in trajectories],
            microbatch_tokens=microbatch_tokens,
            want_logprobs=False,
            want_turns=True,
        )
    batch = assigner.assign(trajectories, advantage_N, scores)
    records, first = [], 0
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
    return records


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
                "critic": critic,
                "grains": named,
            }
        )
    return turns


def _round(value: float) -> float | None:
    """Round for the report; None for a turn without a token, whose mean is no number."""
    return round(value, 4) if torch.isfinite(torch.tensor(value)) else None
