"""One optimiser step, whoever computes the loss: accumulate, clip, schedule, skip what is not finite.

A loss that reaches `backward` is a masked *sum* already divided by the
denominator of the whole optimiser step, so that the split into micro-batches
cannot change the gradient.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from geartrain import live
from geartrain.errors import UserError
from geartrain.ranks import ALONE, Ranks
from geartrain.training.muon import Muon
from geartrain.training.workers import in_order

Schedule = Literal["constant", "cosine"]
T = TypeVar("T")
Piece = Callable[[], tuple[Tensor, T]]
"""Computes one micro-batch: its share of the loss, and a by-product."""
MAX_SKIPPED_IN_A_ROW = 3


@dataclass(frozen=True)
class StepReport:
    """What one optimiser step did."""

    gradient_norm: float
    """Global 2-norm before clipping; NaN when the step was skipped."""
    learning_rate: float
    loss: float
    """Sum over the micro-batches."""
    skipped: bool
    """Whether the weights were left alone because the loss or the gradient was not finite."""


class Engine:
    """AdamW over one model in one process, with Muon for its matrices where asked.

    Several ranks that hold the whole model each add their gradients up before
    they clip.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        *,
        learning_rate: float,
        total_steps: int,
        gradient_clip: float = 1.0,
        warmup_steps: int = 0,
        schedule: Schedule = "constant",
        betas: tuple[float, float] = (0.9, 0.95),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        matrices: Iterable[torch.nn.Parameter] = (),
        matrix_learning_rate: float = 0.0,
        ranks: Ranks = ALONE,
    ) -> None:
        """Take AdamW for `parameters` and Muon (arXiv 2502.16982) for `matrices`; both follow one schedule."""
        plain = [parameter for parameter in parameters if parameter.requires_grad]
        hidden = [parameter for parameter in matrices if parameter.requires_grad]
        self.parameters = plain + hidden
        assert self.parameters, "nothing to train: no parameter requires a gradient"
        assert total_steps > 0, total_steps
        self._learning_rate = learning_rate
        self._total_steps = total_steps
        self._gradient_clip = gradient_clip
        self._warmup_steps = warmup_steps
        self._schedule: Schedule = schedule
        self._optimizers: list[torch.optim.Optimizer] = []
        if plain:
            fused = _can_fuse(plain)
            self._optimizers.append(
                torch.optim.AdamW(
                    plain, lr=learning_rate, betas=betas, eps=epsilon, weight_decay=weight_decay, fused=fused
                )
            )
        if hidden:
            self._optimizers.append(Muon(hidden, lr=matrix_learning_rate, weight_decay=weight_decay))
        self._peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in self._optimizers]
        self._ranks = ranks
        self._loss = 0.0
        self._finite = True
        self.steps = 0
        """Optimiser steps so far, skipped ones included."""
        self.skipped = 0
        """Steps that were skipped so far."""
        self.skipped_in_a_row = 0

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of one micro-batch's share of the loss (a scalar)."""
        value = float(loss.detach())
        self._loss += value
        if not math.isfinite(value):
            self._finite = False
        elif self._finite:
            loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> StepReport:
        """Clip the accumulated gradient, update the weights, clear the gradient.

        Raises:
            UserError: loss or gradient was not finite `MAX_SKIPPED_IN_A_ROW` times in a row.
        """
        learning_rate = learning_rate_at(
            self.steps,
            peak=self._learning_rate,
            total_steps=self._total_steps,
            warmup_steps=self._warmup_steps,
            schedule=self._schedule,
        )
        norm = math.nan
        self._add_up()
        if self._finite:
            norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self._gradient_clip))
        skipped = not math.isfinite(norm)
        if not skipped:
            self._apply(learning_rate / self._learning_rate)
        for parameter in self.parameters:
            parameter.grad = None
        report = StepReport(math.nan if skipped else norm, learning_rate, self._loss, skipped)
        self._count(skipped)
        self._loss, self._finite = 0.0, True
        return report

    def accumulate(self, pieces: Iterable[Piece[T]], *, workers: int = 1) -> Iterator[T]:
        """Add the gradients of micro-batches, in order; yield what else each piece returns.

        Args:
            pieces: each computes its micro-batch's share of the loss (a scalar), and a by-product.
            workers: how many run at once (`training.workers`); the sum has the same bits whatever it is.
        """
        if workers < 2:
            for piece in pieces:
                loss, product = piece()
                self.backward(loss)
                yield product
            return
        for value, gradients, product in in_order(workers, (partial(self._differentiate, piece) for piece in pieces)):
            self._loss += value
            self._finite = self._finite and math.isfinite(value)
            for parameter, gradient in zip(self.parameters, gradients, strict=False) if self._finite else ():
                if gradient is not None:  # never in place: two parameters' gradients may be one tensor
                    parameter.grad = gradient.clone() if parameter.grad is None else parameter.grad + gradient
            yield product

    def update(self, losses: Iterable[Tensor]) -> StepReport:
        """Run one optimiser step over micro-batch losses, drawn one at a time."""
        for loss in losses:
            self.backward(loss)
        return self.step()

    def state_dict(self) -> dict[str, Any]:
        """Return optimiser moments and counters; the model's weights are the caller's."""
        counters = {name: getattr(self, name) for name in ("steps", "skipped", "skipped_in_a_row")}
        return {"optimizers": [optimizer.state_dict() for optimizer in self._optimizers], **counters}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`'s value."""
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.steps = state["steps"]
        self.skipped = state["skipped"]
        self.skipped_in_a_row = state["skipped_in_a_row"]

    def _add_up(self) -> None:
        """Sum gradients and losses over ranks; what is not finite on one is skipped by all."""
        if self._ranks.size == 1:
            return
        numbers = torch.tensor([self._loss if self._finite else 0.0, float(not self._finite)], dtype=torch.float64)
        self._ranks.add(numbers)
        self._finite = float(numbers[1]) == 0.0
        self._loss = float(numbers[0]) if self._finite else math.nan
        for parameter in self.parameters if self._finite else ():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self._ranks.add(parameter.grad)

    def _differentiate(self, piece: Piece[T]) -> tuple[float, tuple[Tensor | None, ...], T]:
        """Return a piece's loss, its gradients apart from all others (none if the loss is not finite), its product."""
        loss, product = piece()
        value = float(loss.detach())
        finite = math.isfinite(value)
        return value, torch.autograd.grad(loss, self.parameters, allow_unused=True) if finite else (), product

    def _apply(self, share: float) -> None:
        """Step every optimiser at `share` of its peak learning rate."""
        for optimizer, peaks in zip(self._optimizers, self._peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * share
            optimizer.step()

    def _count(self, skipped: bool) -> None:
        self.steps += 1
        self.skipped += skipped
        if skipped:
            live.emit("skipped", step=self.steps)
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0
        if self.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise UserError(
                f"training diverged: loss or gradient was not finite {self.skipped_in_a_row} optimiser steps in a row "
                f"(up to step {self.steps}). Lower the section's learning_rate; the last checkpoint is intact."
            )


def learning_rate_at(step: int, *, peak: float, total_steps: int, warmup_steps: int, schedule: Schedule) -> float:
    """Return the learning rate of optimiser step `step` (0-based).

    Linear rise over `warmup_steps` (the first step already moves), then `peak`
    throughout, or half a cosine down to 0 just after the last step.
    """
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    if schedule == "constant":
        return peak
    share = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return peak * 0.5 * (1.0 + math.cos(math.pi * share))


def _can_fuse(parameters: list[torch.nn.Parameter]) -> bool:
    return all(p.is_floating_point() and p.device.type in {"cpu", "cuda"} for p in parameters)
