"""What the frozen warm start says of trajectories, for whoever asks: a charge in the reward, a penalty, credit."""

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

from geartrain.algorithms.divergence import Sampled, k3, sampled_kl
from geartrain.ranks import ALONE, Ranks
from geartrain.training.batch import TokenSequence
from geartrain.training.features import FrozenScores, frozen_pass
from geartrain.trajectory import Trajectory

DRIFT_SAMPLE = 8
"""Trajectories whose distance from the warm start is measured where nobody pays for it."""


class ReferencePolicy:
    """Scores a trajectory once, until it is told to forget, and everything that a run will want of it."""

    def __init__(
        self, model: Any, *, microbatch_tokens: int, want_logprobs: bool, want_turns: bool, ranks: Ranks = ALONE
    ) -> None:
        """Take a frozen `model`; see `features.frozen_pass` for the rest."""
        self.model = model
        self.wanted = want_logprobs or want_turns
        """Whether a run asks for anything that `score` tells."""
        self._ranks, self._budget = ranks, microbatch_tokens
        self._options = {"want_logprobs": want_logprobs, "want_turns": want_turns}
        self._known: dict[int, tuple[Trajectory, FrozenScores]] = {}
        """By identity: siblings may be equal. The trajectory is kept, so that no other can take its place."""

    def score(self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence]) -> list[FrozenScores]:
        """Return one entry per trajectory, in order; ranks ask for the same and share the work."""
        fresh = [row for row, trajectory in enumerate(trajectories) if id(trajectory) not in self._known]
        if fresh:
            asked = [trajectories[row] for row in fresh]
            found = self._pass(self.model, asked, [sequences[row] for row in fresh], **self._options)
            self._known |= {id(t): (t, scores) for t, scores in zip(asked, found, strict=True)}
        return [self._known[id(trajectory)][1] for trajectory in trajectories]

    def divergence(
        self,
        policy: Any,
        trajectories: Sequence[Trajectory],
        sequences: Sequence[TokenSequence],
        *,
        estimator: Sampled | Literal["full"],
    ) -> list[Tensor]:
        """Return KL(policy || reference) at every sampled id, [T] per trajectory; anything elsewhere.

        An estimate from the log-probs that the sampler kept; or, "full", over the whole vocabulary: a pass of both.
        """
        if estimator == "full":
            pairs = self._pass(policy, trajectories, sequences, reference=self.model)
            return [found.kl_T for found in pairs if found.kl_T is not None]
        known = zip(sequences, self.score(trajectories, sequences), strict=True)
        return [sampled_kl(asked.values["behaviour"], found.logprob_T, estimator) for asked, found in known]

    def drift(self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence]) -> float:
        """Return KL(policy || reference) per trained token (k3) of a few trajectories: for a run that does not pay it.

        A pass over `DRIFT_SAMPLE` trajectories, evenly spread, costs little beside the training on all of them.
        """
        rows = range(0, len(trajectories), -(-len(trajectories) // DRIFT_SAMPLE))
        asked = [sequences[row] for row in rows]
        found = self._pass(self.model, [trajectories[row] for row in rows], asked)
        kl = sum(
            float(k3(s.values["behaviour"], f.logprob_T)[s.loss_T].sum()) for s, f in zip(asked, found, strict=True)
        )
        return kl / max(1, sum(int(sequence.loss_T.sum()) for sequence in asked))

    def forget(self) -> None:
        """Forget every trajectory: what comes next was played anew."""
        self._known.clear()

    def _pass(
        self, model: Any, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence], **wanted: Any
    ) -> list[FrozenScores]:
        return frozen_pass(model, trajectories, sequences, microbatch_tokens=self._budget, ranks=self._ranks, **wanted)
