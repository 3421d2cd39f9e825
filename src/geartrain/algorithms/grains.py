"""Grains: one advantage per token from each source of credit, comparable because standardised over the group.

Legend: N trajectories, T positions.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from geartrain.algorithms.evidence import Evidence
from geartrain.algorithms.masked import standardise_by_group


def _full(evidence: Evidence) -> float:
    return 1.0


@dataclass(frozen=True)
class Grain:
    """A source of credit, and the advantage that is made of it."""

    raw: Callable[[Evidence], Tensor]
    """What it says of each token in units of its own, [N, T]."""
    trust: Callable[[Evidence], float] = _full
    """By which its advantage is shrunk, in [0, 1]."""

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return the grain's advantage [N, T]; 0 at masked positions."""
        return standardise_by_group(self.raw(evidence), evidence.mask_NT, evidence.group_N) * self.trust(evidence)


def _critic(evidence: Evidence) -> Tensor:
    assert evidence.critic_NT is not None, "the recipe needs the critic's scores"
    return evidence.critic_NT


global_grain = Grain(lambda evidence: evidence.broadcast(evidence.advantage_N))
"""Outcome of the whole trajectory. Source: the article on GEAR, see `granularity`."""
step_grain = Grain(lambda evidence: evidence.step_NT)
"""Rewards of the environment, per turn. Source: the article on GEAR, see `granularity`."""
token_grain = Grain(lambda evidence: evidence.token_NT)
"""Rewards of single tokens: where a rejected call goes wrong. Source: the article on GEAR, see `granularity`."""
critic_grain = Grain(_critic, lambda evidence: evidence.critic_reliability)
"""Sibling critic, shrunk to the best linear guess of its label.

Source: the article on SGCD, see `sibling`; the shrinkage: ours.
"""
