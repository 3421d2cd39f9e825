"""How each credit method turns evidence into a raw weight; `recipe` bounds it.

Legend: N trajectories, T positions, K grains.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from geartrain.algorithms.evidence import Evidence, Settings, TeacherView
from geartrain.algorithms.granularity import agreement, fuse
from geartrain.algorithms.past_self import (
    entropy_granularity,
    past_self_weight,
    progress_granularity,
    turn_log_ratio,
)
from geartrain.algorithms.privileged import privileged_weight, rescaled_gap
from geartrain.algorithms.saliency import saliency
from geartrain.algorithms.schedule import blended
from geartrain.algorithms.segments import open_segments, share_onset

WeighFn = Callable[[Evidence, Tensor, Tensor | None, Tensor | None, Settings], Tensor]
"""(evidence, carrier [N, T], grains [N, T, K], mixture [N, T, K], settings) -> raw weight [N, T], positive."""


def by_agreement(
    evidence: Evidence, carrier_NT: Tensor, grain_NTK: Tensor | None, mixture_NTK: Tensor | None, settings: Settings
) -> Tensor:
    """Weigh by the agreement of the mixed grains with the outcome. Source: see `granularity`."""
    assert grain_NTK is not None, "the recipe has no grains"
    if mixture_NTK is None:
        mixture_NTK = torch.full_like(grain_NTK, 1.0 / grain_NTK.shape[-1])
    fused_NT = fuse(grain_NTK, mixture_NTK.detach())
    return agreement(fused_NT, carrier_NT, strength=float(settings["strength"]))


def by_past_self(
    evidence: Evidence, carrier_NT: Tensor, grain_NTK: Tensor | None, mixture_NTK: Tensor | None, settings: Settings
) -> Tensor:
    """Weigh by the distance to a snapshot, blended in after a warm-up. Source: see `past_self`."""
    teacher = _teacher(evidence)
    raw_NT = past_self_weight(
        turn_log_ratio(evidence.logprob_NT, teacher.logprob_NT, evidence.turn_NT),
        carrier_NT,
        granularity_of(evidence, str(settings["granularity"])),
        temperature=float(settings["temperature"]),
        strength=float(settings["kappa"]),
        scale=float(settings["scale"]),
        dead_zone=float(settings["dead_zone"]),
        dampen=settings["failures"] == "dampen",
    )
    share = blended(evidence.run_share, start=float(settings["warm_share"]), length=float(settings["blend_share"]))
    return 1.0 + share * (raw_NT - 1.0)


def by_privilege(
    evidence: Evidence, carrier_NT: Tensor, grain_NTK: Tensor | None, mixture_NTK: Tensor | None, settings: Settings
) -> Tensor:
    """Weigh by the gap to the policy that knows the answer. Source: see `privileged`."""
    teacher = _teacher(evidence)
    scored_NT = evidence.mask_NT & _scored(teacher, evidence)
    gap_NT = rescaled_gap(evidence.logprob_NT, teacher.logprob_NT, scored_NT, quantile=float(settings["quantile"]))
    shared_NT = _shared(gap_NT, evidence.entropy_NT, evidence, settings)
    raw_NT = privileged_weight(shared_NT, carrier_NT, alpha=float(settings["alpha"]))
    return torch.where(scored_NT, raw_NT, 1.0)


def by_siblings(
    evidence: Evidence, carrier_NT: Tensor, grain_NTK: Tensor | None, mixture_NTK: Tensor | None, settings: Settings
) -> Tensor:
    """Weigh by the divergence from the policy that has read its siblings. Source: see `saliency`."""
    teacher = _teacher(evidence)
    assert teacher.divergence_NT is not None, "the recipe needs a divergence"
    assert teacher.entropy_NT is not None, "the recipe needs the teacher's entropy"
    scored_NT = evidence.mask_NT & _scored(teacher, evidence)
    own_NT = torch.zeros_like(scored_NT) if teacher.masked_NT is None else teacher.masked_NT
    salient_NT = saliency(teacher.divergence_NT, scored_NT & ~own_NT)
    salient_NT = _shared(salient_NT, teacher.entropy_NT, evidence, settings).masked_fill(own_NT, 0.0)
    return torch.where(scored_NT, 1.0 + float(settings["gamma"]) * salient_NT, 1.0)


def _shared(signal_NT: Tensor, entropy_NT: Tensor, evidence: Evidence, settings: Settings) -> Tensor:
    """Share a signal over segments, as `boundaries` says."""
    if settings["boundaries"] == "none":
        return signal_NT
    calls = settings["boundaries"] == "calls"
    opened_NT = open_segments(
        signal_NT,
        torch.zeros_like(entropy_NT) if calls else entropy_NT,  # no entropy rises: segments end with their turn
        evidence.turn_NT,
        onset=-1.0 if calls else float(settings["onset"]),
        growth=float(settings["growth"]),
        floor=float(settings["entropy_floor"]),
        longest=signal_NT.shape[1] if calls else int(settings["longest"]),
    )
    return share_onset(signal_NT, opened_NT)


def granularity_of(evidence: Evidence, source: str) -> Tensor:
    """Return g in [0, 1] at every token, [N, T]: 1 is coarsest (planning), 0 finest; all 0 where `source` is "none".

    Source: an article on GEAR, see `past_self`.
    """
    if source == "progress":
        return progress_granularity(evidence.progress_NT)
    if source == "entropy":
        return entropy_granularity(evidence.entropy_NT, evidence.turn_NT)
    if source == "learned":
        assert evidence.granularity_NT is not None, "the recipe needs a granularity encoder"
        return evidence.granularity_NT
    return torch.zeros_like(evidence.logprob_NT)


def _teacher(evidence: Evidence) -> TeacherView:
    assert evidence.teacher is not None, "the recipe needs a teacher"
    return evidence.teacher


def _scored(teacher: TeacherView, evidence: Evidence) -> Tensor:
    if teacher.scored_N is None:
        return torch.ones_like(evidence.mask_NT)
    return evidence.broadcast(teacher.scored_N)
