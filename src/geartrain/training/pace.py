"""What an iteration takes, for whoever watches: seconds by part of the work, tokens by what was done with them.

Kept apart from the history, which holds nothing that differs from run to run.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from geartrain.trajectory import Trajectory


class Pace:
    """Of the iteration at hand."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.tokens: dict[str, int] = {}

    def begin(self) -> None:
        """Start from zero."""
        self.seconds, self.tokens = {}, {}

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the wall seconds of the block to a part's."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - started

    def count(self, what: str, trajectories: Sequence[Trajectory]) -> None:
        """Count the tokens that the policy sampled in trajectories."""
        self.tokens[what] = sum(len(turn.action_ids) for t in trajectories for turn in t.turns)
