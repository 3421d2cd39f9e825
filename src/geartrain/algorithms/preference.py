"""Preference learning as pure functions: Bradley-Terry loss, calibration, accuracy.

Legend: P pairs. A difference is score(chosen) - score(rejected), in nats.
"""

import math

import torch
from torch import Tensor

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0


def bradley_terry_loss(chosen_P: Tensor, rejected_P: Tensor, margin_P: Tensor | None = None) -> Tensor:
    """Return -log sigmoid(chosen - rejected - margin) per pair, [P].

    Depends on differences only, so a constant added to every score changes
    nothing. Gradient by `chosen`: -sigmoid(-(chosen - rejected - margin)).
    Source: Bradley and Terry 1952; the margin as in Llama 2 (arXiv 2307.09288, eq. 2).
    """
    difference_P = chosen_P - rejected_P
    if margin_P is not None:
        difference_P = difference_P - margin_P
    return torch.nn.functional.softplus(-difference_P)


def pair_accuracy(difference_P: Tensor) -> float:
    """Return the share of pairs ranked right; a tie counts one half (ours). NaN for no pairs."""
    if not len(difference_P):
        return math.nan
    return float(((difference_P > 0).double() + 0.5 * (difference_P == 0).double()).mean())


def calibration_error(difference_P: Tensor, *, bins: int = 10) -> float:
    """Return the expected calibration error of sigmoid(|difference|) as the stated probability of being right.

    Confidences lie in [0.5, 1] and are put into `bins` bins of equal width;
    the error is the mean over pairs of |accuracy - mean confidence| of their
    bin. NaN for no pairs. Source: Guo et al., arXiv 1706.04599.
    """
    if not len(difference_P):
        return math.nan
    difference_P = difference_P.double()
    confidence_P = torch.sigmoid(difference_P.abs())
    right_P = (difference_P > 0).double() + 0.5 * (difference_P == 0).double()
    bin_P = ((confidence_P - 0.5) * 2 * bins).long().clamp(0, bins - 1)
    gap_B = torch.zeros(bins, dtype=torch.double).index_add(0, bin_P, right_P - confidence_P)
    return float(gap_B.abs().sum() / len(difference_P))


def fit_temperature(difference_P: Tensor) -> float:
    """Return the T > 0 that makes sigmoid(difference / T) fit the pairs best, within [0.05, 20]; 1 for no pairs.

    Minimises the cross-entropy against (P + 1) / (P + 2) rather than 1, as
    Platt does, so that few pairs, all ranked right, do not ask for certainty.
    The loss is convex in 1 / T; found by bisection on its slope. Source:
    temperature scaling, arXiv 1706.04599; Platt 1999 for the targets.
    """
    count = len(difference_P)
    if count == 0:
        return 1.0
    difference_P = difference_P.double()
    target = (count + 1) / (count + 2)

    def slope(inverse: float) -> float:
        return float((difference_P * (torch.sigmoid(difference_P * inverse) - target)).mean())

    low, high = 1.0 / MAX_TEMPERATURE, 1.0 / MIN_TEMPERATURE
    if slope(low) >= 0:  # more wrong than right: the least confidence is best
        return MAX_TEMPERATURE
    if slope(high) <= 0:
        return MIN_TEMPERATURE
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return 2.0 / (low + high)
