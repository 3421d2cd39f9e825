"""Advantages of trajectories from the rewards of their siblings.

Groups are named by an id (the data row), never by content. A reward that is
None or not finite is a failed measurement: it is left out of its group's
statistics, gets advantage 0 and is counted.

Legend: N trajectories.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-6


@dataclass(frozen=True)
class GroupAdvantage:
    """Advantages and what became of the groups."""

    advantage_N: Tensor
    """float32."""
    excluded: int
    """Rewards that were not numbers."""
    flat: frozenset[Hashable]
    """Groups in which every counted reward was the same (or only one was left): no signal."""


def group_relative(
    rewards_N: Sequence[float | None], groups_N: Sequence[Hashable], *, scale_by_std: bool = True
) -> GroupAdvantage:
    """Reward minus the group's mean, divided by its standard deviation (n - 1) unless switched off.

    Source: GRPO, arXiv:2402.03300; without the division: Dr. GRPO, arXiv:2503.20783.

    Raises:
        ValueError: a group has a single member, or lengths differ.
    """

    def score(rewards: Tensor) -> Tensor:
        centred = rewards - rewards.mean()
        return centred / (rewards.std() + EPSILON) if scale_by_std else centred

    return _by_group(rewards_N, groups_N, score)


def without_scale(rewards_N: Sequence[float | None], groups_N: Sequence[Hashable]) -> GroupAdvantage:
    """Reward minus the group's mean. Source: Dr. GRPO, arXiv:2503.20783."""
    return group_relative(rewards_N, groups_N, scale_by_std=False)


def absolute(rewards_N: Sequence[float | None], groups_N: Sequence[Hashable]) -> GroupAdvantage:
    """The reward itself, for methods that compare turns and not siblings; no group is flat. Source: ours."""
    counted = [reward is not None and math.isfinite(reward) for reward in rewards_N]
    values = [reward if good else 0.0 for reward, good in zip(rewards_N, counted, strict=True)]
    return GroupAdvantage(torch.tensor(values, dtype=torch.float32), counted.count(False), frozenset())


def leave_one_out(rewards_N: Sequence[float | None], groups_N: Sequence[Hashable]) -> GroupAdvantage:
    """Reward minus the mean of the *other* members' rewards.

    Source: RLOO, arXiv:2402.14740.

    Raises:
        ValueError: a group has a single member, or lengths differ.
    """

    def score(rewards: Tensor) -> Tensor:
        count = len(rewards)
        return (rewards - rewards.mean()) * count / (count - 1)

    return _by_group(rewards_N, groups_N, score)


def _by_group(
    rewards_N: Sequence[float | None], groups_N: Sequence[Hashable], score: Callable[[Tensor], Tensor]
) -> GroupAdvantage:
    if len(rewards_N) != len(groups_N):
        raise ValueError(f"{len(rewards_N)} rewards for {len(groups_N)} group ids")
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups_N):
        members.setdefault(group, []).append(index)
    alone = [group for group, indices in members.items() if len(indices) == 1]
    if alone:
        raise ValueError(f"group {alone[0]!r} has one member, which has nothing to be compared with")
    advantage_N = torch.zeros(len(rewards_N), dtype=torch.float64)
    excluded, flat = 0, set()
    for group, indices in members.items():
        counted = {i: r for i in indices if (r := rewards_N[i]) is not None and math.isfinite(r)}
        excluded += len(indices) - len(counted)
        if len(set(counted.values())) < 2:  # compared as numbers: a mean of equal floats may differ from them
            flat.add(group)
            continue
        advantage_N[list(counted)] = score(torch.tensor(list(counted.values()), dtype=torch.float64))
    return GroupAdvantage(advantage_N.float(), excluded, frozenset(flat))
