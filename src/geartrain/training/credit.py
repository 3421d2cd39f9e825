"""From a batch of trajectories to weighted advantages: critic, grains, mixture, all detached from the policy.

Legend: N trajectories, T positions, S turns of all trajectories, K grains, H width.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geartrain.algorithms.granularity import teacher_explanation_loss
from geartrain.algorithms.masked import masked_mean
from geartrain.algorithms.recipe import Credit, Evidence, Recipe, assign_credit
from geartrain.algorithms.returns import turn_returns
from geartrain.errors import UserError
from geartrain.models.heads import CriticHead, GrainNetwork, load_critic_head
from geartrain.seeds import seed_of
from geartrain.training.engine import Engine
from geartrain.training.features import Encoder, FrozenScores, TextEncoder, TurnFeatures
from geartrain.trajectory import Trajectory

STEP_DISCOUNT = 0.5
"""Per turn, for the step grain: an error is the fault of its own turn first. High blurs the grain into the outcome."""
GRAIN_STEPS = 4
"""Optimiser steps of the grain network per iteration."""
SMALLEST_GAP = 1e-3
"""Nats; a teacher closer to the student than this differs by rounding, which explains nothing."""


@dataclass(frozen=True)
class Critic:
    """A trained sibling critic."""

    head: CriticHead
    reliability: float
    """Correlation with its labels on held-out tasks, in [0, 1]."""
    encoder: Encoder | None
    """None reads the reference model's hidden states."""


def load_critic(folder: Path, decode: Callable[[list[int]], str]) -> Critic:
    """Load the `critic` artifact.

    Raises:
        UserError: the folder holds no critic.
    """
    try:
        record = json.loads((folder / "critic.json").read_text(encoding="utf-8"))
        encoder = None if record["features"] == "warm_start" else TextEncoder(folder / "encoder", decode)
        return Critic(load_critic_head(folder / "critic.safetensors"), float(record["reliability"]), encoder)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: no critic in this folder ({error!r:.200}). Run the stage `critic`.") from error


@dataclass(frozen=True)
class BatchCredit:
    """Credit of one batch, in the order of its trajectories."""

    credit: Credit
    evidence: Evidence
    state_SH: Tensor | None
    """Inputs of the grain network."""
    turn_NT: Tensor
    """int64: row of `state_SH` for trained positions, -1 elsewhere."""
    critic_S: Tensor | None
    mixture_SK: Tensor | None

    def advantage(self, row: int, length: int) -> Tensor:
        """Return the weighted advantage of one trajectory, [length]."""
        return self.credit.advantage_NT[row, :length]


