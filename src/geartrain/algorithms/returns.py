"""Reward-to-go, counted in turns: observations pass no time and hold no reward.

Source: the article on GEAR, with time per turn (ours) instead of per token (0.99 per
token over 512 tokens leaves 0.6 % of a final reward).
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def turn_returns(rewards_S: Sequence[float], *, discount: float) -> Tensor:
    """Return G_s = r_s + discount * G_{s+1} over the turns of one trajectory. -> float32 [S]."""
    returns = torch.zeros(len(rewards_S))
    running = 0.0
    for turn in range(len(rewards_S) - 1, -1, -1):
        running = rewards_S[turn] + discount * running
        returns[turn] = running
    return returns
