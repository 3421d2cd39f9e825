"""Reductions over the positions that a mask selects.

Masks select by `torch.where`, never by multiplication: whatever lies at a
masked position, NaN and inf included, reaches neither the value nor the
gradient. Source: ours (fault kinds: 0 * NaN, mean of an empty mask).

Legend: N rows, T positions; `...` any shape that the mask matches.
"""

import torch
from torch import Tensor

EPSILON = 1e-6


def keep(value: Tensor, mask: Tensor) -> Tensor:
    """Return `value` with 0 where the mask is False. Shapes [...], [...] -> [...]."""
    return torch.where(mask, value, torch.zeros((), dtype=value.dtype, device=value.device))


def masked_sum(value: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum over selected positions, along `dim` or over all; an empty selection gives 0."""
    kept = keep(value, mask)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(value: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean over selected positions, along `dim` or over all; an empty selection gives 0."""
    count = mask.sum() if dim is None else mask.sum(dim)
    return masked_sum(value, mask, dim) / count.clamp(min=1)


def row_share(mask_NT: Tensor, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 1 / (selected positions of the row) at selected positions, 0 elsewhere. bool [N, T] -> [N, T].

    As a weight of tokens it makes a masked sum the sum of the rows' means: over the number of rows, that is the
    per-sequence mean of GRPO, arXiv:2402.03300. It looks at one row at a time, so the split into micro-batches does
    not change it, and the reduction stays a sum over one denominator of the whole step.
    """
    count_N1 = mask_NT.sum(1, keepdim=True).clamp(min=1)
    return keep(1.0 / count_N1.to(dtype), mask_NT)


def standardise_by_group(value_NT: Tensor, mask_NT: Tensor, group_N: Tensor) -> Tensor:
    """Subtract mean and divide by standard deviation over each group's selected positions.

    The statistics pool all selected (row, position) pairs of the rows that
    share a group (population variance). A signal that is constant in its group
    becomes 0, not noise; masked positions become 0.

    Args:
        value_NT: signal.
        mask_NT: bool.
        group_N: int64 in [0, number of groups).
    """
    groups = int(group_N.max()) + 1 if group_N.numel() else 0
    kept_NT = keep(value_NT, mask_NT).double()
    count_G = _sum_by_group(mask_NT.double(), group_N, groups).clamp(min=1)
    mean_G = _sum_by_group(kept_NT, group_N, groups) / count_G
    centred_NT = keep(kept_NT - mean_G[group_N, None], mask_NT)
    scale_G = (_sum_by_group(centred_NT.square(), group_N, groups) / count_G).sqrt()
    flat_G = scale_G <= EPSILON * (mean_G.abs() + scale_G)  # what is left is rounding
    result_NT = centred_NT / torch.where(flat_G, 1.0, scale_G)[group_N, None]
    return keep(result_NT, ~flat_G[group_N, None]).to(value_NT.dtype)


def _sum_by_group(value_NT: Tensor, group_N: Tensor, groups: int) -> Tensor:
    zeros_G = torch.zeros(groups, dtype=value_NT.dtype, device=value_NT.device)
    return zeros_G.index_add(0, group_N, value_NT.sum(1))
