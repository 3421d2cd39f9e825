"""From raw channel values to one reward per trajectory, such that the verdict always wins.

Within one group (siblings of one task), over the members that have a verdict:

    total = verified + shift
    shift = clip(sum over opinions of weight * spread * clip(z(values), -2, 2), -limit, limit)
    z(x)  = (x - mean(x)) / max(std(x), floor)
    spread = std(verified), or TIE_SPREAD in a tied group if `ties`

- Each opinion is normalised in its group before they are added (GDPO; R1 of
  methods.md §3.4), so `weight` is the ratio of its standard deviation to the
  verdict's, whatever its scale.
- `limit` is just below half the margin between the worst success and the best
  failure: no weights, and no number of opinions, let a failure overtake a success.
- A group whose verified values are equal has spread 0 and so no signal of
  opinions: there they would be the only thing that the policy could please.
  `ties` lifts that.
- `floor` keeps differences that mean nothing from being blown up to full size:
  a learned score is calibrated, so a difference d says "better with probability
  sigmoid(d)", and its floor is `SCALE_FLOOR`.
- Where there is no verdict, soundness stands in for it (`soundness`): what a
  gate objects to is a failure that no praise lifts over a sound answer.

The composition is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

Z_LIMIT = 2.0
SCALE_FLOOR = 0.25
"""Nats; two siblings that differ by this much are ranked right with probability 0.56."""
TIE_SPREAD = 0.5
"""Spread given to a tied group: that of a group half of which succeeds."""
LIMIT_OF_MARGIN = 0.49


SOUND = 0.5
"""Value of a gate below which an answer is unsound."""


@dataclass(frozen=True)
class Opinion:
    """What one tool said of the members of a group."""

    values: Sequence[float | None]
    """None where it failed or does not apply."""
    weight: float
    """Standard deviation of its share against that of the verdict."""
    floor: float = SCALE_FLOOR


@dataclass(frozen=True)
class Fused:
    """The totals of a group, and what each opinion added before the clipping."""

    totals: list[float | None]
    """None where there is no verdict."""
    shares: list[list[float]]
    """By opinion, by member: weight * spread * z."""


def fuse_group(
    verified: Sequence[float | None], opinions: Sequence[Opinion], *, margin: float, ties: bool = False
) -> Fused:
    """Fuse the verdicts of one group with any number of opinions.

    Args:
        verified: verified values of the siblings; None where the channel failed.
        opinions: each with one value per sibling.
        margin: smallest verified distance between a success and a failure.
        ties: whether siblings with equal verified values are told apart by opinions.

    Returns:
        One total per sibling: None where `verified` is None; `verified` alone where there is no opinion.
    """
    valued = [value for value in verified if value is not None]
    if not valued:
        return Fused([None] * len(verified), [[0.0] * len(verified) for _ in opinions])
    spread = pstdev(valued)
    if ties and spread == 0.0:
        spread = TIE_SPREAD
    limit = LIMIT_OF_MARGIN * margin
    shares = [
        [opinion.weight * spread * z for z in clipped_z_scores(verified, opinion.values, floor=opinion.floor)]
        for opinion in opinions
    ]
    totals = [
        None if value is None else value + max(-limit, min(limit, sum(share[row] for share in shares)))
        for row, value in enumerate(verified)
    ]
    return Fused(totals, shares)


def soundness(gates: Sequence[Sequence[float | None]], *, margin: float) -> list[float]:
    """Return what stands in for verdicts: 1 for a member that no gate objects to, else at most `1 - margin`.

    Args:
        gates: by gate, its values by member; None passes.
        margin: as in `fuse_group`.
    """
    if not gates:
        return []
    members = range(len(gates[0]))
    passed = [[value is None or value >= SOUND for value in gate] for gate in gates]
    shares = [sum(gate[row] for gate in passed) / len(gates) for row in members]
    return [1.0 if share == 1.0 else (1.0 - margin) * share for share in shares]


def clipped_z_scores(
    verified: Sequence[float | None], values: Sequence[float | None], *, floor: float = SCALE_FLOOR
) -> list[float]:
    """Return z of `values` over the members that have both, clipped to ±2; 0 for the others."""
    pairs = zip(verified, values, strict=True)
    both = [score for value, score in pairs if value is not None and score is not None]
    if len(both) < 2:
        return [0.0] * len(values)
    mean, scale = fmean(both), max(pstdev(both), floor)
    return [
        0.0 if score is None or value is None else max(-Z_LIMIT, min(Z_LIMIT, (score - mean) / scale))
        for value, score in zip(verified, values, strict=True)
    ]
