"""Optimiser steps of one iteration: minibatches, clipped surrogate, KL penalty, mismatch watch.

Legend: B rows, T positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain.algorithms.recipe import DenominatorFn
from geartrain.algorithms.surrogate import LossTally, clipped_surrogate, kl_penalty, mismatch
from geartrain.config import PolicySection
from geartrain.errors import UserError
from geartrain.models.backbone import token_logprobs
from geartrain.training.batch import Batch, TokenSequence, count_loss_tokens, microbatches
from geartrain.training.engine import Engine, Piece
from geartrain.training.workers import workers_for

MAX_MISMATCH = 1e-3
"""Nats; in float32 the sampler's and the trainer's log-probs of one token differ by 1e-5."""


@dataclass(frozen=True)
class PolicyStep:
    """How one batch of weighted sequences moves a model."""

    model: Any
    engine: Engine
    section: PolicySection
    denominator: DenominatorFn
    context: int

    def run(self, sequences: Sequence[TokenSequence], *, temperature: float, seed: int) -> dict[str, Any]:
        """Take one optimiser step per minibatch; each sequence is used once. Return numbers for the history.

        Args:
            sequences: with values "behaviour", "advantage", and "reference" if there is a KL penalty.
            temperature: that of the sampler.
            seed: of the order.

        Raises:
            UserError: the sampler and the trainer disagree about the weights that sampled, or training diverges.
        """
        order = np.random.default_rng(seed).permutation(len(sequences))
        parts = [part.tolist() for part in np.array_split(order, self.section.minibatches) if len(part)]
        tally, norms, skipped, differences = LossTally(), [], 0, [0.0]
        workers = workers_for(self.model)
        for index, part in enumerate(parts):
            chosen = [sequences[row] for row in part]
            for batch, logprob_BT in self.engine.accumulate(self._pieces(chosen, temperature), workers=workers):
                self._tell(tally, batch, logprob_BT)
                if index == 0:  # the weights are still those that sampled: whatever differs now is a fault
                    differences.append(mismatch(logprob_BT, batch.values["behaviour"], batch.loss_BT))
            if index == 0:
                self._check_mismatch(max(differences))
            report = self.engine.step()
            skipped += report.skipped
            if not report.skipped:
                norms.append(report.gradient_norm)
        return {
            **tally.summary(),
            "gradient_norm": sum(norms) / len(norms) if norms else None,
            "learning_rate": report.learning_rate,
            "skipped_steps": skipped,
            "mismatch": max(differences),
            "trained_tokens": tally.tokens,
        }

    def _pieces(self, sequences: Sequence[TokenSequence], temperature: float) -> Iterator[Piece[tuple[Batch, Tensor]]]:
        """Yield what computes each micro-batch's share of the loss, and with it the batch and its log-probs."""
        denominator = self.denominator(count_loss_tokens(sequences), len(sequences), self.context)
        for batch in microbatches(sequences, budget=self.section.microbatch_tokens, device=self.model.device):
            yield partial(self._piece, batch, temperature, denominator)

    def _piece(self, batch: Batch, temperature: float, denominator: float) -> tuple[Tensor, tuple[Batch, Tensor]]:
        scored = token_logprobs(
            self.model, batch.ids_BT, batch.attention_BT, temperature=temperature, where_BT=batch.loss_BT
        )
        loss = clipped_surrogate(
            scored.logprob_BT,
            batch.values["behaviour"],
            batch.values["advantage"],
            batch.loss_BT,
            denominator=denominator,
            clip_low=self.section.clip_low,
            clip_high=self.section.clip_high,
        )
        if self.section.kl_coefficient > 0:
            reference_BT = batch.values["reference"]
            penalty = kl_penalty(scored.logprob_BT, reference_BT, batch.loss_BT, denominator=denominator)
            loss = loss + self.section.kl_coefficient * penalty
        return loss, (batch, scored.logprob_BT.detach())

    def _tell(self, tally: LossTally, batch: Batch, logprob_BT: Tensor) -> None:
        behaviour_BT = batch.values["behaviour"]
        tally.add(
            logprob_BT,
            behaviour_BT,
            batch.values["advantage"],
            batch.loss_BT,
            clip_low=self.section.clip_low,
            clip_high=self.section.clip_high,
            reference_BT=batch.values["reference"] if self.section.kl_coefficient > 0 else None,
            entropy_BT=-behaviour_BT,  # -log p of what was sampled averages to the entropy, at no cost
        )

    def _check_mismatch(self, difference: float) -> None:
        exact = next(self.model.parameters()).dtype == torch.float32
        if exact and not difference <= MAX_MISMATCH:
            raise UserError(
                f"the sampler and the trainer disagree by {difference:.2g} nats on the same weights (limit "
                f"{MAX_MISMATCH:g}): the log-probs of the rollouts are not those of this policy. "
                "Was a trajectory changed after it was sampled, or scored at another temperature?"
            )
