"""Reward-to-go, counted in actions: observations pass no time and hold no reward.

Source: the article on GEAR, with time per turn (ours) instead of per token (0.99 per
token over 512 tokens leaves 0.6 % of a final reward). For rewards of single tokens
the sampled tokens are the actions.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def turn_returns(rewards_S: Sequence[float], *, discount: float) -> Tensor:
    """Return G_s = r_s + discount * G_{s+1} over the actions of one trajectory, turns as a rule. -> float32 [S]."""
    returns = torch.zeros(len(rewards_S))
    running = 0.0
    for turn in range(len(rewards_S) - 1, -1, -1):
        running = rewards_S[turn] + discount * running
        returns[turn] = running
    return returns


def later_returns(rewards_S: Sequence[float], *, discount: float) -> Tensor:
    """Return discount * G_{s+1}, what follows each turn without its own reward. -> float32 [S]. Source: ours."""
    return turn_returns(rewards_S, discount=discount) - torch.tensor(list(rewards_S), dtype=torch.float32)


def generalised_advantage(
    rewards_S: Sequence[float], values_S: Sequence[float], *, discount: float, trace: float
) -> Tensor:
    """Return A_s = delta_s + discount * trace * A_{s+1}, delta_s = r_s + discount * V_{s+1} - V_s. -> float32 [S].

    Nothing follows the last turn, also where an episode was cut: the limit on turns is part of the task.
    A low `trace` lowers the variance and lets the error of V in; the article on GEAR says the reverse.
    Source: GAE, arXiv:1506.02438.

    Args:
        rewards_S: of the turns of one trajectory.
        values_S: predicted return from each turn on.
        discount: per turn.
        trace: lambda; 1 is the return minus the value, 0 one step of bootstrapping.
    """
    advantage = torch.zeros(len(rewards_S))
    running, following = 0.0, 0.0
    for turn in range(len(rewards_S) - 1, -1, -1):
        delta = rewards_S[turn] + discount * following - values_S[turn]
        running = delta + discount * trace * running
        following = values_S[turn]
        advantage[turn] = running
    return advantage
