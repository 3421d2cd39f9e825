"""The verified advantage that carries the sign: of the trajectory, or of its turns.

Most methods give every token its trajectory's advantage and leave *where* to a
weight. PPO and GiGPO compare turns, so their advantage is one per turn.

Legend: N trajectories, T positions, S turns of all trajectories.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from geartrain.algorithms.evidence import Evidence, Settings
from geartrain.algorithms.masked import keep
from geartrain.algorithms.returns import generalised_advantage, turn_returns

CarrierFn = Callable[[Evidence, Settings], Tensor]
"""Advantage of every token, [N, T]; anything at masked positions."""
EPSILON = 1e-6


def of_trajectory(evidence: Evidence, settings: Settings) -> Tensor:
    """Every token has its trajectory's advantage. Source: GRPO, arXiv:2402.03300."""
    return evidence.broadcast(evidence.advantage_N)


def of_turns_by_value(evidence: Evidence, settings: Settings) -> Tensor:
    """Generalised advantage per turn, standardised over the batch's trained tokens. Source: PPO, arXiv:1707.06347.

    Time passes per turn, never per token or observation (rl-faults B22, B23);
    the trajectory's total reward arrives with its last turn.
    """
    assert evidence.value_S is not None, "the recipe needs a value head"
    advantage_S = torch.zeros(len(evidence.row_S))
    for row in range(len(evidence.reward_N)):
        turns = (evidence.row_S == row).nonzero()[:, 0]
        if len(turns):
            rewards = [0.0] * (len(turns) - 1) + [float(evidence.reward_N[row])]
            advantage_S[turns] = generalised_advantage(
                rewards,
                evidence.value_S[turns].tolist(),
                discount=float(settings["discount"]),
                trace=float(settings["trace"]),
            )
    return _standardised(evidence.spread(advantage_S), evidence.mask_NT)


def of_anchored_turns(evidence: Evidence, settings: Settings) -> Tensor:
    """The trajectory's advantage plus that of the turn among all siblings' turns in the same state.

    Source: GiGPO, arXiv:2505.10978.
    """
    returns_S = _outcome_returns(evidence, discount=float(settings["discount"]))
    group_S = evidence.group_N[evidence.row_S].tolist()
    anchor_S = list(zip(group_S, evidence.state_S, strict=True))
    step_S = anchored_advantage(returns_S, anchor_S)
    return evidence.broadcast(evidence.advantage_N) + float(settings["step_weight"]) * evidence.spread(step_S)


def anchored_advantage(return_S: Tensor, anchor_S: Sequence[Hashable]) -> Tensor:
    """Standardise each turn's return among the turns of its anchor; alone, or all alike, is 0. -> float32 [S].

    Source: GiGPO, arXiv:2505.10978, its step-level groups.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, anchor in enumerate(anchor_S):
        members[anchor].append(index)
    advantage_S = torch.zeros(len(return_S), dtype=torch.float64)
    for indices in members.values():
        values = return_S[indices].double()
        if len(set(values.tolist())) > 1:
            advantage_S[indices] = (values - values.mean()) / (values.std() + EPSILON)
    return advantage_S.float()


def _outcome_returns(evidence: Evidence, *, discount: float) -> Tensor:
    """Return the discounted return of every turn: step rewards, and the total reward with the last turn."""
    step_S = torch.zeros(len(evidence.row_S)) if evidence.step_reward_S is None else evidence.step_reward_S
    returns_S = torch.zeros(len(evidence.row_S))
    for row in range(len(evidence.reward_N)):
        turns = (evidence.row_S == row).nonzero()[:, 0]
        if len(turns):
            rewards = step_S[turns].tolist()
            rewards[-1] += float(evidence.reward_N[row])
            returns_S[turns] = turn_returns(rewards, discount=discount)
    return returns_S


def _standardised(value_NT: Tensor, mask_NT: Tensor) -> Tensor:
    if not bool(mask_NT.any()):
        return value_NT
    kept = value_NT[mask_NT].double()
    scale = kept.std(correction=0)
    flat = float(scale) <= EPSILON * (float(kept.mean().abs()) + float(scale))
    centred_NT = (value_NT.double() - kept.mean()) / (1.0 if flat else scale)
    return keep(torch.zeros_like(centred_NT) if flat else centred_NT, mask_NT).to(value_NT.dtype)
