"""What an iteration trains on: which tasks, which trajectories, with what advantage.

Legend: N trajectories.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor

from geartrain.algorithms.recipe import AdvantageFn
from geartrain.algorithms.shaping import overlong_penalty
from geartrain.seeds import seed_of
from geartrain.trajectory import Trajectory


class Scored(Protocol):
    """Rewards of trajectories."""

    @property
    def rewards(self) -> Sequence[float | None]:
        """Totals; None where scoring failed."""
        ...

    @property
    def trajectories(self) -> Sequence[Trajectory]:
        """The same trajectories with rewards of every grain filled."""
        ...

    @property
    def failures(self) -> Counter[str]:
        """What has no value, by reason."""
        ...

    @property
    def judge_seconds(self) -> float:
        """Wall seconds of judging; of no effect."""
        ...


@dataclass(frozen=True)
class Pooled:
    """Rewards of trajectories, from one round of play or several."""

    rewards: Sequence[float | None]
    trajectories: Sequence[Trajectory]
    failures: Counter[str]
    judge_seconds: float = 0.0


def pool(rounds: Sequence[Scored]) -> Pooled:
    """Put rounds of play together; a group lies in one round."""
    return Pooled(
        [reward for scored in rounds for reward in scored.rewards],
        [trajectory for scored in rounds for trajectory in scored.trajectories],
        sum((scored.failures for scored in rounds), Counter()),
        sum(scored.judge_seconds for scored in rounds),
    )


def shorten(scored: Scored, *, context: int, share: float) -> Pooled:
    """Lower the rewards of long episodes, see `algorithms.shaping`."""
    lengths = [len(trajectory.token_ids()) for trajectory in scored.trajectories]
    rewards = [
        None if reward is None else reward + overlong_penalty(length, limit=context, share=share)
        for reward, length in zip(scored.rewards, lengths, strict=True)
    ]
    return Pooled(rewards, scored.trajectories, scored.failures, scored.judge_seconds)


def charge(scored: Scored, penalties: Sequence[float]) -> Pooled:
    """Lower each reward by what its trajectory has to pay."""
    rewards = [None if r is None else r - p for r, p in zip(scored.rewards, penalties, strict=True)]
    return Pooled(rewards, scored.trajectories, scored.failures, scored.judge_seconds)


@dataclass(frozen=True)
class Lesson:
    """What is trained on in one iteration."""

    trajectories: Sequence[Trajectory]
    advantage_N: Tensor
    reward_N: Tensor
    """Total rewards."""
    filtered_groups: int
    """Groups whose rewards are all the same: no advantage, not trained on."""
    excluded: int
    """Trajectories without a reward."""
    cut: int = 0
    """Trajectories left out because they were cut short."""

    @property
    def groups(self) -> int:
        """Groups that carry a signal."""
        return len({trajectory.group_id for trajectory in self.trajectories})

    def first(self, groups: int) -> "Lesson":
        """Return the lesson with its first `groups` groups alone."""
        kept = set(list(dict.fromkeys(t.group_id for t in self.trajectories))[:groups])
        rows = [row for row, t in enumerate(self.trajectories) if t.group_id in kept]
        return replace(
            self,
            trajectories=[self.trajectories[row] for row in rows],
            advantage_N=self.advantage_N[rows],
            reward_N=self.reward_N[rows],
        )


def select_lesson(
    scored: Scored,
    advantage: AdvantageFn,
    *,
    learn_from_cut: bool = True,
    plain: Sequence[float | None] | None = None,
) -> Lesson:
    """Compute advantages and keep what carries a signal.

    `plain` are the rewards before they were lowered, for length or for distance: siblings that differ in what they were
    lowered by alone carry no signal (rl-faults C22). None where nothing was lowered.

    Without `learn_from_cut`, episodes that were cut short count in their group's statistics and are not trained
    on (overlong filtering of DAPO, arXiv:2503.14476): a loop of thirty equal calls would outweigh five episodes.
    """
    groups = [trajectory.group_id for trajectory in scored.trajectories]
    found = advantage(scored.rewards, groups)
    flat = found.flat if plain is None else found.flat | advantage(plain, groups).flat
    kept = [
        index
        for index, trajectory in enumerate(scored.trajectories)
        if trajectory.group_id not in flat
        and _is_number(scored.rewards[index])
        and any(turn.action_ids for turn in trajectory.turns)
    ]
    whole = [index for index in kept if learn_from_cut or not scored.trajectories[index].truncated]
    cut, kept = len(kept) - len(whole), whole
    trajectories = [scored.trajectories[index] for index in kept]
    reward_N = torch.tensor([scored.rewards[index] for index in kept], dtype=torch.float32)
    return Lesson(trajectories, found.advantage_N[kept], reward_N, len(flat), found.excluded, cut)


def whole_lesson(scored: Scored, advantage: AdvantageFn) -> Lesson:
    """Return every trajectory with its advantage, nothing filtered: to be looked at, not trained on."""
    found = advantage(scored.rewards, [trajectory.group_id for trajectory in scored.trajectories])
    reward_N = torch.tensor([reward if _is_number(reward) else 0.0 for reward in scored.rewards], dtype=torch.float32)
    return Lesson(scored.trajectories, found.advantage_N, reward_N, len(found.flat), found.excluded)


def _is_number(reward: float | None) -> TypeGuard[float]:
    """Return whether a reward was measured; what is None or not finite was not (rl-faults C14)."""
    return reward is not None and math.isfinite(reward)


def describe_lesson(scored: Scored, lesson: Lesson) -> dict[str, Any]:
    """Return rewards and groups of an iteration for the history."""
    rewards = [reward for reward in scored.rewards if _is_number(reward)]
    outcomes: dict[str, set[bool]] = {}
    for trajectory in scored.trajectories:
        outcomes.setdefault(trajectory.group_id, set()).add(trajectory.success)
    spread = float(lesson.advantage_N.std(correction=0)) if len(lesson.advantage_N) else 0.0
    return {
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "advantage_spread": spread,
        "groups": len(outcomes),
        "filtered_groups": lesson.filtered_groups,
        "groups_of_one_outcome": sum(len(values) == 1 for values in outcomes.values()),
        "unscored": lesson.excluded,
        "cut_short": lesson.cut,
        "scoring_failures": dict(sorted(scored.failures.items())),
        "trained_trajectories": len(lesson.trajectories),
    }


def task_batch(count: int, per_iteration: int, iteration: int, *, seed: int) -> list[int]:
    """Return the task indices of an iteration: epochs of a shuffled order, a pure function of the arguments.

    An epoch ends when fewer than `per_iteration` tasks are left, so that no batch holds a task twice.
    """
    batches = count // per_iteration
    assert batches > 0, (count, per_iteration)
    epoch, place = divmod(iteration, batches)
    order = np.random.default_rng(seed_of(seed, "policy tasks", epoch)).permutation(count)
    chosen: list[int] = order[place * per_iteration : (place + 1) * per_iteration].tolist()
    return chosen


def some_groups(trajectories: Sequence[Trajectory], *, share: float, seed: int) -> list[int]:
    """Return the indices of the members of a random share of the groups (one at least), in order."""
    groups = list(dict.fromkeys(trajectory.group_id for trajectory in trajectories))
    count = max(1, round(share * len(groups)))
    chosen = {groups[index] for index in np.random.default_rng(seed).permutation(len(groups))[:count]}
    return [index for index, trajectory in enumerate(trajectories) if trajectory.group_id in chosen]
