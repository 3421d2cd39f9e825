"""GEAR-B: weigh by how far the policy has moved from a snapshot of itself, and by how coarse the state is.

The teacher is a frozen snapshot phi of the policy. l is the mean log ratio of
the policy to the snapshot over a turn's tokens, u is l outside a dead zone:

    h = tanh(u / temperature)            A > 0: moved towards it -> more, away -> less
        -tanh(u / temperature)           A < 0, "dampen"
        |tanh(u / temperature)|          A < 0, "amplify": what moved and failed is punished more
        0                                A = 0
    raw = 1 + kappa (1 + scale (1 - g)) / (1 + scale) h        finer (g -> 0) is stronger

Source: an article on GEAR (another than the one `granularity` repairs), repaired
by us: the article multiplies by A twice, which loses A's sign, lets the factor
fall below 0, and shrinks the step tenfold just after a snapshot; see the tests.

Legend: N trajectories, T positions, S turns of all trajectories.
"""

import torch
from torch import Tensor

SMALLEST = 0.05
"""Of the raw weight: it stays positive whatever kappa."""


def turn_log_ratio(logprob_NT: Tensor, snapshot_NT: Tensor, turn_NT: Tensor) -> Tensor:
    """Return the mean of log policy - log snapshot over the tokens of the own turn, at every token of it.

    A mean, as in GSPO (arXiv:2507.18071): a product over tokens explodes with the length.

    Args:
        logprob_NT: of the policy that sampled.
        snapshot_NT: of the snapshot, same tokens, same temperature.
        turn_NT: int64, number of the turn through all trajectories; -1 elsewhere.

    Returns:
        [N, T]; 0 outside turns.
    """
    return mean_over_turns((logprob_NT - snapshot_NT).detach(), turn_NT)


def mean_over_turns(value_NT: Tensor, turn_NT: Tensor) -> Tensor:
    """Give each token the mean over its turn, 0 outside turns. Shapes [N, T], [N, T] -> [N, T]. Source: ours."""
    inside_NT = turn_NT >= 0
    if not bool(inside_NT.any()):
        return torch.zeros_like(value_NT)
    turn_M, value_M = turn_NT[inside_NT], value_NT[inside_NT]
    turns = int(turn_M.max()) + 1
    total_S = torch.zeros(turns, dtype=value_NT.dtype).index_add(0, turn_M, value_M)
    count_S = torch.bincount(turn_M, minlength=turns).clamp(min=1)
    mean_NT = torch.zeros_like(value_NT)
    mean_NT[inside_NT] = (total_S / count_S)[turn_M]
    return mean_NT


def past_self_weight(
    log_ratio_NT: Tensor,
    advantage_NT: Tensor,
    granularity_NT: Tensor,
    *,
    temperature: float,
    strength: float,
    scale: float,
    dead_zone: float,
    dampen: bool,
) -> Tensor:
    """Return the raw weight, positive, 1 where the policy is its snapshot.

    Args:
        log_ratio_NT: from `turn_log_ratio`.
        advantage_NT: verified advantage at every token.
        granularity_NT: g in [0, 1]; 1 is coarsest (planning), 0 finest.
        temperature: of the tanh, in nats; low makes every turn extreme.
        strength: kappa at g = 0.
        scale: how much weaker coarse states are: by 1 + scale.
        dead_zone: nats; shifts smaller than this are noise and change nothing.
        dampen: how failures are treated, see the module's docstring.
    """
    shift_NT = log_ratio_NT.detach().double()
    outside_NT = shift_NT.sign() * (shift_NT.abs() - dead_zone).clamp(min=0.0)
    squashed_NT = torch.tanh(outside_NT / temperature)
    failed_NT = -squashed_NT if dampen else squashed_NT.abs()
    sign_NT = advantage_NT.detach().sign()
    moved_NT = torch.where(sign_NT > 0, squashed_NT, torch.where(sign_NT < 0, failed_NT, 0.0))
    kappa_NT = strength * (1.0 + scale * (1.0 - granularity_NT.detach().double().clamp(0.0, 1.0))) / (1.0 + scale)
    return (1.0 + kappa_NT * moved_NT).clamp(min=SMALLEST).to(log_ratio_NT.dtype)


def progress_granularity(progress_NT: Tensor) -> Tensor:
    """Return g = 1 - share of the task done: coarse while planning, fine towards the end. Source: the article."""
    return (1.0 - progress_NT).clamp(0.0, 1.0)


def entropy_granularity(entropy_NT: Tensor, turn_NT: Tensor) -> Tensor:
    """Return g as the rank of a turn's mean entropy among all turns of the batch, in [0, 1]: undecided is coarse.

    Ranks, because entropies have no natural upper end. Equal entropies share
    their mean rank; a single turn, or all alike, is 0.5. 0 outside turns.
    Source: the article names the entropy of the last actions; the ranks: ours.
    """
    mean_NT = mean_over_turns(entropy_NT.detach().double(), turn_NT)
    inside_NT = turn_NT >= 0
    rank_NT = torch.zeros_like(mean_NT)
    if not bool(inside_NT.any()):
        return rank_NT.to(entropy_NT.dtype)
    turn_M = turn_NT[inside_NT]
    value_S = torch.zeros(int(turn_M.max()) + 1, dtype=torch.float64)
    value_S[turn_M] = mean_NT[inside_NT]
    present_S = torch.zeros_like(value_S, dtype=torch.bool)
    present_S[turn_M] = True
    value_P = value_S[present_S]
    below_P = torch.searchsorted(value_P.sort().values, value_P, right=False)
    up_to_P = torch.searchsorted(value_P.sort().values, value_P, right=True)
    middle_P = 0.5 * (below_P + up_to_P - 1).double()
    value_S[present_S] = middle_P / (len(value_P) - 1) if len(value_P) > 1 else 0.5
    rank_NT[inside_NT] = value_S[turn_M]
    return rank_NT.to(entropy_NT.dtype)
