"""One pass of a frozen model over trajectories: log-probs and a pair of embeddings per turn.

A turn's *state* is what was known before its action, its *action* the same with
the action added. With the policy's own hidden states both come from the pass
that the KL penalty needs anyway; with a text encoder the action is never cut,
the state is cut from the left.

Legend: N trajectories, T positions, S turns, H width, B rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from geartrain.errors import UserError
from geartrain.models.backbone import load_encoder, mean_pool, token_logprobs
from geartrain.placement import CPU
from geartrain.ranks import ALONE, Ranks
from geartrain.training.batch import Batch, TokenSequence, make_sequence, microbatches, split_by_budget
from geartrain.training.workers import in_order, workers_for
from geartrain.trajectory import Trajectory

_STATE_IDS = 512
"""Ids before an action that are decoded for a text encoder; more would be cut anyway."""


@dataclass(frozen=True)
class TurnFeatures:
    """Embeddings of one trajectory's turns."""

    state_SH: Tensor
    action_SH: Tensor


@dataclass(frozen=True)
class FrozenScores:
    """What a frozen model says of one trajectory."""

    logprob_T: Tensor
    """Log-prob of every sampled id at the trajectory's temperature, 0 elsewhere."""
    turns: TurnFeatures | None = None
    """Hidden states, where they were asked for."""
    entropy_T: Tensor | None = None
    """Of the model's own distribution."""
    top_TK: Tensor | None = None
    """int64, its likeliest ids."""
    support_TK: Tensor | None = None
    """Its log-probs of the ids asked for, or of the top."""
    kl_T: Tensor | None = None
    """Its divergence from another model, over the whole vocabulary."""


class Encoder(Protocol):
    """A source of turn features that is not the policy itself."""

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[TurnFeatures]:
        """Return one entry per trajectory."""
        ...


def sequence_of(trajectory: Trajectory) -> TokenSequence:
    """Return a trajectory as training data: every sampled id is trained, the behaviour log-probs travel along."""
    sequence = make_sequence(trajectory.token_ids(), trajectory.action_mask())
    behaviour_T = torch.tensor(trajectory.behaviour_logprobs(), dtype=torch.float32)
    return TokenSequence(sequence.ids_T, sequence.action_T, sequence.loss_T, {"behaviour": behaviour_T})


def frozen_pass(
    model: Any,
    trajectories: Sequence[Trajectory],
    sequences: Sequence[TokenSequence],
    *,
    microbatch_tokens: int,
    want_logprobs: bool = True,
    want_turns: bool = False,
    want_entropy: bool = False,
    top: int = 0,
    reference: Any = None,
    ranks: Ranks = ALONE,
) -> list[FrozenScores]:
    """Run `model` (and a `reference` to compare with) over trajectories, without gradient; one entry each, in order.

    Without `want_logprobs` no logits are computed, and the log-probs are 0. A sequence's value "support" (int64
    [T, K]) asks for the log-probs of these ids. Ranks share the work.
    """
    temperature = _common_temperature(trajectories)

    @torch.no_grad()
    def score(batch: Batch) -> list[tuple[int, FrozenScores]]:
        where_BT = batch.loss_BT if want_logprobs else torch.zeros_like(batch.loss_BT)
        scored = token_logprobs(
            model,
            batch.ids_BT,
            batch.attention_BT,
            temperature=temperature,
            where_BT=where_BT,
            want_hidden=want_turns,
            want_entropy=want_entropy,
            top=top,
            support_BTK=batch.values.get("support"),
            reference=reference,
        )
        found = []
        for index, row in enumerate(batch.rows):
            turns = None
            if scored.hidden_BTH is not None:
                turns = _at_turns(scored.hidden_BTH[index], trajectories[row])
            columns = (scored.logprob_BT, scored.entropy_BT, scored.top_BTK, scored.support_BTK, scored.kl_BT)
            # copies: a view would keep the whole padded batch alive
            logprob_T, *others = (
                None if value is None else value[index, : len(sequences[row])].cpu().clone() for value in columns
            )
            assert logprob_T is not None
            found.append((row, FrozenScores(logprob_T, turns, *others)))
        return found

    def score_rows(rows: list[int]) -> list[FrozenScores]:
        chosen = [sequences[row] for row in rows]
        batches = microbatches(chosen, budget=microbatch_tokens, device=model.device)
        batches = (replace(batch, rows=[rows[place] for place in batch.rows]) for batch in batches)
        scores = dict(chain.from_iterable(in_order(workers_for(model), (partial(score, batch) for batch in batches))))
        return [scores[row] for row in rows]

    return ranks.apart([len(sequence) for sequence in sequences], score_rows)


