"""The reward of training: every channel asked once, raw values kept, one total per trajectory."""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from geartrain.models.reward_model import RewardModel, has_fast_bfloat16
from geartrain.models.spans import Decoder
from geartrain.placement import CPU
from geartrain.rewards.channel import Channel, Tasks, ask
from geartrain.rewards.fusion import fuse_group
from geartrain.rewards.grains import with_grains
from geartrain.rewards.learned import Learned
from geartrain.rewards.outcome import NotApplicable, Outcome, count_missing, raw
from geartrain.rewards.verified import PROGRESS_WEIGHT, Verified
from geartrain.trajectory import Trajectory


@dataclass(frozen=True)
class Scored:
    """What `RewardMix.score` returns; lists are in the order of the trajectories given."""

    rewards: list[float | None]
    """Totals, the numbers that are trained on; None where the verdict failed: leave the trajectory out."""
    trajectories: list[Trajectory]
    """The same trajectories with `rewards` (raw, by channel), `turn.reward` and `turn.token_rewards` filled."""
    failures: Counter[str]
    """Missing values by "channel.reason"; what merely does not apply is prefixed "n/a "."""
    judge_seconds: float = field(default=0.0, compare=False)
    """Wall seconds that the learned channel took: what judging costs."""


class RewardMix:
    """Verified outcome plus a bounded share of a learned reward, see `geartrain.rewards.fusion`."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        model_weight: float,
        invalid_call_reward: float,
        learned: Channel | None,
        progress_weight: float = PROGRESS_WEIGHT,
        learned_in_ties: bool = False,
    ) -> None:
        self._decoder = decoder
        self._weight = model_weight
        self._invalid_call_reward = invalid_call_reward
        self._margin = 1.0 - progress_weight
        self._learned_in_ties = learned_in_ties
        self._verified: Channel = Verified(progress_weight=progress_weight)
        self._learned = learned

    @classmethod
    def load(
        cls,
        reward_model_folder: Path | None,
        *,
        tokenizer: Decoder,
        model_weight: float,
        invalid_call_reward: float,
        progress_weight: float = PROGRESS_WEIGHT,
        learned_in_ties: bool = False,
        device: torch.device = CPU,
    ) -> "RewardMix":
        """Load the reward model, unless there is none or its weight is 0.

        Args:
            reward_model_folder: the `reward_model` artifact, or None.
            tokenizer: of the policy; only its `decode` is used.
            model_weight: standard deviation of the learned share of the reward against the verified one, >= 0.
            invalid_call_reward: step reward of a turn that was answered by an error, <= 0.
            progress_weight: share of the reward that a failure earns by its progress, in [0, 1).
            learned_in_ties: whether groups that the verifier cannot tell apart are told apart by the model.
            device: where the model shall lie.

        Raises:
            UserError: the folder holds no reward model.
        """
        learned = None
        if reward_model_folder is not None and model_weight > 0:
            model = RewardModel.load(reward_model_folder, device=device)
            learned = Learned(model, bfloat16=has_fast_bfloat16(device))
        return cls(
            tokenizer,
            model_weight=model_weight,
            invalid_call_reward=invalid_call_reward,
            learned=learned,
            progress_weight=progress_weight,
            learned_in_ties=learned_in_ties,
        )

    def score(self, trajectories: Sequence[Trajectory], tasks_by_id: Tasks) -> Scored:
        """Score trajectories of any number of groups; a group is what shares a `group_id`.

        A failure of the learned channel leaves the verified value alone; one of
        the verified channel leaves no total. A pure function of its arguments.
        """
        verified = ask(self._verified, trajectories, tasks_by_id)
        columns: dict[str, list[Outcome]] = {self._verified.name: verified}
        started = time.monotonic()
        if self._learned is not None:
            columns[self._learned.name] = self._ask_learned(self._learned, trajectories, verified, tasks_by_id)
        judge_seconds = time.monotonic() - started
        values = {name: [raw(outcome) for outcome in column] for name, column in columns.items()}
        filled = [
            replace(
                with_grains(trajectory, self._decoder, invalid_call_reward=self._invalid_call_reward),
                rewards={name: column[row] for name, column in values.items()},
            )
            for row, trajectory in enumerate(trajectories)
        ]
        return Scored(self._totals(trajectories, values), filled, count_missing(columns), judge_seconds)

    def _ask_learned(
        self, learned: Channel, trajectories: Sequence[Trajectory], verified: Sequence[Outcome], tasks_by_id: Tasks
    ) -> list[Outcome]:
        """Ask the model where its opinion can count: half of a batch's groups are often tied, and asking is dear."""
        seen: dict[str, set[float | None]] = defaultdict(set)
        for trajectory, outcome in zip(trajectories, verified, strict=True):
            seen[trajectory.group_id].add(raw(outcome))
        counts = [self._learned_in_ties or len(seen[t.group_id] - {None}) > 1 for t in trajectories]
        wanted = [trajectory for trajectory, count in zip(trajectories, counts, strict=True) if count]
        found = iter(ask(learned, wanted, tasks_by_id))
        return [next(found) if count else NotApplicable("tied") for count in counts]

    def _totals(self, trajectories: Sequence[Trajectory], values: dict[str, list[float | None]]) -> list[float | None]:
        groups: dict[str, list[int]] = defaultdict(list)
        for row, trajectory in enumerate(trajectories):
            groups[trajectory.group_id].append(row)
        verified = values[self._verified.name]
        learned = values[self._learned.name] if self._learned is not None else [None] * len(verified)
        totals: list[float | None] = [None] * len(verified)
        for rows in groups.values():
            fused = fuse_group(
                [verified[row] for row in rows],
                [learned[row] for row in rows],
                weight=self._weight,
                margin=self._margin,
                learned_in_ties=self._learned_in_ties,
            )
            for row, total in zip(rows, fused, strict=True):
                totals[row] = total
        return totals
