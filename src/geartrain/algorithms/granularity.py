"""GEAR-A: fuse advantages of several grains, and turn agreement into a bounded weight.

The verified group advantage A carries the sign and the policy gradient. The
grains only decide *where* in a trajectory it counts more: a token at which the
fused grains agree with A's sign gets a weight above 1, one at which they
disagree a weight below 1, never 0 and never negative. The weights of a
trajectory keep its total: their masked mean is 1.

Source: a widely read article on GEAR (a network that weighs grains; the paper,
arXiv:2605.11853, reweights by a privileged teacher instead), repaired by us:
the article trains the grain weights through the policy loss, which drives them
to the *smallest* advantage, and subtracts its entropy bonus with the wrong
sign; see the tests. Shared contract of the credit methods: ours.

Legend: N trajectories, T positions, K grains.
"""

import torch
from torch import Tensor

from geartrain.algorithms.masked import masked_mean, standardise_by_group

_BISECTIONS = 60


def fuse(grain_NTK: Tensor, mixture_NTK: Tensor) -> Tensor:
    """Return the fused advantage: the grains weighted by a mixture that sums to 1 over K. -> [N, T]."""
    return (grain_NTK * mixture_NTK).sum(-1)


def agreement_weight(
    fused_NT: Tensor,
    advantage_N: Tensor,
    mask_NT: Tensor,
    *,
    strength: float,
    bound: float,
    sharpness: float = 1.0,
) -> Tensor:
    """Return the detached weights W: positive, bounded, masked mean 1 per trajectory.

        s = sigmoid(sharpness * fused * sign(A))
        W = clip(1 + strength (2 s - 1), 1 / bound, bound), then `normalise_within_bounds`

    Args:
        fused_NT: fused, standardised grains; anything at masked positions.
        advantage_N: verified group advantage; 0 gives W = 1.
        mask_NT: bool, trained positions.
        strength: gamma in [0, 1]; 0 gives W = 1 exactly, which is GRPO bit for bit.
        bound: c > 1; no token counts more than c times or less than 1/c times.
        sharpness: kappa of the sigmoid.

    Returns:
        [N, T] of `fused_NT`'s type; 1 at masked positions.
    """
    agreement_NT = fused_NT.detach().double() * advantage_N.detach().double().sign()[:, None]
    raw_NT = 1.0 + strength * (2.0 * torch.sigmoid(sharpness * agreement_NT) - 1.0)
    raw_NT = torch.where(mask_NT, raw_NT, 1.0).clamp(1.0 / bound, bound)
    return normalise_within_bounds(raw_NT, mask_NT, bound=bound).to(fused_NT.dtype)


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


def teacher_explanation_loss(
    mixture_NTK: Tensor, grain_NTK: Tensor, gap_NT: Tensor, mask_NT: Tensor, group_N: Tensor, *, entropy: float
) -> Tensor:
    """Objective of the grain weights: the fused advantage should explain the teacher's decisions.

        L = -mean(fused(mixture) * target) - entropy * mean H(mixture)
        target = gap, centred within its trajectory, standardised within its group

    Only the mixture gets a gradient. The entropy is a *bonus*: descent raises
    it. The gap is centred because W keeps a trajectory's total: only
    differences inside a trajectory move credit, and a grain that is constant
    there (the outcome) is the neutral choice when no other grain explains anything.
    Source: the article on GEAR, repaired; the centring: ours.

    Args:
        mixture_NTK: grain weights, sum 1 over K; the output of the network in training.
        grain_NTK: standardised grains.
        gap_NT: log teacher - log student at the sampled token.
        mask_NT: bool.
        group_N: int64.
        entropy: coefficient of the bonus.

    Returns:
        A scalar.
    """
    centred_NT = gap_NT.detach() - masked_mean(gap_NT.detach(), mask_NT, dim=1)[:, None]
    target_NT = standardise_by_group(centred_NT, mask_NT, group_N)
    fused_NT = fuse(grain_NTK.detach(), mixture_NTK)
    bonus_NT = -(mixture_NTK * mixture_NTK.clamp(min=1e-12).log()).sum(-1)
    return -masked_mean(fused_NT * target_NT, mask_NT) - entropy * masked_mean(bonus_NT, mask_NT)
