"""What the credit of an iteration looks like, in a few numbers for the history.

Legend: N trajectories, T positions, S turns of all trajectories.
"""

import numpy as np
import torch
from torch import Tensor

from geartrain.algorithms.credit_scores import rank_correlation
from geartrain.algorithms.evidence import Evidence
from geartrain.algorithms.masked import masked_mean
from geartrain.algorithms.recipe import Credit
from geartrain.algorithms.returns import later_returns

DISCOUNT = 0.9
"""Per turn, of the rewards that come later: low looks at the next turn alone, 1 at all that are left."""


def describe_weights(credit: Credit, evidence: Evidence) -> dict[str, float | None]:
    """Return the distribution of W over tokens, and what W and A * W of a turn go with (Spearman, over turns).

    `credit_later`: A * W against the discounted step rewards of the turns that follow. `weight_advantage` and
    `weight_reward`: W against the trajectory's advantage, and against the turn's own step reward. None where there is
    nothing to rank.
    """
    weights = credit.weight_NT.detach()[evidence.mask_NT]  # a leak is refused by `watch`, not tripped over here
    low, middle, high = np.quantile(weights.numpy(), (0.05, 0.5, 0.95)).tolist()
    weight_S, credit_S = (turn_means(value, evidence.turn_NT, len(evidence.row_S)) for value in _both(credit))
    rewards_S = torch.zeros(len(evidence.row_S)) if evidence.step_reward_S is None else evidence.step_reward_S
    spoken_S = turn_means(evidence.mask_NT.float(), evidence.turn_NT, len(evidence.row_S)) > 0

    def goes_with(value_S: Tensor, other_S: Tensor) -> float | None:
        return rank_correlation(value_S[spoken_S].numpy(), other_S[spoken_S].numpy())

    weight_NT = credit.weight_NT.detach().double()
    apart_NT = weight_NT - masked_mean(weight_NT, evidence.mask_NT, dim=1)[:, None]
    return {
        "weight_spread": float(weights.std(correction=0)),
        # from the mean of the own trajectory: what moves credit, and does not just rescale a trajectory
        "weight_spread_within": float(masked_mean(apart_NT.square(), evidence.mask_NT).sqrt()),
        "weight_min": float(weights.min()),
        "weight_max": float(weights.max()),
        "weight_p05": low,
        "weight_median": middle,
        "weight_p95": high,
        "credit_later": goes_with(credit_S, _later(rewards_S, evidence.row_S)),
        "weight_advantage": goes_with(weight_S, evidence.advantage_N[evidence.row_S]),
        "weight_reward": goes_with(weight_S, rewards_S),
    }


def turn_means(value_NT: Tensor, turn_NT: Tensor, turns: int) -> Tensor:
    """Return the mean of a token's value over each turn, [S]; 0 for a turn without a token."""
    inside = turn_NT >= 0
    sums = torch.zeros(turns).index_add(0, turn_NT[inside], value_NT[inside].float())
    return sums / torch.bincount(turn_NT[inside], minlength=turns).clamp(min=1)


def _both(credit: Credit) -> tuple[Tensor, Tensor]:
    return credit.weight_NT.detach(), credit.advantage_NT.detach()


def _later(rewards_S: Tensor, row_S: Tensor) -> Tensor:
    parts = [rewards_S[row_S == row].tolist() for row in range(int(row_S.max()) + 1)]
    return torch.cat([later_returns(part, discount=DISCOUNT) for part in parts])
