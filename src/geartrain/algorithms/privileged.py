"""GEAR-P: weigh by how much the policy itself disagrees once it has been told the answer.

    rKL = log policy(a | s) - log policy(a | s, answer)      of the sampled token, may be negative
    w   = 0.5 + (0.5 - rKL') sign(A)                         rKL' rescaled to [0, 1], shared over segments
    raw = alpha w + 1 - alpha / 2

A success is credited less where the answer would have changed the token, a
failure is blamed more there.

Source: GEAR, arXiv:2605.11853. Rescaling: the paper implies min-max within a
trajectory, which finds a spike in every trajectory, however small; ours clips
at 0 and divides by a quantile of the batch.

Legend: N trajectories, T positions.
"""

import torch
from torch import Tensor

from geartrain.algorithms.masked import keep

SMALLEST_SPREAD = 1e-3
"""Nats; a teacher that differs by less than this has said nothing."""


def rescaled_gap(logprob_NT: Tensor, privileged_NT: Tensor, mask_NT: Tensor, *, quantile: float) -> Tensor:
    """Return rKL' in [0, 1]: positive part, divided by its quantile over the batch's trained tokens, cut at 1.

    Where the teacher speaks so rarely that the quantile is below `SMALLEST_SPREAD` nats, the quantile of the larger
    gaps sets the scale; where there is none, the result is 0 everywhere. Masked positions are 0.

    Args:
        logprob_NT: of the policy that sampled.
        privileged_NT: of the same weights with the answer in their context.
        mask_NT: bool, trained positions.
        quantile: in (0, 1]; 1 divides by the largest, which one outlier decides.
    """
    gap_NT = keep((logprob_NT - privileged_NT).detach().double().clamp(min=0.0), mask_NT)
    said_NT = gap_NT >= SMALLEST_SPREAD
    if not bool(said_NT.any()):
        return torch.zeros_like(logprob_NT)
    top = torch.quantile(gap_NT[mask_NT], quantile)
    if float(top) < SMALLEST_SPREAD:
        top = torch.quantile(gap_NT[said_NT], quantile)
    return (gap_NT / top).clamp(max=1.0).to(logprob_NT.dtype)


def privileged_weight(gap_NT: Tensor, advantage_NT: Tensor, *, alpha: float) -> Tensor:
    """Return the raw weight in [1 - alpha/2, 1 + alpha/2]; 1 where the advantage is 0.

    Args:
        gap_NT: rKL' in [0, 1], shared over segments.
        advantage_NT: verified advantage at every token.
        alpha: in [0, 2); 0 is plain GRPO.
    """
    salience_NT = 0.5 + (0.5 - gap_NT.detach()) * advantage_NT.detach().sign()
    return alpha * salience_NT + 1.0 - 0.5 * alpha