class CreditAssigner:
    """A recipe with what it learns: the grain network and its optimiser."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        critic: Critic | None,
        width: int,
        strength: float,
        bound: float,
        learning_rate: float,
        entropy: float,
        iterations: int,
        seed: int,
    ) -> None:
        assert critic is not None or not recipe.needs_critic, "the recipe needs a critic"
        self.recipe = recipe
        self.critic = critic if recipe.needs_critic else None
        self._strength, self._bound, self._entropy = strength, bound, entropy
        self.network: GrainNetwork | None = None
        if recipe.needs_mixture:
            with torch.random.fork_rng():
                torch.manual_seed(seed_of(seed, "grain network"))
                self.network = GrainNetwork(width, len(recipe.grains))
            self._engine = Engine(
                self.network.parameters(), learning_rate=learning_rate, total_steps=iterations * GRAIN_STEPS
            )

    @property
    def needs_hidden(self) -> bool:
        """Whether the reference pass must return hidden states."""
        return self.network is not None or (self.critic is not None and self.critic.encoder is None)

    def assign(
        self, trajectories: Sequence[Trajectory], advantage_N: Tensor, reference: Sequence[FrozenScores] | None
    ) -> BatchCredit:
        """Weigh the advantages of trajectories whose groups are whole or filtered as groups.

        Args:
            trajectories: with step and token rewards filled.
            advantage_N: verified group advantage.
            reference: the reference pass, with hidden states if `needs_hidden`.
        """
        turn_NT = _turn_index(trajectories)
        features = self._features(trajectories, reference)
        critic_S = None
        if self.critic is not None:
            own = features if self.critic.encoder is None else self.critic.encoder(trajectories)
            with torch.no_grad():
                critic_S = self.critic.head(_join(own, "state_SH"), _join(own, "action_SH"))
        state_SH = _join(features, "state_SH") if self.network is not None else None
        with torch.no_grad():
            mixture_SK = None if state_SH is None or self.network is None else self.network(state_SH)
        evidence = Evidence(
            advantage_N=advantage_N,
            group_N=_group_index(trajectories),
            mask_NT=turn_NT >= 0,
            step_NT=_spread(_step_returns(trajectories), turn_NT),
            token_NT=_token_rewards(trajectories, turn_NT.shape[1]),
            critic_NT=None if critic_S is None else _spread(critic_S, turn_NT),
            critic_reliability=1.0 if self.critic is None else self.critic.reliability,
        )
        mixture_NTK = None if mixture_SK is None else _spread(mixture_SK, turn_NT)
        credit = assign_credit(self.recipe, evidence, mixture_NTK, strength=self._strength, bound=self._bound)
        return BatchCredit(credit, evidence, state_SH, turn_NT, critic_S, mixture_SK)

    def learn(self, batch: BatchCredit, rows: Sequence[int], gap: Sequence[Tensor]) -> float | None:
        """Teach the grain network to explain the teacher on trajectories that have been weighed already.

        Args:
            batch: from `assign`.
            rows: trajectories of the batch that the teacher has scored; whole groups.
            gap: log teacher - log student at each sampled id, [T] per entry of `rows`.

        Returns:
            The loss before the update, or None when there was nothing to explain.
        """
        if self.network is None or batch.state_SH is None or batch.credit.grain_NTK is None:
            return None
        chosen = torch.tensor(rows)
        width = max(len(gap_T) for gap_T in gap)
        gap_NT = torch.nn.utils.rnn.pad_sequence(list(gap), batch_first=True)
        mask_NT = batch.evidence.mask_NT[chosen, :width]
        if float(masked_mean(gap_NT.abs(), mask_NT)) < SMALLEST_GAP:
            return None
        grain_NTK, turn_NT = batch.credit.grain_NTK[chosen, :width], batch.turn_NT[chosen, :width]
        group_N = batch.evidence.group_N[chosen]
        first = None
        for _ in range(GRAIN_STEPS):
            mixture_NTK = _spread(self.network(batch.state_SH), turn_NT)
            loss = teacher_explanation_loss(mixture_NTK, grain_NTK, gap_NT, mask_NT, group_N, entropy=self._entropy)
            first = float(loss.detach()) if first is None else first
            self._engine.update([loss])
        return first

    def summary(self, batch: BatchCredit) -> dict[str, float]:
        """Return the spread of the weights and of the critic, and the mean mixture by grain."""
        weights = batch.credit.weight_NT[batch.evidence.mask_NT]
        record = {
            "weight_spread": float(weights.std(correction=0)),
            "weight_min": float(weights.min()),
            "weight_max": float(weights.max()),
        }
        if batch.critic_S is not None:
            record["critic_spread"] = float(batch.critic_S.std(correction=0))
        if batch.mixture_SK is not None:
            means = batch.mixture_SK.mean(0).tolist()
            record |= {f"grain_{name}": mean for name, mean in zip(self.recipe.grains, means, strict=True)}
        return record

    def state_dict(self) -> dict[str, Any]:
        """Return what has been learned."""
        if self.network is None:
            return {}
        return {"network": self.network.state_dict(), "engine": self._engine.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`'s value."""
        if self.network is not None:
            self.network.load_state_dict(state["network"])
            self._engine.load_state_dict(state["engine"])

    def _features(
        self, trajectories: Sequence[Trajectory], reference: Sequence[FrozenScores] | None
    ) -> list[TurnFeatures]:
        if not self.needs_hidden:
            return []
        assert reference is not None, "the recipe needs the reference pass"
        features = [score.turns for score in reference if score.turns is not None]
        assert len(features) == len(trajectories), "the reference pass returned no hidden states"
        return features


def _turn_index(trajectories: Sequence[Trajectory]) -> Tensor:
    """Return int64 [N, T]: the turn, counted through all trajectories, that a sampled id belongs to; -1 elsewhere."""
    rows, offset = [], 0
    for trajectory in trajectories:
        row_T = torch.full((len(trajectory.token_ids()),), -1)
        for turn, (start, stop) in enumerate(trajectory.action_spans()):
            row_T[start:stop] = offset + turn
        offset += len(trajectory.turns)
        rows.append(row_T)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def _spread(value_S: Tensor, turn_NT: Tensor) -> Tensor:
    """Give every sampled id its turn's value [S] or [S, K]; 0 elsewhere."""
    spread = value_S[turn_NT.clamp(min=0)]
    inside = (turn_NT >= 0).reshape(*turn_NT.shape, *[1] * (spread.dim() - 2))
    return torch.where(inside, spread, 0.0)


def _step_returns(trajectories: Sequence[Trajectory]) -> Tensor:
    returns = [turn_returns([turn.reward for turn in t.turns], discount=STEP_DISCOUNT) for t in trajectories]
    return torch.cat(returns)


def _token_rewards(trajectories: Sequence[Trajectory], width: int) -> Tensor:
    reward_NT = torch.zeros(len(trajectories), width)
    for row, trajectory in enumerate(trajectories):
        for turn, (start, stop) in zip(trajectory.turns, trajectory.action_spans(), strict=True):
            if turn.token_rewards:
                reward_NT[row, start:stop] = torch.tensor(list(turn.token_rewards))
    return reward_NT


def _group_index(trajectories: Sequence[Trajectory]) -> Tensor:
    number = {group: index for index, group in enumerate(dict.fromkeys(t.group_id for t in trajectories))}
    return torch.tensor([number[trajectory.group_id] for trajectory in trajectories])


def _join(features: Sequence[TurnFeatures], name: str) -> Tensor:
    return torch.cat([getattr(feature, name) for feature in features])
