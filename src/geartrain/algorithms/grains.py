"""Grains: one advantage per token from each source of credit, comparable because standardised over the group.

Legend: N trajectories, T positions.
"""

from collections.abc import Callable

from torch import Tensor

from geartrain.algorithms.evidence import Evidence
from geartrain.algorithms.masked import standardise_by_group

GrainFn = Callable[[Evidence], Tensor]
"""One grain's advantage [N, T]; 0 at masked positions."""


def global_grain(evidence: Evidence) -> Tensor:
    """Outcome of the whole trajectory. Source: the article on GEAR, see `granularity`."""
    return standardise_by_group(evidence.broadcast(evidence.advantage_N), evidence.mask_NT, evidence.group_N)


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
