"""What a recipe learns beside the policy: a mixture of grains, a value head, a granularity encoder.

Each reads the frozen warm start's hidden states before a turn, is updated once
an iteration *after* it has been used, and sends no gradient to the policy.

Legend: N trajectories, T positions, S turns, H width, K grains.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from geartrain.algorithms.evidence import Evidence, Settings, spread
from geartrain.algorithms.granularity import (
    outcome_alignment_loss,
    outcome_regression_loss,
    teacher_explanation_loss,
)
from geartrain.algorithms.masked import masked_mean
from geartrain.algorithms.past_self import entropy_granularity, progress_granularity
from geartrain.models.heads import GrainNetwork, UnitHead, ValueHead
from geartrain.placement import CPU, device_of, seeded
from geartrain.seeds import seed_of
from geartrain.training.engine import Engine

STEPS = 4
"""Optimiser steps of a learner per iteration."""
SMALLEST_GAP = 1e-3
"""Nats; a teacher closer to the student than this differs by rounding, which explains nothing."""
GRANULARITY_LEARNING_RATE = 1e-3


class _Learner:
    network: torch.nn.Module

    def _start(
        self, build: Any, name: str, *, learning_rate: float, iterations: int, seed: int, device: torch.device
    ) -> None:
        with seeded(seed_of(seed, name)):
            self.network = build().to(device)
        self._engine = Engine(self.network.parameters(), learning_rate=learning_rate, total_steps=iterations * STEPS)

    def _ask(self, state_SH: Tensor) -> Tensor:
        """Return what the network says, on the CPU, where evidence and losses are: gradients find their way back."""
        said: Tensor = self.network(state_SH.to(device_of(self.network))).cpu()
        return said

    def _fit(self, losses: Iterable[Tensor]) -> float:
        """Take one step per loss; return the first, from before any step."""
        first = None
        for loss in losses:
            first = float(loss.detach()) if first is None else first
            self._engine.update([loss])
        assert first is not None, "nothing to fit"
        return first

    def state_dict(self) -> dict[str, Any]:
        """Return what has been learned."""
        return {"network": self.network.state_dict(), "engine": self._engine.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`'s value."""
        self.network.load_state_dict(state["network"])
        self._engine.load_state_dict(state["engine"])


class Mixture(_Learner):
    """Weights of the grains, by state. Source: see `algorithms.granularity`."""

    def __init__(
        self,
        width: int,
        grains: int,
        settings: Settings,
        *,
        iterations: int,
        seed: int,
        device: torch.device = CPU,
    ) -> None:
        self.objective = str(settings["objective"])
        self._entropy = float(settings["grain_entropy"])
        rate = float(settings["grain_learning_rate"])
        self._start(
            lambda: GrainNetwork(width, grains),
            "grain network",
            learning_rate=rate,
            iterations=iterations,
            seed=seed,
            device=device,
        )

    @torch.no_grad()
    def __call__(self, state_SH: Tensor) -> Tensor:
        """Return the mixture [S, K]."""
        return self._ask(state_SH)

    def explain(
        self, state_SH: Tensor, grain_NTK: Tensor, evidence: Evidence, rows: Sequence[int], gap: Sequence[Tensor]
    ) -> float | None:
        """Learn to explain the teacher's log ratios on some rows; None when there is nothing to explain."""
        chosen, width = torch.tensor(rows), max(len(gap_T) for gap_T in gap)
        gap_NT = torch.nn.utils.rnn.pad_sequence(list(gap), batch_first=True)
        mask_NT, turn_NT = evidence.mask_NT[chosen, :width], evidence.turn_NT[chosen, :width]
        if float(masked_mean(gap_NT.abs(), mask_NT)) < SMALLEST_GAP:
            return None
        grain_NTK, group_N = grain_NTK[chosen, :width], evidence.group_N[chosen]
        return self._fit(
            teacher_explanation_loss(
                spread(self._ask(state_SH), turn_NT), grain_NTK, gap_NT, mask_NT, group_N, entropy=self._entropy
            )
            for _ in range(STEPS)
        )

    def align(self, state_SH: Tensor, grain_NTK: Tensor, evidence: Evidence) -> float:
        """Learn from the outcomes of the siblings of even number: of every task, wherever they stand in the batch."""
        loss = outcome_alignment_loss if self.objective == "alignment" else outcome_regression_loss
        mask_NT = evidence.mask_NT & (evidence.sibling_N % 2 == 0)[:, None]
        advantage_NT = evidence.broadcast(evidence.advantage_N)
        return self._fit(
            loss(
                spread(self._ask(state_SH), evidence.turn_NT),
                grain_NTK,
                advantage_NT,
                mask_NT,
                entropy=self._entropy,
            )
            for _ in range(STEPS)
        )


class Values(_Learner):
    """Expected total reward from each turn on. Source: PPO, arXiv:1707.06347, its trunk frozen (ours)."""

    def __init__(
        self, width: int, settings: Settings, *, iterations: int, seed: int, device: torch.device = CPU
    ) -> None:
        self._start(
            lambda: ValueHead(width),
            "value head",
            learning_rate=float(settings["value_learning_rate"]),
            iterations=iterations,
            seed=seed,
            device=device,
        )
        self._discount = float(settings["discount"])

    @torch.no_grad()
    def __call__(self, state_SH: Tensor) -> Tensor:
        """Return the values [S]."""
        return self._ask(state_SH)

    def fit(self, state_SH: Tensor, evidence: Evidence) -> float:
        """Regress the discounted total reward; return the mean squared error from before."""
        counts = torch.bincount(evidence.row_S, minlength=len(evidence.reward_N))
        position = torch.cat([torch.arange(int(count)) for count in counts])
        left_S = counts[evidence.row_S] - 1 - position
        target_S = evidence.reward_N[evidence.row_S] * self._discount**left_S
        return self._fit((self._ask(state_SH) - target_S).square().mean() for _ in range(STEPS))


class Granularity(_Learner):
    """How coarse a state is, in [0, 1]. Source: the article on GEAR-B; it has no objective there, so ours has one:
    to predict the mean of the two proxies, share of sub-goals left and rank of the turn's entropy."""

    def __init__(self, width: int, *, iterations: int, seed: int, device: torch.device = CPU) -> None:
        self._start(
            lambda: UnitHead(width),
            "granularity",
            learning_rate=GRANULARITY_LEARNING_RATE,
            iterations=iterations,
            seed=seed,
            device=device,
        )

    @torch.no_grad()
    def __call__(self, state_SH: Tensor) -> Tensor:
        """Return g [S]; 0 is finest."""
        return self._ask(state_SH)

    def fit(self, state_SH: Tensor, evidence: Evidence) -> float:
        """Regress the proxies; return the mean squared error from before."""
        target_NT = 0.5 * (
            progress_granularity(evidence.progress_NT) + entropy_granularity(evidence.entropy_NT, evidence.turn_NT)
        )
        return self._fit(
            masked_mean((spread(self._ask(state_SH), evidence.turn_NT) - target_NT).square(), evidence.mask_NT)
            for _ in range(STEPS)
        )
