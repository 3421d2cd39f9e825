"""SGCD-P: weigh up where a teacher that has seen the siblings would act differently.

The divergence at a token is taken over a small support: the teacher's top K
tokens, the observed token, and one bucket for all the rest. It is rescaled
within the trajectory, its spikes are extended over segments, and

    raw = 1 + strength * saliency        (bounded above by the caller: 1 <= W <= c)

The teacher only says *where*; the verified advantage says which way.

Source: SGCD, arXiv:2606.12634, which leaves the rescaling, the spike threshold
and K open: those are ours.

Legend: N trajectories, T positions, P scored positions, K support, V vocabulary.
"""

import torch
from torch import Tensor

from geartrain.algorithms.masked import keep

SMALLEST_PEAK = 1e-3
"""Nats; a trajectory that diverges nowhere by more than this has no salient token."""
_SMALLEST_MASS = 1e-12


def with_observed(top: Tensor, observed: Tensor) -> Tensor:
    """Add the observed id to the top ones, or -1 if it is among them (counts nowhere). [..., K] -> [..., K + 1]."""
    known = (top == observed[..., None]).any(-1)
    return torch.cat([top, torch.where(known, -1, observed)[..., None]], dim=-1)


def with_tail(picked: Tensor, support: Tensor) -> Tensor:
    """Add the bucket of all that is left to the log-probs of a support. Shapes [..., K], [..., K] -> [..., K + 1]."""
    picked = torch.where(support >= 0, picked, -torch.inf)
    tail = (1.0 - picked.exp().sum(-1, keepdim=True)).clamp(min=_SMALLEST_MASS).log()
    return torch.cat([picked, tail], dim=-1)


def saliency(divergence_NT: Tensor, mask_NT: Tensor) -> Tensor:
    """Return s in [0, 1]: the divergence over its largest value in the trajectory; 0 where it diverges nowhere."""
    kept_NT = keep(divergence_NT.detach(), mask_NT).clamp(min=0.0)
    peak_N1 = kept_NT.amax(1, keepdim=True)
    return torch.where(peak_N1 > SMALLEST_PEAK, kept_NT / peak_N1.clamp(min=SMALLEST_PEAK), 0.0)
