"""How likely a task's siblings are to differ, from what is known of the task and of its prompt's family.

A group whose episodes all succeed or all fail carries no advantage. With success probability p and G siblings a group
is mixed with probability 1 - p^G - (1-p)^G: that is the headroom of a task. p is shrunk: a task that was never played
has its family's, a family that was never played has 1/2. (ours)

Legend: N tasks.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

PRIOR = 4.0
"""Episodes that the prior counts for."""
EXPLORATION = 0.1
"""Share of the draws that ignore headroom: no task is written off for good."""


def expected_success(
    recent_attempts: ArrayLike,
    recent_successes: ArrayLike,
    prompt_recent_attempts: ArrayLike,
    prompt_recent_successes: ArrayLike,
) -> Floats:
    """Return the expected share of successes, in (0, 1), [N]; NaN counts as never played."""
    tried_N, solved_N, prompt_tried_N, prompt_solved_N = (
        np.nan_to_num(np.asarray(column, dtype=np.float64))
        for column in (recent_attempts, recent_successes, prompt_recent_attempts, prompt_recent_successes)
    )
    prompt_N = (prompt_solved_N + PRIOR / 2) / (prompt_tried_N + PRIOR)
    return np.asarray((solved_N + PRIOR * prompt_N) / (tried_N + PRIOR))


def headroom(success_N: ArrayLike, siblings: ArrayLike) -> Floats:
    """Return the probability that a group of `siblings` is mixed, in [0, 1), [N]."""
    success, count = (np.asarray(given, dtype=np.float64) for given in (success_N, siblings))
    return np.asarray(1.0 - success**count - (1.0 - success) ** count)


def draw(headroom_N: Floats, count: int, *, seed: int) -> list[int]:
    """Return the indices of `count` different tasks, drawn in proportion to their headroom.

    A pure function of its arguments. One in ten draws ignores headroom (`EXPLORATION`).
    """
    assert 0 < count <= len(headroom_N), (count, len(headroom_N))
    total = headroom_N.sum()
    share_N = headroom_N / total if total > 0 else np.full(len(headroom_N), 1.0 / len(headroom_N))
    mixed_N = (1.0 - EXPLORATION) * share_N + EXPLORATION / len(headroom_N)
    generator = np.random.default_rng(seed)
    chosen: Any = generator.choice(len(headroom_N), size=count, replace=False, p=mixed_N / mixed_N.sum())
    return [int(index) for index in chosen]
