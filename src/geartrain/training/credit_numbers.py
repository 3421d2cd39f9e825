"""What the credit of an iteration looks like, in a few numbers for the history.

Legend: N trajectories, T positions, S turns of all trajectories.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from geartrain.algorithms.credit_scores import rank_correlation
from geartrain.algorithms.evidence import Evidence, Settings
from geartrain.algorithms.grains import Grain
from geartrain.algorithms.masked import masked_mean
from geartrain.algorithms.recipe import Credit
from geartrain.algorithms.returns import later_returns
from geartrain.algorithms.weighing import granularity_of

DISCOUNT = 0.9
"""Per turn, of the rewards that come later: low looks at the next turn alone, 1 at all that are left."""


def describe_weights(credit: Credit, evidence: Evidence) -> dict[str, float | None]:
    """Return the distribution of W over tokens, and what W and A * W of a turn go with (Spearman, over turns).

    `credit_later`: A * W against the discounted step rewards of the turns that follow. `weight_advantage` and
    `weight_reward`: W against the trajectory's advantage, and against the turn's own step reward. With a teacher that
    weighs also `weight_ratio_better` and `weight_ratio_worse`: W against the ratio to it (`describe_ratio`), where the
    advantage is above 0, and below. None where there is nothing to rank.
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
        **_teacher(weight_S, evidence),
    }


def describe_ratio(log_ratio_NT: Tensor, evidence: Evidence, scored_N: Tensor | None = None) -> dict[str, float | None]:
    """Return mean and standard deviation over turns of the policy's probability over its teacher's.

    A turn's ratio is exp of the mean log ratio of its tokens: a product would grow with the length. 1 is no difference;
    a spread below 0.1 leaves a method nothing to weigh by (GEAR-94).

    Args:
        log_ratio_NT: log policy - log teacher at each sampled id.
        evidence: of the same trajectories.
        scored_N: bool, trajectories that the teacher has scored; None: all.
    """
    return _describe_turns(_turn_ratios(log_ratio_NT, evidence, scored_N)[0])


def _describe_turns(log_ratio_P: Tensor) -> dict[str, float | None]:
    if not len(log_ratio_P):
        return {"teacher_ratio": None, "teacher_ratio_spread": None}
    ratio_P = log_ratio_P.double().exp()
    return {"teacher_ratio": float(ratio_P.mean()), "teacher_ratio_spread": float(ratio_P.std(correction=0))}


def describe_grains(grains: Mapping[str, Grain], evidence: Evidence) -> dict[str, float]:
    """Return mean and variance over trained tokens of what each grain says before it is standardised (GEAR-44)."""
    found: dict[str, float] = {}
    for name, grain in grains.items():
        raw = grain.raw(evidence)[evidence.mask_NT].double()
        found |= {f"raw_{name}_mean": float(raw.mean()), f"raw_{name}_variance": float(raw.var(correction=0))}
    return found


def describe_mixture(mixture_SK: Tensor) -> dict[str, float]:
    """Return how far the grains' weights are from even, root mean square over turns and grains; 0 is even."""
    return {"mixture_spread": float((mixture_SK - 1.0 / mixture_SK.shape[1]).square().mean().sqrt())}


def describe_granularity(evidence: Evidence, settings: Settings) -> dict[str, float]:
    """Return mean and standard deviation over trained tokens of g, 1 coarsest; nothing of a method without."""
    source = str(settings.get("granularity", "none"))
    if source == "none":
        return {}
    coarse = granularity_of(evidence, source)[evidence.mask_NT]
    return {"granularity": float(coarse.mean()), "granularity_spread": float(coarse.std(correction=0))}


def _teacher(weight_S: Tensor, evidence: Evidence) -> dict[str, float | None]:
    if evidence.teacher is None:
        return {}
    scored_N, log_ratio_NT = evidence.teacher.scored_N, evidence.logprob_NT - evidence.teacher.logprob_NT
    log_ratio_P, where_S = _turn_ratios(log_ratio_NT, evidence, scored_N)
    advantage_P, weight_P = evidence.advantage_N[evidence.row_S][where_S], weight_S[where_S]
    ranked = {
        f"weight_ratio_{name}": rank_correlation(weight_P[side_P].numpy(), log_ratio_P[side_P].numpy())
        for name, side_P in (("better", advantage_P > 0), ("worse", advantage_P < 0))
    }
    return {**ranked, **_describe_turns(log_ratio_P)}


def _turn_ratios(log_ratio_NT: Tensor, evidence: Evidence, scored_N: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mean log ratio of every turn that was scored, and which turns these are."""
    where_NT = evidence.mask_NT if scored_N is None else evidence.mask_NT & evidence.broadcast(scored_N)
    turn_NT = torch.where(where_NT, evidence.turn_NT, -1)
    where_S = turn_means(where_NT.float(), turn_NT, len(evidence.row_S)) > 0
    return turn_means(log_ratio_NT, turn_NT, len(evidence.row_S))[where_S], where_S


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
