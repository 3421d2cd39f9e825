"""Which functions make up an algorithm: one row per variant; the loop does not know which row it runs.

A new variant is one function and one row of `RECIPES`, with its settings in
`geartrain.methods.METHODS`; the invariants of `tests/unit/algorithms/test_recipe.py`
then apply to it.

Legend: N trajectories, T positions, K grains.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from geartrain.algorithms.advantage import GroupAdvantage, absolute, group_relative, leave_one_out, without_scale
from geartrain.algorithms.carrier import CarrierFn, of_anchored_turns, of_trajectory, of_turns_by_value
from geartrain.algorithms.evidence import Evidence, Settings
from geartrain.algorithms.grains import Grain, critic_grain, global_grain, step_grain, token_grain
from geartrain.algorithms.weighing import WeighFn, by_agreement, by_past_self, by_privilege, by_siblings
from geartrain.algorithms.weights import bounded_weight

AdvantageFn = Callable[[Sequence[float | None], Sequence[Hashable]], GroupAdvantage]
DenominatorFn = Callable[[int, int, int], float]
"""(trained tokens, trajectories, longest allowed trajectory) of an optimiser step -> denominator of its loss."""
Teacher = Literal["none", "past_self", "privileged", "siblings"]
"""Who is asked about the sampled tokens: nobody; weights that the policy had; the policy itself with the answer, or
with a summary of its siblings, in its context."""


def by_tokens(tokens: int, rows: int, limit: int) -> float:
    """Every trained token counts the same, whatever the length of its row. Source: DAPO, arXiv:2503.14476."""
    return float(tokens)


def by_constant(tokens: int, rows: int, limit: int) -> float:
    """A constant per row, so that no batch's lengths rescale it. Source: Dr. GRPO, arXiv:2503.20783."""
    return float(rows * limit)


def by_rows(tokens: int, rows: int, limit: int) -> float:
    """Every row counts the same, whatever its length; a fully masked row counts too, with a loss of 0.

    With `masked.row_share` as the tokens' weight: the mean of the rows' means. Without: the mean of their sums.
    Source: GRPO, arXiv:2402.03300.
    """
    return float(rows)


def _symmetric(settings: Settings) -> tuple[float, float]:
    return 1.0 / float(settings["bound"]), float(settings["bound"])


def _upwards(settings: Settings) -> tuple[float, float]:
    return 1.0, float(settings["bound"])


def _around_one(settings: Settings) -> tuple[float, float]:
    return 1.0 - 0.5 * float(settings["alpha"]), 1.0 + 0.5 * float(settings["alpha"])


def _omega(settings: Settings) -> tuple[float, float]:
    return float(settings["omega_low"]), float(settings["omega_high"])


@dataclass(frozen=True)
class Recipe:
    """One algorithm."""

    advantage: AdvantageFn = group_relative
    denominator: DenominatorFn = by_tokens
    carrier: CarrierFn = of_trajectory
    weigh: WeighFn | None = None
    """None means W = 1."""
    bounds: Callable[[Settings], tuple[float, float]] = _symmetric
    grains: Mapping[str, Grain] = field(default_factory=dict)
    """Name -> grain, for `weigh`."""
    learns_mixture: bool = False
    """Whether a network mixes the grains; else they are mixed evenly."""
    teacher: Teacher = "none"
    needs_values: bool = False
    """Whether a value head predicts returns."""
    policy_gradient: bool = True
    """False: the loss is the distillation alone."""
    row_mean: bool = False
    """Whether a token counts 1 / (tokens of its trajectory), in every head of the loss; goes with `by_rows`."""

    @property
    def needs_critic(self) -> bool:
        """Whether the sibling critic must score the turns."""
        return critic_grain in self.grains.values()

    @property
    def weighs_by_past_self(self) -> bool:
        """Whether a past self weighs; else, where there is one, it explains the grains and may be matched."""
        return self.weigh is by_past_self


_THREE = {"global": global_grain, "step": step_grain, "token": token_grain}
_PRIVILEGED = Recipe(weigh=by_privilege, bounds=_around_one, teacher="privileged")
_SIBLINGS = Recipe(weigh=by_siblings, bounds=_upwards, teacher="siblings")

RECIPES: Mapping[str, Recipe] = {
    "grpo": Recipe(),
    "grpo_rows": Recipe(denominator=by_rows, row_mean=True),
    "dr_grpo": Recipe(advantage=without_scale, denominator=by_constant),
    "rloo": Recipe(advantage=leave_one_out),
    "dapo": Recipe(),
    "ppo": Recipe(advantage=absolute, carrier=of_turns_by_value, needs_values=True),
    "gigpo": Recipe(carrier=of_anchored_turns),
    "gear_a": Recipe(weigh=by_agreement, grains=_THREE, learns_mixture=True, teacher="past_self"),
    "gear_a_sgcd": Recipe(
        weigh=by_agreement, grains={**_THREE, "step": critic_grain}, learns_mixture=True, teacher="past_self"
    ),
    "gear_b": Recipe(weigh=by_past_self, bounds=_omega, teacher="past_self"),
    "gear_p": _PRIVILEGED,
    "sgcd_s": Recipe(weigh=by_agreement, grains={"step": critic_grain}),
    "sgcd_p": _SIBLINGS,
    "fixed_weights": Recipe(weigh=by_agreement, grains=_THREE),
    "single_grain": Recipe(weigh=by_agreement, grains={"step": step_grain}),
    "gear_p_calls": _PRIVILEGED,
    "gear_p_raw": _PRIVILEGED,
    "sgcd_p_raw": _SIBLINGS,
    "direct_distillation": Recipe(teacher="privileged", policy_gradient=False),
}


@dataclass(frozen=True)
class Credit:
    """What the loss uses, and what the report shows."""

    advantage_NT: Tensor
    """A * W; 0 at masked positions."""
    weight_NT: Tensor
    """W; 1 at masked positions."""
    grain_NTK: Tensor | None
    """Comparable grains, in the recipe's order; None without grains."""


def assign_credit(
    recipe: Recipe, evidence: Evidence, mixture_NTK: Tensor | None = None, *, settings: Settings
) -> Credit:
    """Weigh the verified advantage; the one place where A and W meet. Source: ours.

    Args:
        recipe: a row of `RECIPES`.
        evidence: of one iteration.
        mixture_NTK: grain weights, sum 1 over K; None mixes evenly. Detached here.
        settings: of the method, complete.
    """
    carrier_NT = recipe.carrier(evidence, settings)
    weight_NT = torch.ones(evidence.mask_NT.shape, dtype=carrier_NT.dtype)
    grain_NTK = None
    if recipe.grains:
        grain_NTK = torch.stack([grain(evidence) for grain in recipe.grains.values()], dim=-1)
    if recipe.weigh is not None:
        raw_NT = recipe.weigh(evidence, carrier_NT, grain_NTK, mixture_NTK, settings)
        low, high = recipe.bounds(settings)
        normalise = bool(settings["normalise"])
        weight_NT = bounded_weight(raw_NT, evidence.mask_NT, low=low, high=high, normalise=normalise)
        weight_NT = weight_NT.to(carrier_NT.dtype)
    advantage_NT = torch.where(evidence.mask_NT, carrier_NT * weight_NT, 0.0)
    return Credit(advantage_NT, weight_NT, grain_NTK)
