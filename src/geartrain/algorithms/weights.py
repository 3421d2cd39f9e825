"""From raw salience to the multiplier W of the verified advantage: positive, bounded, detached.

Every credit method ends here, so that no method can turn a sign, exceed its
bound, or lengthen the step by weighing everything up.
Source: ours (shared contract of the credit methods).

Legend: N trajectories, T positions.
"""

import torch
from torch import Tensor

from geartrain.algorithms.masked import masked_mean

_BISECTIONS = 60


def bounded_weight(raw_NT: Tensor, mask_NT: Tensor, *, low: float, high: float, normalise: bool) -> Tensor:
    """Return W = clip(raw, low, high), and with `normalise` scaled to mean 1 per trajectory within wider bounds.

    Normalised weights lie within `reachable`.

    Args:
        raw_NT: finite and positive at trained positions; anything elsewhere.
        mask_NT: bool, trained positions.
        low: in (0, 1].
        high: at least 1.
        normalise: whether the masked mean of a row is 1.

    Returns:
        [N, T] of `raw_NT`'s type, without gradient; 1 at masked positions.
    """
    assert 0 < low <= 1 <= high, f"bounds {low}, {high} do not enclose 1"
    clipped_NT = torch.where(mask_NT, raw_NT.detach().double(), 1.0).clamp(low, high)
    if normalise:
        _, bound = reachable(low, high, normalise=True)
        clipped_NT = normalise_within_bounds(clipped_NT, mask_NT, bound=bound)
    return clipped_NT.to(raw_NT.dtype)


def reachable(low: float, high: float, *, normalise: bool) -> tuple[float, float]:
    """Return the smallest and the largest weight that `bounded_weight` may give. Source: ours.

    A method whose raw weights only grow (low = 1) could not have mean 1 within its own bounds: normalised weights
    take those of a symmetric range that holds both.
    """
    return (min(low, 1.0 / high), max(high, 1.0 / low)) if normalise else (low, high)


def normalise_within_bounds(raw_NT: Tensor, mask_NT: Tensor, *, bound: float) -> Tensor:
    """Scale each row to masked mean 1 without leaving [1/bound, bound].

    Dividing by the mean may push a weight past its bound, and clipping again
    moves the mean. The row's scale is therefore the lambda that solves
    mean(clip(lambda * raw, 1/bound, bound)) = 1. It exists, because the mean
    grows with lambda from 1/bound to bound, and is found by bisection where
    the plain division does not already fit.

    Shapes [N, T] float64 positive, [N, T] bool -> [N, T]; 1 at masked positions.
    """
    low, high = 1.0 / bound, bound
    mean_N1 = masked_mean(raw_NT, mask_NT, dim=1)[:, None]
    plain_NT = torch.where(mask_NT, raw_NT / torch.where(mean_N1 > 0, mean_N1, 1.0), 1.0)
    below_N1 = torch.full_like(mean_N1, low / bound)
    above_N1 = torch.full_like(mean_N1, bound / low)
    for _ in range(_BISECTIONS):
        scale_N1 = 0.5 * (below_N1 + above_N1)
        mean_N1 = masked_mean((raw_NT * scale_N1).clamp(low, high), mask_NT, dim=1)[:, None]
        below_N1 = torch.where(mean_N1 < 1.0, scale_N1, below_N1)
        above_N1 = torch.where(mean_N1 < 1.0, above_N1, scale_N1)
    clipped_NT = torch.where(mask_NT, (raw_NT * above_N1).clamp(low, high), 1.0)
    fits_N1 = ((plain_NT >= low) & (plain_NT <= high)).all(1, keepdim=True)
    return torch.where(fits_N1, plain_NT, clipped_NT)
