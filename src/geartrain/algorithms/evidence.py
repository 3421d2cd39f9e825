"""What credit methods may look at. Nothing here carries a gradient.

Legend: N trajectories, T positions, S turns of all trajectories.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Settings = Mapping[str, float | bool | str]
"""Of the method, complete; see `geartrain.methods`."""


@dataclass(frozen=True)
class TeacherView:
    """What a teacher makes of the sampled tokens; 0 at positions that it did not score."""

    logprob_NT: Tensor
    """Of the sampled ids, at the sampling temperature."""
    entropy_NT: Tensor | None = None
    """Nats, of the teacher's own distribution."""
    divergence_NT: Tensor | None = None
    """Student's distribution against the teacher's, see `saliency`."""
    masked_NT: Tensor | None = None
    """bool; tokens of values that are masked in what the teacher reads: that it would say otherwise there is the mask's
    doing, not the student's fault. None means none."""
    scored_N: Tensor | None = None
    """bool; False where the teacher had nothing to add, or no room for it. None means all True."""


@dataclass(frozen=True)
class Evidence:
    """Signals of one iteration, aligned with its tokens."""

    advantage_N: Tensor
    """Verified group advantage."""
    group_N: Tensor
    """int64 in [0, groups)."""
    sibling_N: Tensor
    """int64, number of the trajectory within its task's attempts."""
    mask_NT: Tensor
    """bool, trained positions."""
    step_NT: Tensor
    """Return of the turn that a token belongs to, from step rewards; time passes by turns."""
    token_NT: Tensor
    """Return of the token itself, from token rewards; time passes by sampled tokens."""
    turn_NT: Tensor
    """int64: number of the token's turn, counted through all trajectories; -1 elsewhere."""
    logprob_NT: Tensor
    """Behaviour log-prob of the sampled id."""
    entropy_NT: Tensor
    """Nats, of the distribution that a token was drawn from."""
    progress_NT: Tensor
    """Share of the task's sub-goals reached before the token's turn."""
    reward_N: Tensor
    """Total reward of the trajectory, not compared with its siblings."""
    row_S: Tensor
    """int64: trajectory of each turn; turns are in order."""
    state_S: Sequence[Hashable] = field(default_factory=tuple)
    """Exact state before each turn, see `sibling.state_keys`."""
    step_reward_S: Tensor | None = None
    """Step rewards of the turns, the outcome not included."""
    value_S: Tensor | None = None
    """Predicted total reward from each turn on, by a value head."""
    critic_NT: Tensor | None = None
    """Sibling critic's score of the turn that a token belongs to."""
    critic_reliability: float = 1.0
    """Correlation of the critic with its labels on held-out tasks: 0 silences it."""
    granularity_NT: Tensor | None = None
    """g in [0, 1] from a learned encoder."""
    teacher: TeacherView | None = None
    run_share: float = 1.0
    """Share of the run that is over."""

    def spread(self, value_S: Tensor) -> Tensor:
        """Give every trained token its turn's value [S] or [S, K]; 0 elsewhere."""
        return spread(value_S, self.turn_NT)

    def broadcast(self, value_N: Tensor) -> Tensor:
        """Give every position its trajectory's value, [N, T]."""
        return value_N[:, None].expand(self.mask_NT.shape)


def spread(value_S: Tensor, turn_NT: Tensor) -> Tensor:
    """Give every sampled id its turn's value [S] or [S, K]; 0 where `turn_NT` is -1. Source: ours."""
    chosen = value_S[turn_NT.clamp(min=0)]
    inside = (turn_NT >= 0).reshape(*turn_NT.shape, *[1] * (chosen.dim() - 2))
    return torch.where(inside, chosen, 0.0)
