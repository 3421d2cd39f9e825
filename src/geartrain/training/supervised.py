"""Supervised training of a causal LM on token sequences, resumable at any optimiser step.

Legend: B rows, T tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain.models.backbone import token_logprobs
from geartrain.placement import device_of, half_precision
from geartrain.seeds import seed_of
from geartrain.training.batch import Batch, TokenSequence, count_loss_tokens, microbatches
from geartrain.training.checkpoint import load_checkpoint, save_checkpoint
from geartrain.training.engine import Engine, Piece
from geartrain.training.workers import workers_for


@dataclass(frozen=True)
class Plan:
    """Which sequences each optimiser step trains on; a pure function of the seed, so resume needs no cursor."""

    steps: Sequence[Sequence[int]]

    @staticmethod
    def make(lengths: Sequence[int], *, epochs: float, batch_tokens: int, seed: int) -> "Plan":
        """Shuffle each epoch, cut it into steps of about `batch_tokens` tokens, stop after `epochs` (may be a part)."""
        steps: list[list[int]] = []
        limit = epochs * sum(lengths)
        seen = 0
        epoch = 0
        while seen < limit:
            order = np.random.default_rng(seed_of(seed, "supervised", epoch)).permutation(len(lengths))
            step: list[int] = []
            tokens = 0
            for index in order.tolist():
                step.append(index)
                tokens += lengths[index]
                if tokens >= batch_tokens:
                    steps.append(step)
                    seen += tokens
                    step, tokens = [], 0
                    if seen >= limit:
                        return Plan(steps)
            if step:
                steps.append(step)
                seen += tokens
            epoch += 1
        return Plan(steps)


def train_supervised(
    model: Any,
    sequences: Sequence[TokenSequence],
    plan: Plan,
    *,
    learning_rate: float,
    matrix_learning_rate: float | None,
    warmup: float,
    precision: str,
    microbatch_tokens: int,
    checkpoint_every: int,
    work: Path,
    on_step: Callable[[dict[str, float]], None],
) -> list[dict[str, float]]:
    """Minimise the mean negative log-likelihood of the loss tokens; return one record per optimiser step.

    Continues from the newest checkpoint in `work`, and then gives the same
    weights as a run that was never stopped (at one thread, bit for bit).

    Args:
        model: causal LM, trained in place.
        sequences: training sequences with their loss masks.
        plan: sequences of every step.
        matrix_learning_rate: peak of Muon for the matrices; None leaves them to AdamW.
        learning_rate: peak of AdamW; rises over `warmup` (share of the steps), then falls as half a cosine.
        warmup: share of the steps, in [0, 1].
        precision: "float32", or "bfloat16" for autocast of the forward pass.
        microbatch_tokens: padded tokens per forward pass.
        checkpoint_every: optimiser steps between checkpoints.
        work: folder of checkpoints.
        on_step: called with each record.

    Raises:
        UserError: the loss is not finite several steps in a row.
    """
    total = len(plan.steps)
    matrices = [] if matrix_learning_rate is None else _hidden_matrices(model)
    taken = {id(parameter) for parameter in matrices}
    engine = Engine(
        [parameter for parameter in model.parameters() if id(parameter) not in taken],
        matrices=matrices,
        matrix_learning_rate=matrix_learning_rate or 0.0,
        learning_rate=learning_rate,
        total_steps=total,
        warmup_steps=round(warmup * total),
        schedule="cosine",
        weight_decay=0.01,
    )
    workers = workers_for(model)
    history: list[dict[str, float]] = []
    state = load_checkpoint(work)
    if state is not None:
        model.load_state_dict(state["model"])
        engine.load_state_dict(state["engine"])
        history = state["history"]
        for record in history:
            on_step(record)
    model.train()
    for step in range(len(history), total):
        chosen = [sequences[index] for index in plan.steps[step]]
        denominator = count_loss_tokens(chosen)
        pieces = _pieces(model, chosen, denominator, precision, microbatch_tokens)
        for _ in engine.accumulate(pieces, workers=workers):
            pass
        report = engine.step()
        record = {
            "step": step,
            "loss": report.loss,
            "learning_rate": report.learning_rate,
            "gradient_norm": report.gradient_norm,
            "loss_tokens": denominator,
        }
        history.append(record)
        on_step(record)
        if (step + 1) % checkpoint_every == 0 and step + 1 < total:
            save_checkpoint(work, _state(model, engine, history), step=step + 1)
    model.eval()
    return history


def _hidden_matrices(model: Any) -> list[torch.nn.Parameter]:
    """Return the weights that Muon is for: 2-D, and neither the embedding nor the output layer."""
    ends = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    return [parameter for parameter in model.parameters() if parameter.ndim == 2 and id(parameter) not in ends]


def _pieces(
    model: torch.nn.Module, sequences: Sequence[TokenSequence], denominator: int, precision: str, budget: int
) -> Iterator[Piece[None]]:
    device = device_of(model)

    def piece(batch: Batch) -> tuple[Tensor, None]:
        with half_precision(device, enabled=precision == "bfloat16"):
            return negative_log_likelihood(model, batch) / denominator, None

    for batch in microbatches(sequences, budget=budget, device=device):
        yield partial(piece, batch)


def negative_log_likelihood(model: torch.nn.Module, batch: Batch) -> Tensor:
    """Return the summed negative log-likelihood of the loss tokens (a scalar, in nats)."""
    scored = token_logprobs(model, batch.ids_BT, batch.attention_BT, temperature=1.0, where_BT=batch.loss_BT)
    return -scored.logprob_BT.sum()


def _state(model: torch.nn.Module, engine: Engine, history: list[dict[str, float]]) -> dict[str, Any]:
    return {"model": model.state_dict(), "engine": engine.state_dict(), "history": history}
