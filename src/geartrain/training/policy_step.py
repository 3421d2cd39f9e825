"""Optimiser steps of one iteration: minibatches, clipped surrogate, KL penalty, mismatch watch.

Legend: B rows, T positions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain import live
from geartrain.algorithms.evidence import Settings
from geartrain.algorithms.masked import row_share
from geartrain.algorithms.recipe import Recipe
from geartrain.algorithms.saliency import with_tail
from geartrain.algorithms.schedule import linear
from geartrain.algorithms.surrogate import (
    LossTally,
    clipped_surrogate,
    distillation,
    entropy_bonus,
    full_kl_penalty,
    kl_penalty,
    log_ratio,
    mismatch,
)
from geartrain.algorithms.validity import MAX_MISMATCH
from geartrain.errors import UserError
from geartrain.models.backbone import TokenScores, chunk_of
from geartrain.policy_section import PolicySection
from geartrain.preemption import leave_if_asked
from geartrain.ranks import ALONE, Ranks, deal
from geartrain.training.batch import (
    Batch,
    TokenSequence,
    collate,
    count_loss_tokens,
    microbatches,
    split_by_budget,
)
from geartrain.training.engine import Piece
from geartrain.training.policy_engine import PolicyEngine
from geartrain.training.workers import workers_for


def asks_reference(section: PolicySection) -> bool:
    """Return whether steps run the warm start themselves: a distribution per token is too much to keep beside it."""
    return section.uses_kl and section.kl_place == "loss" and section.kl_measure == "full"


@dataclass(frozen=True)
class PolicyStep:
    """How one batch of weighted sequences moves a model."""

    model: Any
    engine: PolicyEngine
    section: PolicySection
    recipe: Recipe
    settings: Settings
    context: int
    ranks: Ranks = ALONE
    """Who shares each step. All are given all sequences, so all divide by the denominator of the whole step (rl-faults
    A12), and know what the others do: as many micro-batches as the busiest, or they would wait forever (C32)."""
    reference: Any = None
    """The frozen warm start, whole on every rank; read where `asks_reference`."""
    counted: Counter[str] = field(default_factory=Counter)
    """What this rank has done so far: `trained_tokens`."""

    def run(
        self, sequences: Sequence[TokenSequence], *, temperature: float, seed: int, share: float = 0.0
    ) -> dict[str, Any]:
        """Take one optimiser step per minibatch; each sequence is used once. Return numbers for the history.

        Args:
            sequences: with values "behaviour", "advantage", "reference" if there is a KL penalty that does not ask
                the reference itself, and "support", "teacher", "pull" if there is a teacher to match.
            temperature: that of the sampler.
            seed: of the order.
            share: share of the run that is over; coefficients may change with it.

        Raises:
            UserError: the sampler and the trainer disagree about the weights that sampled, or training diverges.
        """
        order = np.random.default_rng(seed).permutation(len(sequences))
        parts = [part.tolist() for part in np.array_split(order, self.section.minibatches) if len(part)]
        tally, norms, skipped, differences = LossTally(), [], 0, [0.0]
        workers = workers_for(self.model)
        for index, part in enumerate(parts):
            chosen = [sequences[row] for row in part]
            for batch, found in self.engine.accumulate(self._pieces(chosen, temperature, share), workers=workers):
                leave_if_asked()
                self._tell(tally, batch, found, moved=index > 0)
                if index == 0:  # the weights are still those that sampled: whatever differs now is a fault
                    differences.append(mismatch(found.logprob_BT, batch.values["behaviour"], batch.loss_BT))
            if index == 0:
                differences = [max(self.ranks.gather(max(differences)))]
                self._check_mismatch(differences[0])
            report = self.engine.step()
            skipped += report.skipped
            if not report.skipped:
                norms.append(report.gradient_norm)
        self.counted["trained_tokens"] += tally.tokens
        whole = LossTally()
        for counted in self.ranks.gather(tally):
            whole.merge(counted)
        return {
            **whole.summary(),
            "gradient_norm": sum(norms) / len(norms) if norms else None,
            "learning_rate": report.learning_rate,
            "skipped_steps": skipped,
            "mismatch": max(differences),
            "mismatch_limit": MAX_MISMATCH if self._is_exact() else None,
            "trained_tokens": whole.tokens,
            "kl_coefficient": self._kl_coefficient(share),
        }

    def _kl_coefficient(self, share: float) -> float:
        return linear(self.section.kl_coefficient, self.section.kl_final, share)

    def _pieces(
        self, sequences: Sequence[TokenSequence], temperature: float, share: float
    ) -> Iterator[Piece[tuple[Batch, TokenScores]]]:
        """Yield what computes each micro-batch's share of the loss, and with it the batch and its scores, detached."""
        denominator = self.recipe.denominator(count_loss_tokens(sequences), len(sequences), self.context)
        shares = deal([len(sequence) for sequence in sequences], self.ranks.size)
        mine = [sequences[row] for row in shares[self.ranks.rank]]
        batches = microbatches(mine, budget=self.section.microbatch_tokens, device=self.model.device)
        if not self.engine.lockstep:
            yield from (partial(self._piece, batch, temperature, denominator, share, None) for batch in batches)
            return
        own = iter(batches)
        for chunks in self._rounds(sequences, shares):
            batch = next(own, None) or self._nothing(sequences)
            yield partial(self._piece, batch, temperature, denominator, share, chunks)

    def _rounds(self, sequences: Sequence[TokenSequence], shares: Sequence[Sequence[int]]) -> list[int]:
        """Return into how many chunks every rank cuts each of its micro-batches, of as many as the busiest has."""
        most = chunk_of(self.model)
        chunks = []
        for rows in shares:
            mine = [sequences[row] for row in rows]
            cut = split_by_budget([len(sequence) for sequence in mine], self.section.microbatch_tokens)
            chunks.append([-(-max(1, sum(int(mine[i].loss_T.sum()) for i in part)) // most) for part in cut])
        return [max(column) for column in zip_longest(*chunks, fillvalue=1)]

    def _nothing(self, sequences: Sequence[TokenSequence]) -> Batch:
        """Return a micro-batch that adds nothing, for a rank that waits for others to finish theirs."""
        shortest = min(sequences, key=len)
        return collate([replace(shortest, loss_T=torch.zeros_like(shortest.loss_T))]).to(self.model.device)

    def _piece(
        self, batch: Batch, temperature: float, denominator: float, share: float, chunks: int | None = None
    ) -> tuple[Tensor, tuple[Batch, TokenScores]]:
        entropy = linear(self.section.entropy_coefficient, self.section.entropy_final, share)
        scored = self.engine.score(
            batch.ids_BT,
            batch.attention_BT,
            temperature=temperature,
            where_BT=batch.loss_BT,
            entropy_gradient=entropy > 0,
            support_BTK=batch.values.get("support"),
            reference=self.reference if asks_reference(self.section) else None,
            chunks=chunks,
        )
        kl_BT = None if scored.kl_BT is None else scored.kl_BT.detach()
        found = TokenScores(scored.logprob_BT.detach(), None, None, kl_BT=kl_BT)
        return self._loss(batch, scored, denominator, share), (batch, found)

    def _loss(self, batch: Batch, scored: TokenScores, denominator: float, share: float) -> Tensor:
        counts_BT = row_share(batch.loss_BT) if self.recipe.row_mean else batch.loss_BT.float()
        loss = 0.0 * scored.logprob_BT.sum()
        if self.recipe.policy_gradient:
            loss = clipped_surrogate(
                scored.logprob_BT,
                batch.values["behaviour"],
                batch.values["advantage"] * counts_BT,
                batch.loss_BT,
                denominator=denominator,
                clip_low=self.section.clip_low,
                clip_high=self.section.clip_high,
                whole_sequence=self.section.ratio == "sequence",
            )
        coefficient = self._kl_coefficient(share)
        if coefficient > 0 and self.section.kl_place == "loss":
            loss = loss + coefficient * self._kl(batch, scored, counts_BT, denominator)
        if scored.support_BTK is not None:
            loss = loss + self._distil_weight(share) * distillation(
                with_tail(scored.support_BTK, batch.values["support"]),
                batch.values["teacher"],
                batch.values["pull"] * counts_BT,
                batch.loss_BT,
                denominator=denominator,
                direction=str(self.settings["distil_direction"]),  # type: ignore[arg-type]
            )
        entropy = linear(self.section.entropy_coefficient, self.section.entropy_final, share)
        if scored.entropy_BT is not None:
            weighed_BT = scored.entropy_BT * counts_BT
            loss = loss - entropy * entropy_bonus(weighed_BT, batch.loss_BT, denominator=denominator)
        return loss

    def _kl(self, batch: Batch, scored: TokenScores, counts_BT: Tensor, denominator: float) -> Tensor:
        if scored.kl_BT is not None:
            return full_kl_penalty(scored.kl_BT, batch.loss_BT, denominator=denominator, weight_BT=counts_BT)
        # after the first minibatch the tokens are not this policy's own samples any more
        ratio_BT = log_ratio(scored.logprob_BT.detach(), batch.values["behaviour"], batch.loss_BT).exp()
        return kl_penalty(
            scored.logprob_BT,
            batch.values["reference"],
            batch.loss_BT,
            denominator=denominator,
            weight_BT=ratio_BT * counts_BT,
            estimator=self.section.kl_measure,  # type: ignore[arg-type]
        )

    def _distil_weight(self, share: float) -> float:
        final = float(self.settings.get("distil_final", -1.0))
        return linear(float(self.settings["distil"]), None if final < 0 else final, share)

    def _tell(self, tally: LossTally, batch: Batch, found: TokenScores, *, moved: bool) -> None:
        behaviour_BT = batch.values["behaviour"]
        sampled = self.section.uses_kl and found.kl_BT is None
        tally.add(
            found.logprob_BT,
            behaviour_BT,
            batch.values["advantage"],
            batch.loss_BT,
            clip_low=self.section.clip_low,
            clip_high=self.section.clip_high,
            reference_BT=batch.values["reference"] if sampled else None,
            kl_BT=found.kl_BT,
            entropy_BT=-behaviour_BT,  # -log p of what was sampled averages to the entropy, at no cost
            whole_sequence=self.section.ratio == "sequence",
            moved=moved,
        )

    def _is_exact(self) -> bool:
        return bool(next(self.model.parameters()).dtype == torch.float32)

    def _check_mismatch(self, difference: float) -> None:
        if self._is_exact() and not difference <= MAX_MISMATCH:
            live.emit("mismatch", nats=difference)
            raise UserError(
                f"the sampler and the trainer disagree by {difference:.2g} nats on the same weights (limit "
                f"{MAX_MISMATCH:g}): the log-probs of the rollouts are not those of this policy. "
                "Was a trajectory changed after it was sampled, or scored at another temperature?"
            )
