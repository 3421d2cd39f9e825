"""Rewards that depend on length. Source: DAPO, arXiv:2503.14476."""


def overlong_penalty(length: int, *, limit: int, share: float) -> float:
    """Return what a reward is lowered by for its length: 0, then a straight line down to -1 at the limit.

    Args:
        length: tokens of the episode.
        limit: most tokens that an episode may have.
        share: last share of the limit over which the penalty grows; 0 switches it off.
    """
    start = limit * (1.0 - share)
    if share <= 0.0 or length <= start:
        return 0.0
    return max(-1.0, (start - length) / (limit - start))
