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


def fuse(grain_NTK: Tensor, mixture_NTK: Tensor) -> Tensor:
    """Return the fused advantage: the grains weighted by a mixture that sums to 1 over K. -> [N, T]."""
    return (grain_NTK * mixture_NTK).sum(-1)


def agreement(fused_NT: Tensor, advantage_NT: Tensor, *, strength: float, sharpness: float = 1.0) -> Tensor:
    """Return the raw weight 1 + strength (2 sigmoid(sharpness * fused * sign(A)) - 1), [N, T].

    Args:
        fused_NT: fused, standardised grains.
        advantage_NT: verified advantage at every token; 0 gives 1.
        strength: gamma in [0, 1]; 0 gives 1 exactly, which is GRPO bit for bit.
        sharpness: kappa of the sigmoid.
    """
    agreement_NT = fused_NT.detach().double() * advantage_NT.detach().double().sign()
    return 1.0 + strength * (2.0 * torch.sigmoid(sharpness * agreement_NT) - 1.0)


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
    bonus_NT = mixture_entropy(mixture_NTK)
    return -masked_mean(fused_NT * target_NT, mask_NT) - entropy * masked_mean(bonus_NT, mask_NT)


def outcome_alignment_loss(
    mixture_NTK: Tensor, grain_NTK: Tensor, advantage_NT: Tensor, mask_NT: Tensor, *, entropy: float
) -> Tensor:
    """Objective of the grain weights: the fused advantage should go with the verified outcome.

        L = -mean(fused(mixture) * A) - entropy * mean H(mixture)

    The outcome's own grain is A itself, so this prefers it wherever it is among
    the grains; call it with trajectories that the mixture has not weighed.
    Source: ours (first-order meta-gradient), for the article on GEAR. Arguments as `teacher_explanation_loss`.
    """
    fused_NT = fuse(grain_NTK.detach(), mixture_NTK)
    return -masked_mean(fused_NT * advantage_NT.detach(), mask_NT) - entropy * masked_mean(
        mixture_entropy(mixture_NTK), mask_NT
    )


def outcome_regression_loss(
    mixture_NTK: Tensor, grain_NTK: Tensor, advantage_NT: Tensor, mask_NT: Tensor, *, entropy: float
) -> Tensor:
    """Objective of the grain weights: mean squared error of the fused advantage to the verified one, less entropy.

    Source: ours, for the article on GEAR. Arguments as `outcome_alignment_loss`.
    """
    fused_NT = fuse(grain_NTK.detach(), mixture_NTK)
    error_NT = (fused_NT - advantage_NT.detach()).square()
    return masked_mean(error_NT, mask_NT) - entropy * masked_mean(mixture_entropy(mixture_NTK), mask_NT)


def mixture_entropy(mixture_NTK: Tensor) -> Tensor:
    """Return the entropy of the grain weights in nats, [N, T]. Source: ours."""
    return -(mixture_NTK * mixture_NTK.clamp(min=1e-12).log()).sum(-1)


def pull(confidence_NT: Tensor, fused_NT: Tensor, *, confidence_power: float, advantage_power: float) -> Tensor:
    """Return m = confidence^a (2 sigmoid|A| - 1)^b in [0, 1]: how hard the teacher pulls at each token.

    The article uses sigmoid|A| alone, which is never below 1/2: its pull could not let go (a = 0 there).
    Source: the article on GEAR, repaired by us.

    Args:
        confidence_NT: largest probability of the teacher's distribution.
        fused_NT: fused advantage.
        confidence_power: a; 0 trusts every token alike.
        advantage_power: b; 0 pulls everywhere.
    """
    size_NT = 2.0 * torch.sigmoid(fused_NT.detach().abs()) - 1.0
    return confidence_NT.detach().pow(confidence_power) * size_NT.pow(advantage_power)
