"""Muon in float32, matrices of one shape together.

torch.optim.Muon orthogonalises in bfloat16, matrix by matrix. A CPU without
bfloat16 units emulates that: a step over the demo model's 28 matrices then
takes longer than its forward and backward passes, and its bits depend on the
machine. This one gives the same update (tests/unit/training/test_muon.py).
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from geartrain.placement import hands
from geartrain.training.workers import in_order

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration, steepest at 0 (arXiv 2502.16982)."""
ITERATIONS = 5
EPSILON = 1e-7


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised (arXiv 2502.16982); as `torch.optim.Muon`, for 2-D float32 weights."""

    def __init__(
        self, params: Iterable[torch.nn.Parameter], *, lr: float, weight_decay: float = 0.0, momentum: float = 0.95
    ) -> None:
        """Take matrices. `lr` is that of a square one; a tall one moves by sqrt(rows / columns) times as much."""
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        for group in self.param_groups:
            assert all(matrix.ndim == 2 for matrix in group["params"]), "Muon is for matrices"

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        assert closure is None, "losses are computed by the caller"
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape.setdefault(matrix.shape, []).append(matrix)
            stacks = [torch.stack([self._nesterov(m, group["momentum"]) for m in same]) for same in by_shape.values()]
            workers = hands(torch.get_num_threads(), group["params"][0].device)
            updates = in_order(workers, (partial(orthogonalized, stack) for stack in stacks))
            for ((rows, columns), matrices), update_NRC in zip(by_shape.items(), updates, strict=True):
                scale = group["lr"] * math.sqrt(max(1.0, rows / columns))
                for matrix, update_RC in zip(matrices, update_NRC, strict=True):
                    matrix.mul_(1.0 - group["lr"] * group["weight_decay"])
                    matrix.add_(update_RC, alpha=-scale)

    def _nesterov(self, matrix: torch.nn.Parameter, momentum: float) -> Tensor:
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        average: Tensor = state["momentum"].lerp_(matrix.grad, 1.0 - momentum)
        return matrix.grad.lerp(average, momentum)


@torch.no_grad()
def orthogonalized(matrix_NRC: Tensor) -> Tensor:
    """Return N matrices [N, R, C] with their singular values pushed to about 1 (0.7 to 1.2), by Newton and Schulz."""
    a, b, c = COEFFICIENTS
    tall = matrix_NRC.shape[1] > matrix_NRC.shape[2]
    x = matrix_NRC.mT if tall else matrix_NRC
    x = x / x.flatten(1).norm(dim=1)[:, None, None].clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