class TextEncoder:
    """Turn features from a sentence encoder instead of the policy. Deterministic; about 1 ms of CPU per turn."""

    def __init__(
        self,
        folder: Path | None,
        decode: Callable[[list[int]], str],
        *,
        max_tokens: int = 128,
        device: torch.device = CPU,
    ) -> None:
        self._model, self._tokenizer = load_encoder(folder, device=device)
        self._decode = decode
        self._max_tokens = max_tokens
        self.width = int(self._model.config.hidden_size)

    def save(self, folder: Path) -> None:
        """Write encoder and tokenizer, so that the critic does not depend on another folder."""
        self._model.save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[TurnFeatures]:
        """Embed (state, nothing) and (state, action) of every turn.

        Raises:
            UserError: an action alone is longer than the encoder's limit.
        """
        pairs = [pair for trajectory in trajectories for pair in self._pairs(trajectory)]
        state_SH = self._embed([self.pair_ids(state, "") for state, _ in pairs])
        action_SH = self._embed([self.pair_ids(state, action) for state, action in pairs])
        counts = [len(trajectory.turns) for trajectory in trajectories]
        parts = zip(torch.split(state_SH, counts), torch.split(action_SH, counts), strict=True)
        return [TurnFeatures(state, action) for state, action in parts]

    def pair_ids(self, state: str, action: str) -> list[int]:
        """Return `[CLS] state [SEP] action [SEP]` within the limit; only the state's left end is ever cut."""
        state_ids, action_ids = (self._tokenizer.encode(text, add_special_tokens=False) for text in (state, action))
        room = self._max_tokens - 3 - len(action_ids)
        if room < 0:
            raise UserError(
                f"critic.encoder: an action of {len(action_ids)} tokens exceeds the limit of {self._max_tokens - 3}. "
                "Lower sampling.max_new_tokens, or set critic.encoder to null."
            )
        start, end = self._tokenizer.cls_token_id, self._tokenizer.sep_token_id
        return [start, *state_ids[max(0, len(state_ids) - room) :], end, *action_ids, end]

    def _pairs(self, trajectory: Trajectory) -> list[tuple[str, str]]:
        ids = trajectory.token_ids()
        spans = trajectory.action_spans()
        states = [self._decode(ids[max(0, start - _STATE_IDS) : start]) for start, _ in spans]
        return [(state, turn.action_text) for state, turn in zip(states, trajectory.turns, strict=True)]

    @torch.no_grad()
    def _embed(self, texts: list[list[int]]) -> Tensor:
        embedded = torch.zeros(len(texts), self.width)
        for rows in split_by_budget([len(ids) for ids in texts], budget=8192):
            width = max(len(texts[row]) for row in rows)
            ids_BT = torch.zeros(len(rows), width, dtype=torch.int64)
            attention_BT = torch.zeros(len(rows), width, dtype=torch.int64)
            for index, row in enumerate(rows):
                ids_BT[index, : len(texts[row])] = torch.tensor(texts[row])
                attention_BT[index, : len(texts[row])] = 1
            ids_BT, attention_BT = ids_BT.to(self._model.device), attention_BT.to(self._model.device)
            hidden_BTH = self._model(input_ids=ids_BT, attention_mask=attention_BT).last_hidden_state
            embedded[rows] = mean_pool(hidden_BTH, attention_BT).cpu()
        return embedded


def _at_turns(hidden_TH: Tensor, trajectory: Trajectory) -> TurnFeatures:
    """Read the hidden state at the last prompt token and at the last action token of every turn."""
    spans = trajectory.action_spans()
    before = [max(0, start - 1) for start, _ in spans]
    # an empty action (no room was left) ends where it starts
    last = [max(0, stop - 1) for _, stop in spans]
    return TurnFeatures(hidden_TH[before].float().cpu(), hidden_TH[last].float().cpu())


def _common_temperature(trajectories: Sequence[Trajectory]) -> float:
    temperatures = {trajectory.temperature for trajectory in trajectories}
    assert len(temperatures) <= 1, f"trajectories of several temperatures in one batch: {sorted(temperatures)}"
    return temperatures.pop() if temperatures else 1.0
