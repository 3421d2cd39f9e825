"""Adaptive segments: where a signal's spike opens a stretch of tokens that shares one credit.

A segment opens at a token whose signal exceeds `onset`. It closes before the
first token whose entropy exceeds `growth` times the entropy at the opening: the
policy has come to a new decision. It never crosses a turn or a masked token.

Source: GEAR, arXiv:2605.11853; SGCD, arXiv:2606.12634, marks and extends spikes
alike. Ours: the floor of the closing entropy (an opening with entropy 0 would
close at once), the longest length, and that turns are not crossed.

Legend: N trajectories, T positions.
"""

import torch
from torch import Tensor

OUTSIDE = -1


def open_segments(
    signal_NT: Tensor,
    entropy_NT: Tensor,
    turn_NT: Tensor,
    *,
    onset: float,
    growth: float,
    floor: float,
    longest: int,
) -> Tensor:
    """Return int64 [N, T]: the position at which a token's segment opened, -1 where it is in none.

    Args:
        signal_NT: what spikes, e.g. a rescaled divergence.
        entropy_NT: nats, of the distribution that the token was drawn from.
        turn_NT: int64, number of a trained token's turn; -1 elsewhere.
        onset: a segment opens above this.
        growth: a segment closes at this multiple of its opening's entropy; at least 1.
        floor: nats; the closing entropy is never below this.
        longest: tokens of a segment, at most.
    """
    signal, entropy, turn = signal_NT.tolist(), entropy_NT.tolist(), turn_NT.tolist()
    opened_NT = torch.full(signal_NT.shape, OUTSIDE, dtype=torch.int64)
    for row in range(signal_NT.shape[0]):
        start = OUTSIDE
        opened = [OUTSIDE] * signal_NT.shape[1]
        for t, number in enumerate(turn[row]):
            if start != OUTSIDE and (
                number != turn[row][start]
                or t - start >= longest
                or entropy[row][t] > max(growth * entropy[row][start], floor)
            ):
                start = OUTSIDE
            if start == OUTSIDE and number >= 0 and signal[row][t] > onset:
                start = t
            opened[t] = start
        opened_NT[row] = torch.tensor(opened, dtype=torch.int64)
    return opened_NT


def share_onset(signal_NT: Tensor, opened_NT: Tensor) -> Tensor:
    """Give every token of a segment the signal of its first token; others keep their own. [N, T], [N, T] -> [N, T]."""
    return torch.where(opened_NT >= 0, signal_NT.gather(1, opened_NT.clamp(min=0)), signal_NT)
