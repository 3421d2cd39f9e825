"""From raw channel values to one reward per trajectory, such that the verdict always wins.

Within one group (siblings of one task), over the members that have both values:

    total = verified + shift
    shift = clip(weight * spread * clip(z(learned), -2, 2), -limit, limit)
    z(x)  = (x - mean(x)) / max(std(x), SCALE_FLOOR)
    spread = std(verified), or TIE_SPREAD in a tied group if `learned_in_ties`

- Each channel is normalised in its group before the two are added (GDPO; R1 of
  methods.md §3.4), so `weight` is the ratio of their standard deviations,
  whatever the scale of the reward model.
- `limit` is just below half the margin between the worst success and the best
  failure: no weight lets a failure overtake a success.
- A group whose verified values are equal has spread 0 and so no learned
  signal: there a reward model would be the only thing that the policy could
  please. `learned_in_ties` lifts that.
- `SCALE_FLOOR` keeps differences that mean nothing from being blown up to full
  size: the learned score is calibrated, so a difference d says "better with
  probability sigmoid(d)".

The composition is ours.
"""

from collections.abc import Sequence
from statistics import fmean, pstdev

Z_LIMIT = 2.0
SCALE_FLOOR = 0.25
"""Nats; two siblings that differ by this much are ranked right with probability 0.56."""
TIE_SPREAD = 0.5
"""Spread given to a tied group: that of a group half of which succeeds."""
LIMIT_OF_MARGIN = 0.49


def fuse_group(
    verified: Sequence[float | None],
    learned: Sequence[float | None],
    *,
    weight: float,
    margin: float,
    learned_in_ties: bool = False,
) -> list[float | None]:
    """Fuse the two channels of one group.

    Args:
        verified: verified values of the siblings; None where the channel failed.
        learned: learned values in nats; None where the channel failed or does not apply.
        weight: standard deviation of the learned share against that of the verified one.
        margin: smallest verified distance between a success and a failure.
        learned_in_ties: whether siblings with equal verified values are told apart by the learned one.

    Returns:
        One total per sibling: None where `verified` is None; `verified` alone where `learned` is None.
    """
    valued = [value for value in verified if value is not None]
    if not valued:
        return [None] * len(verified)
    spread = pstdev(valued)
    if learned_in_ties and spread == 0.0:
        spread = TIE_SPREAD
    limit = LIMIT_OF_MARGIN * margin
    shifts = [max(-limit, min(limit, weight * spread * z)) for z in clipped_z_scores(verified, learned)]
    return [None if value is None else value + shift for value, shift in zip(verified, shifts, strict=True)]


def clipped_z_scores(verified: Sequence[float | None], learned: Sequence[float | None]) -> list[float]:
    """Return z of `learned` over the members that have both values, clipped to ±2; 0 for the others."""
    pairs = zip(verified, learned, strict=True)
    both = [score for value, score in pairs if value is not None and score is not None]
    if len(both) < 2:
        return [0.0] * len(learned)
    mean, scale = fmean(both), max(pstdev(both), SCALE_FLOOR)
    return [
        0.0 if score is None or value is None else max(-Z_LIMIT, min(Z_LIMIT, (score - mean) / scale))
        for value, score in zip(verified, learned, strict=True)
    ]
