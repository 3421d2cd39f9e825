"""Training of the reward model: Bradley-Terry on pairs, early stopping, centring, calibration.

Only the head and the topmost layers learn. What the frozen layers make of a
text never changes, so it is computed once per text and kept.

Legend: P pairs of a batch, U different texts, B rows, T tokens, H width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain.algorithms.preference import bradley_terry_loss
from geartrain.datasets.transcript import split
from geartrain.models.reward_model import RewardModel, TextTooLongError, Tokens
from geartrain.placement import half_precision
from geartrain.preferences.pairs import FILES, SIBLINGS, Pair
from geartrain.seeds import seed_of
from geartrain.training.batch import split_by_budget
from geartrain.training.checkpoint import load_checkpoint, save_checkpoint
from geartrain.training.engine import Engine

VALIDATIONS_PER_EPOCH = 3
LOWER_BATCH_TOKENS = 4096
WARMUP_SHARE = 0.1


@dataclass(frozen=True)
class Settings:
    """See `RewardModelSection`."""

    epochs: float
    learning_rate: float
    batch_pairs: int
    train_layers: int
    patience: int
    margin_weight: float
    seed: int
    bfloat16: bool
    """Autocast of the forward passes."""


@dataclass(frozen=True)
class Example:
    """A pair as indices into the different texts."""

    chosen: int
    rejected: int
    pair: Pair
    weight: float
    """How much its loss counts, >= 0."""


@dataclass(frozen=True)
class Prepared:
    """Pairs whose texts fit, and how many do not."""

    texts: list[Tokens]
    examples: dict[str, list[Example]]
    """"train" (all origins), "validation" (siblings only: they decide when to stop, and whether to trust the model),
    "probes" (forged pairs of held-out tasks), "files" (held-out pairs of files)."""
    too_long: int
    """Pairs left out because an answer would be cut."""
    equal_once_cut: int
    """Pairs left out because what told them apart was cut."""


def prepare(model: RewardModel, pairs: Sequence[Pair], weights: Sequence[float] | None = None) -> Prepared:
    """Turn pairs into ids, each different text once; pairs that cannot be shown whole enough are left out.

    `weights` say how much each pair counts; None counts all alike.
    """
    weights = [1.0] * len(pairs) if weights is None else weights
    index: dict[Tokens, int] = {}
    examples: dict[str, list[Example]] = {"train": [], "validation": [], "probes": [], "files": []}
    too_long = equal_once_cut = 0
    for pair, weight in zip(pairs, weights, strict=True):
        try:
            chosen, rejected = (model.tokens(pair.prompt, *split(text)) for text in (pair.chosen, pair.rejected))
        except TextTooLongError:
            too_long += 1
            continue
        rows = [index.setdefault(tokens, len(index)) for tokens in (chosen, rejected)]
        if rows[0] == rows[1]:
            equal_once_cut += 1
            continue
        part = pair.split
        if part == "validation" and pair.origin != SIBLINGS:
            part = "files" if pair.origin.startswith(FILES) else "probes"
        examples[part].append(Example(rows[0], rows[1], pair, weight))
    return Prepared(list(index), examples, too_long, equal_once_cut)


class Trainer:
    """One training run of a reward model, resumable from its last validation."""

    def __init__(self, model: RewardModel, prepared: Prepared, settings: Settings) -> None:
        self._model = model
        self._settings = settings
        self._examples = prepared.examples
        self._train, self._validation = prepared.examples["train"], prepared.examples["validation"]
        depth = len(model.encoder.encoder.layer)
        self._frozen = max(0, depth - settings.train_layers)
        self._parameters = _trainable(model, self._frozen)
        self._hidden = self._precompute(prepared.texts)
        per_epoch = -(-len(self._train) // settings.batch_pairs)
        self.total = max(1, round(settings.epochs * per_epoch))
        self._validate_every = max(1, per_epoch // VALIDATIONS_PER_EPOCH)
        self._engine = Engine(
            self._parameters.values(),
            learning_rate=settings.learning_rate,
            total_steps=self.total,
            warmup_steps=round(WARMUP_SHARE * self.total),
            schedule="cosine",
            weight_decay=0.01,
        )

    def run(self, work: Path, on_step: Callable[[dict[str, float]], None]) -> list[dict[str, float]]:
        """Train, keep the best weights by validation loss in the model, return one record per optimiser step.

        Without validation pairs there is no early stopping and the last weights are kept.

        Args:
            work: folder of checkpoints; a run that was killed goes on from the newest and ends the same.
            on_step: called with each record.

        Raises:
            UserError: the loss is not finite several steps in a row.
        """
        state = load_checkpoint(work) or self._fresh()
        self._restore(state)
        for record in state["history"]:
            on_step(record)
        while len(state["history"]) < self.total and state["stale"] < self._settings.patience:
            step = len(state["history"])
            record = {"step": float(step), **self._step(step)}
            pause = (step + 1) % self._validate_every == 0 or step + 1 == self.total
            if pause and self._validation:
                record["validation_loss"] = self._validate(state)
            state["history"].append(record)
            on_step(record)
            if pause:
                now = {"weights": self._weights(), "engine": self._engine.state_dict()}
                save_checkpoint(work, {**state, **now}, step=step)
        if state["best"]:
            self._load(state["best"])
        history: list[dict[str, float]] = state["history"]
        return history

    def raw(self, part: str) -> Tensor:
        """Return raw outputs of the pairs of a part of `Prepared.examples`, [P, 2]: chosen, rejected."""
        examples = self._examples[part]
        rows = sorted({row for example in examples for row in (example.chosen, example.rejected)})
        value_by_row: dict[int, float] = {}
        with torch.inference_mode():
            for batch in split_by_budget([len(self._hidden[row]) for row in rows], LOWER_BATCH_TOKENS):
                chosen_rows = [rows[i] for i in batch]
                value_by_row.update(zip(chosen_rows, self._score(chosen_rows).tolist(), strict=True))
        return torch.tensor([[value_by_row[e.chosen], value_by_row[e.rejected]] for e in examples]).reshape(-1, 2)

    def _step(self, step: int) -> dict[str, float]:
        batch = self._batch(step)
        raw_2P = self._score([e.chosen for e in batch] + [e.rejected for e in batch])
        margin_P = self._settings.margin_weight * torch.tensor([e.pair.margin for e in batch])
        loss_P = bradley_terry_loss(raw_2P[: len(batch)], raw_2P[len(batch) :], margin_P)
        weight_P = torch.tensor([e.weight for e in batch], dtype=loss_P.dtype)
        report = self._engine.update([(weight_P * loss_P).sum() / len(batch)])
        return {"loss": report.loss, "learning_rate": report.learning_rate}

    def _batch(self, step: int) -> list[Example]:
        per_epoch = -(-len(self._train) // self._settings.batch_pairs)
        epoch, position = divmod(step, per_epoch)
        order = np.random.default_rng(seed_of(self._settings.seed, "reward_model", epoch)).permutation(len(self._train))
        start = position * self._settings.batch_pairs
        return [self._train[i] for i in order[start : start + self._settings.batch_pairs]]

    def _validate(self, state: dict[str, Any]) -> float:
        raw_P2 = self.raw("validation")
        loss = float(bradley_terry_loss(raw_P2[:, 0], raw_P2[:, 1]).mean())
        if loss < state["best_loss"]:
            state.update(best_loss=loss, best=self._weights(), stale=0)
        else:
            state["stale"] += 1
        return loss

    def _score(self, rows: Sequence[int]) -> Tensor:
        """Return raw outputs on the CPU, where the loss is: gradients find their way back."""
        hidden_BTH = torch.nn.utils.rnn.pad_sequence([self._hidden[row] for row in rows], batch_first=True)
        length_B = torch.tensor([len(self._hidden[row]) for row in rows])
        mask_BT = torch.arange(hidden_BTH.shape[1])[None] < length_B[:, None]
        device = self._model.device
        with half_precision(device, enabled=self._settings.bfloat16):
            return self._model.upper(hidden_BTH.to(device), mask_BT.to(device), self._frozen).cpu()

    def _precompute(self, texts: Sequence[Tokens]) -> list[Tensor]:
        """Return hidden_TH of every text after the frozen layers."""
        hidden: list[Tensor] = [torch.empty(0)] * len(texts)
        with torch.no_grad(), half_precision(self._model.device, enabled=self._settings.bfloat16):
            for rows in split_by_budget([len(text) for text in texts], LOWER_BATCH_TOKENS):
                hidden_BTH, _ = self._model.lower([texts[row] for row in rows], self._frozen)
                for index, row in enumerate(rows):
                    hidden[row] = hidden_BTH[index, : len(texts[row])].float().to("cpu", copy=True)
        return hidden

    def _fresh(self) -> dict[str, Any]:
        return {"history": [], "stale": 0, "best": {}, "best_loss": float("inf"), "weights": None, "engine": None}

    def _restore(self, state: dict[str, Any]) -> None:
        if state["weights"] is not None:
            self._load(state["weights"])
            self._engine.load_state_dict(state["engine"])

    def _weights(self) -> dict[str, Tensor]:
        return {name: parameter.detach().to("cpu", copy=True) for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def _load(self, weights: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(weights[name])


def _trainable(model: RewardModel, frozen: int) -> dict[str, torch.nn.Parameter]:
    """Freeze all but the head and the layers from `frozen` up; return those by name."""
    model.encoder.requires_grad_(False)
    parts = {"head": model.head, "layers": model.encoder.encoder.layer[frozen:].requires_grad_(True)}
    return {f"{part}.{name}": p for part, module in parts.items() for name, p in module.named_parameters()}
