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
from geartrain.rewards.fusion import Fused, Opinion, fuse_group, soundness
from geartrain.rewards.grains import with_grains
from geartrain.rewards.learned import Learned
from geartrain.rewards.outcome import Failed, NotApplicable, Outcome, count_missing, raw
from geartrain.rewards.panel import Panel, ask_panel
from geartrain.rewards.toolbox import learned_tool
from geartrain.rewards.tools import Tool
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
    """Wall seconds that the learned channel and the tools took: what judging costs."""
    shares: dict[str, list[float]] = field(default_factory=dict, compare=False)
    """What each opinion added to the totals before the clipping, by name."""
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict, compare=False)
    """What every channel answered, the verdict first."""


class RewardMix:
    """Verified outcome plus a bounded share of opinions, see `geartrain.rewards.fusion`."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        model_weight: float,
        invalid_call_reward: float,
        learned: Channel | None,
        progress_weight: float = PROGRESS_WEIGHT,
        learned_in_ties: bool = False,
        panel: Panel | None = None,
    ) -> None:
        self._decoder = decoder
        self._weight = model_weight
        self._invalid_call_reward = invalid_call_reward
        self._margin = 1.0 - progress_weight
        self._learned_in_ties = learned_in_ties
        self._verified: Channel = Verified(progress_weight=progress_weight)
        self._panel = panel or Panel()
        tools = [] if learned is None else [learned_tool(learned)]
        self._tools: list[Tool] = [*tools, *self._panel.tools]

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
        panel: Panel | None = None,
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
            panel: tools beside the reward model, and their weights.

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
            panel=panel,
        )

    @property
    def tools(self) -> Sequence[Tool]:
        """What is asked beside the verdict, the reward model first."""
        return self._tools

    @property
    def model_weight(self) -> float:
        """Weight of the reward model where the panel says none."""
        return self._weight

    def score(self, trajectories: Sequence[Trajectory], tasks_by_id: Tasks) -> Scored:
        """Score trajectories of any number of groups; a group is what shares a `group_id`.

        A failure of an opinion leaves the others; one of the verified channel leaves
        no total. A pure function of its arguments, as long as no tool runs out of time.
        """
        verified = ask(self._verified, trajectories, tasks_by_id)
        columns: dict[str, list[Outcome]] = {self._verified.name: verified}
        started = time.monotonic()
        if self._tools:
            columns |= self._ask_tools(trajectories, verified, tasks_by_id)
        judge_seconds = time.monotonic() - started
        values = {name: [raw(outcome) for outcome in column] for name, column in columns.items()}
        filled = [
            replace(
                with_grains(trajectory, self._decoder, invalid_call_reward=self._invalid_call_reward),
                rewards={name: column[row] for name, column in values.items()},
            )
            for row, trajectory in enumerate(trajectories)
        ]
        totals, shares = self._totals(trajectories, verified, values)
        return Scored(totals, filled, count_missing(columns), judge_seconds, shares, columns)

    def _ask_tools(
        self, trajectories: Sequence[Trajectory], verified: Sequence[Outcome], tasks_by_id: Tasks
    ) -> dict[str, list[Outcome]]:
        """Ask the tools where their opinion can count: half of a batch's groups are often tied, and asking is dear."""
        seen: dict[str, set[float | None]] = defaultdict(set)
        for trajectory, outcome in zip(trajectories, verified, strict=True):
            seen[trajectory.group_id].add(None if isinstance(outcome, Failed) else raw(outcome))
        open_groups = {t.group_id for t, o in zip(trajectories, verified, strict=True) if isinstance(o, NotApplicable)}
        counts = [
            self._learned_in_ties or t.group_id in open_groups or len(seen[t.group_id] - {None}) > 1
            for t in trajectories
        ]
        wanted = [trajectory for trajectory, count in zip(trajectories, counts, strict=True) if count]
        columns = ask_panel(self._tools, wanted, tasks_by_id, seconds=self._panel.seconds, audit=self._panel.audit)
        found = {name: iter(column) for name, column in columns.items()}
        return {
            name: [next(column) if count else NotApplicable("tied") for count in counts]
            for name, column in found.items()
        }

    def _totals(
        self, trajectories: Sequence[Trajectory], verified: Sequence[Outcome], values: dict[str, list[float | None]]
    ) -> tuple[list[float | None], dict[str, list[float]]]:
        groups: dict[str, list[int]] = defaultdict(list)
        for row, trajectory in enumerate(trajectories):
            groups[trajectory.group_id].append(row)
        totals: list[float | None] = [None] * len(trajectories)
        shares = {tool.name: [0.0] * len(trajectories) for tool in self._tools}
        for rows in groups.values():
            fused = self._fuse(trajectories[rows[0]], [verified[row] for row in rows], _of(values, rows))
            for place, row in enumerate(rows):
                totals[row] = fused.totals[place]
                for tool, share in zip(self._tools, fused.shares, strict=True):
                    shares[tool.name][row] = share[place]
        return totals, shares

    def _fuse(self, first: Trajectory, verified: Sequence[Outcome], values: dict[str, list[float | None]]) -> Fused:
        opinions = [
            Opinion(values[tool.name], self._panel.weight(tool.name, first, self._weight), tool.floor)
            for tool in self._tools
        ]
        verdicts, ties = values[self._verified.name], self._learned_in_ties
        if verified and all(isinstance(outcome, NotApplicable) for outcome in verified):
            gates = [values[tool.name] for tool in self._tools if tool.gate]
            verdicts, ties = list(soundness(gates, margin=self._margin)) or [1.0] * len(verified), True
        return fuse_group(verdicts, opinions, margin=self._margin, ties=ties)


def _of(values: dict[str, list[float | None]], rows: Sequence[int]) -> dict[str, list[float | None]]:
    return {name: [column[row] for row in rows] for name, column in values.items()}
