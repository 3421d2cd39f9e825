"""Which functions make up an algorithm: one row per variant; the loop does not know which row it runs.

A new variant is one function and one row of `RECIPES`; the invariants of
`tests/unit/algorithms/test_recipe.py` then apply to it.

Legend: N trajectories, T positions, K grains.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from geartrain.algorithms.advantage import GroupAdvantage, group_relative, leave_one_out
from geartrain.algorithms.granularity import agreement_weight, fuse
from geartrain.algorithms.masked import standardise_by_group


@dataclass(frozen=True)
class Evidence:
    """What a credit method may look at; nothing here carries a gradient."""

    advantage_N: Tensor
    """Verified group advantage."""
    group_N: Tensor
    """int64 in [0, groups)."""
    mask_NT: Tensor
    """bool, trained positions."""
    step_NT: Tensor
    """Return of the turn that a token belongs to."""
    token_NT: Tensor
    """Reward of the token itself."""
    critic_NT: Tensor | None = None
    """Sibling critic's score of the turn that a token belongs to."""
    critic_reliability: float = 1.0
    """Correlation of the critic with its labels on held-out tasks: 0 silences it."""


AdvantageFn = Callable[[Sequence[float | None], Sequence[Hashable]], GroupAdvantage]
GrainFn = Callable[[Evidence], Tensor]
"""One grain's advantage [N, T], comparable across grains: standardised over the group."""
DenominatorFn = Callable[[int, int, int], float]
"""(trained tokens, trajectories, longest allowed trajectory) of an optimiser step -> denominator of its loss."""


def without_scale(rewards_N: Sequence[float | None], groups_N: Sequence[Hashable]) -> GroupAdvantage:
    """Reward minus the group's mean. Source: Dr. GRPO, arXiv:2503.20783."""
    return group_relative(rewards_N, groups_N, scale_by_std=False)


def by_tokens(tokens: int, rows: int, limit: int) -> float:
    """Every trained token counts the same, whatever the length of its row. Source: DAPO, arXiv:2503.14476."""
    return float(tokens)


def by_constant(tokens: int, rows: int, limit: int) -> float:
    """A constant per row, so that no batch's lengths rescale it. Source: Dr. GRPO, arXiv:2503.20783."""
    return float(rows * limit)


def global_grain(evidence: Evidence) -> Tensor:
    """Outcome of the whole trajectory. Source: the article on GEAR, see `granularity`."""
    broadcast_NT = evidence.advantage_N[:, None].expand(evidence.mask_NT.shape)
    return standardise_by_group(broadcast_NT, evidence.mask_NT, evidence.group_N)


def step_grain(evidence: Evidence) -> Tensor:
    """Rewards of the environment, per turn. Source: the article on GEAR, see `granularity`."""
    return standardise_by_group(evidence.step_NT, evidence.mask_NT, evidence.group_N)


def token_grain(evidence: Evidence) -> Tensor:
    """Rewards of single tokens: where a rejected call goes wrong. Source: the article on GEAR, see `granularity`."""
    return standardise_by_group(evidence.token_NT, evidence.mask_NT, evidence.group_N)


def critic_grain(evidence: Evidence) -> Tensor:
    """Sibling critic, shrunk to the best linear guess of its label.

    Source: the article on SGCD, see `sibling`; the shrinkage: ours.
    """
    assert evidence.critic_NT is not None, "the recipe needs the critic's scores"
    score_NT = standardise_by_group(evidence.critic_NT, evidence.mask_NT, evidence.group_N)
    return score_NT * evidence.critic_reliability


@dataclass(frozen=True)
class Recipe:
    """One algorithm."""

    advantage: AdvantageFn
    denominator: DenominatorFn
    grains: Mapping[str, GrainFn] = field(default_factory=dict)
    """Name -> grain; none means W = 1, one needs no mixture, several are mixed by the grain network."""

    @property
    def needs_critic(self) -> bool:
        """Whether the sibling critic must score the turns."""
        return critic_grain in self.grains.values()

    @property
    def needs_mixture(self) -> bool:
        """Whether there is a mixture to learn, and so a teacher to explain."""
        return len(self.grains) > 1


RECIPES: Mapping[str, Recipe] = {
    "grpo": Recipe(group_relative, by_tokens),
    "dr_grpo": Recipe(without_scale, by_constant),
    "rloo": Recipe(leave_one_out, by_tokens),
    "sgcd_s": Recipe(group_relative, by_tokens, {"step": critic_grain}),
    "gear_a": Recipe(group_relative, by_tokens, {"global": global_grain, "step": step_grain, "token": token_grain}),
    "gear_a_sgcd": Recipe(
        group_relative, by_tokens, {"global": global_grain, "step": critic_grain, "token": token_grain}
    ),
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
    recipe: Recipe, evidence: Evidence, mixture_NTK: Tensor | None = None, *, strength: float, bound: float
) -> Credit:
    """Weigh the verified advantage; the one place where A and W meet. Source: ours.

    Args:
        recipe: a row of `RECIPES`.
        evidence: of one iteration.
        mixture_NTK: grain weights, sum 1 over K; None mixes evenly. Detached here.
        strength: gamma of `agreement_weight`.
        bound: c of `agreement_weight`.
    """
    weight_NT = torch.ones(evidence.mask_NT.shape, dtype=evidence.advantage_N.dtype)
    grain_NTK = None
    if recipe.grains:
        grain_NTK = torch.stack([grain(evidence) for grain in recipe.grains.values()], dim=-1)
        if mixture_NTK is None:
            mixture_NTK = torch.full_like(grain_NTK, 1.0 / len(recipe.grains))
        weight_NT = agreement_weight(
            fuse(grain_NTK, mixture_NTK.detach()),
            evidence.advantage_N,
            evidence.mask_NT,
            strength=strength,
            bound=bound,
        )
    advantage_NT = torch.where(evidence.mask_NT, evidence.advantage_N[:, None] * weight_NT, 0.0)
    return Credit(advantage_NT, weight_NT, grain_NTK)
