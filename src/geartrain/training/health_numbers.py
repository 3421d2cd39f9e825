"""Numbers by which a run that goes wrong is told from one that goes well, of each iteration; read by `diagnosis`.

Source: all ours. Correlations are within groups (siblings of one task), as advantages are: between tasks easy ones
would correlate with everything.

Legend: N trajectories.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from geartrain.training.batch import TokenSequence
from geartrain.training.lesson import Lesson, Scored


def describe_rewards(scored: Scored, lesson: Lesson) -> dict[str, Any]:
    """Return the range of the rewards, two correlations that must not be negative, and trained trajectories by family.

    `reward_outcome`: total reward with the verified outcome, over all that was played: near 0, something else is paid
    for. `advantage_reward`: advantage with the reward that it was made of, over what is trained on: below 0, the sign
    is wrong. None where nothing varies.
    """
    paid = [
        (reward, trajectory.outcome, trajectory.group_id)
        for reward, trajectory in zip(scored.rewards, scored.trajectories, strict=True)
        if reward is not None and math.isfinite(reward)
    ]
    rewards, outcomes, groups = zip(*paid, strict=True) if paid else ((), (), ())
    trained = [trajectory.group_id for trajectory in lesson.trajectories]
    return {
        "reward_low": min(rewards, default=None),
        "reward_high": max(rewards, default=None),
        "reward_outcome": within_groups(rewards, outcomes, groups),
        "advantage_reward": within_groups(lesson.advantage_N.tolist(), lesson.reward_N.tolist(), trained),
        "trained_families": dict(sorted(Counter(trajectory.family for trajectory in lesson.trajectories).items())),
    }


def describe_step(
    sequences: Sequence[TokenSequence], *, teacher: float | None, drift: float | None
) -> dict[str, float]:
    """Return which share of what was sampled is trained, and how far the policy is from others before its step.

    Args:
        sequences: what is about to be trained on.
        teacher: distance of the weights from those of a past self; None where there is none.
        drift: KL to the warm start in nats per token, where no loss pays for it; else None.
    """
    sampled = sum(int(sequence.action_T.sum()) for sequence in sequences)
    found = {"trained_share": sum(int(s.loss_T.sum()) for s in sequences) / max(1, sampled)}
    found |= {} if teacher is None else {"teacher_distance": teacher}
    return found | ({} if drift is None else {"kl_unpaid": drift})


def within_groups(left_N: Sequence[float], right_N: Sequence[float], group_N: Sequence[Hashable]) -> float | None:
    """Return the correlation of two columns after each group's means are taken off; None where one does not vary."""
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for row, group in enumerate(group_N):
        rows[group].append(row)
    centred = torch.tensor([list(left_N), list(right_N)], dtype=torch.float64)
    for members in rows.values():
        centred[:, members] -= centred[:, members].mean(dim=1, keepdim=True)
    norms = centred.norm(dim=1)
    scale = torch.tensor([list(left_N), list(right_N)], dtype=torch.float64).norm(dim=1)
    if bool((norms <= 1e-9 * scale).any()):  # nothing but rounding
        return None
    return float(centred[0] @ centred[1] / norms.prod())


@torch.no_grad()
def distance(model: Any, other: Any, *, frozen_too: bool = False) -> tuple[float, float]:
    """Return how far the trained weights of `model` are from those of `other`: relative to them, and per weight.

    The first is |w - v| / |v| over all parameters that require a gradient in `model` (with `frozen_too`: all); the
    second the root mean square of w - v, which Adam can raise by its learning rate a step and hardly more.
    """
    apart, size, count = 0.0, 0.0, 0
    for own, theirs in zip(model.parameters(), other.parameters(), strict=True):
        if own.requires_grad or frozen_too:
            apart += float((own.detach() - theirs.to(own.device)).double().square().sum())
            size += float(theirs.detach().double().square().sum())
            count += own.numel()
    return math.sqrt(apart / size) if size else 0.0, math.sqrt(apart / max(1, count))
