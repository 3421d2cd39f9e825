"""Teachers: who else is asked about the sampled tokens, with which weights and in which context.

    past_self   weights that the policy had, same context: a slow average of them (ema), or a frozen copy that is
                renewed every so often (snapshot)
    privileged  the policy itself, with the task's answer in its context
    siblings    the policy itself, with a summary of the task's siblings in its context

What a teacher is told reaches no student and no deployed prompt: hints exist
only in the ids that are scored here.

Legend: N trajectories, T positions, K support.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from geartrain.algorithms.divergence import Direction, categorical_divergence
from geartrain.algorithms.evidence import Settings, TeacherView
from geartrain.algorithms.recipe import Recipe
from geartrain.algorithms.saliency import with_observed, with_tail
from geartrain.algorithms.schedule import snapshot_due
from geartrain.models.spans import Decoder
from geartrain.ranks import ALONE, Ranks
from geartrain.training.batch import TokenSequence, make_sequence
from geartrain.training.features import FrozenScores, frozen_pass
from geartrain.training.health_numbers import distance
from geartrain.training.reference import literal_tokens
from geartrain.trajectory import Trajectory

SHARE = 0.25
"""Share of the groups that a past self explains: its pass costs as much as the reference's, the mixture needs less."""

Hint = Callable[[Trajectory], list[int] | None]
"""Opening ids of a trajectory with the teacher's hint in them; None where there is none, or no room for it."""


@dataclass(frozen=True)
class Distribution:
    """A teacher's distribution over a support, for one trajectory."""

    support_TK: Tensor
    """int64; its likeliest ids and the observed one; -1 counts nowhere."""
    logprob_TK: Tensor
    """Over the support and the tail, [T, K + 1]."""
    confidence_T: Tensor
    """Largest probability."""


class Teachers:
    """The teacher of a recipe, whatever its kind."""

    def __init__(
        self,
        recipe: Recipe,
        settings: Settings,
        model: Any,
        *,
        iterations: int,
        microbatch_tokens: int,
        decoder: Decoder,
        ranks: Ranks = ALONE,
    ) -> None:
        self._recipe, self._kind, self._settings, self._iterations = recipe, recipe.teacher, settings, iterations
        self._student, self._budget, self._ranks, self._decoder = model, microbatch_tokens, ranks, decoder
        self.model = frozen_copy(model) if self._kind == "past_self" else None
        """Weights of its own; None where the teacher is the policy itself."""
        self._averages = settings.get("teacher") == "ema"  # a method without the setting takes snapshots
        self._next: dict[str, Tensor] | None = None
        """On the CPU: a third copy would be one too many for a GPU."""

    @property
    def distils(self) -> bool:
        """Whether its distribution is part of the loss."""
        return float(self._settings.get("distil", 0.0)) > 0 or float(self._settings.get("distil_final", -1.0)) > 0

    def begin(self, iteration: int) -> None:
        """Keep the student as it is now, when it is time for a new snapshot.

        It takes effect at the end of the iteration: taken before, it would be the very policy that it is to weigh.
        """
        if self.model is not None and not self._averages:
            share, warm = float(self._settings["snapshot_share"]), float(self._settings.get("warm_share", 0.0))
            if snapshot_due(iteration, self._iterations, share=share, warm_share=warm):
                self._next = {
                    name: value.detach().to("cpu", copy=True) for name, value in self._student.state_dict().items()
                }

    @torch.no_grad()
    def end(self) -> None:
        """Renew a snapshot; or move an average towards the student: `teacher_decay` is what it keeps (fault C30)."""
        if self._next is not None:
            self.load_state_dict(self._next)
            self._next = None
        if self.model is not None and self._averages:
            decay = float(self._settings["teacher_decay"])
            for own, student in zip(self.model.parameters(), self._student.parameters(), strict=True):
                own.lerp_(student, 1.0 - decay)

    def view(
        self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence], hint: Hint
    ) -> TeacherView | None:
        """Return what weighing needs, or None where it needs no teacher."""
        if self._recipe.weighs_by_past_self:
            return TeacherView(_pad([score.logprob_T for score in self._pass(trajectories, sequences)]))
        if self._kind in ("privileged", "siblings"):
            return self._hinted_view(trajectories, sequences, hint)
        return None

    def gap(
        self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence], rows: Sequence[int]
    ) -> list[Tensor]:
        """Return log teacher - log student at every sampled id of some trajectories."""
        chosen = [sequences[row] for row in rows]
        scores = self._pass([trajectories[row] for row in rows], chosen)
        return [score.logprob_T - seq.values["behaviour"] for score, seq in zip(scores, chosen, strict=True)]

    def distributions(
        self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence], hint: Hint
    ) -> list[Distribution | None]:
        """Return the teacher's distribution for the loss; None for a trajectory that it has no hint about."""
        top = int(self._settings.get("top", 20))
        if self._kind == "privileged":
            scores = self._hinted(trajectories, sequences, hint, top=top)
        else:
            scores = list(self._pass(trajectories, sequences, top=top))
        return [
            None if score is None else _distribution(score, sequence)
            for score, sequence in zip(scores, sequences, strict=True)
        ]

    def distance(self) -> float | None:
        """Return how far the student's weights are from its past self's, relative to these; None without a past self.

        0 explains nothing; as far as the student is from its start is a past self that was never renewed.
        """
        return None if self.model is None else distance(self._student, self.model)[0]

    def state_dict(self) -> dict[str, Tensor] | None:
        """Return the teacher's own weights, if it has any."""
        return None if self.model is None else self.model.state_dict()

    def load_state_dict(self, state: dict[str, Tensor] | None) -> None:
        """Continue from `state_dict`'s value."""
        if self.model is not None:
            self.model.load_state_dict(state)

    def _pass(
        self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence], **wanted: Any
    ) -> list[FrozenScores]:
        model = self._student if self.model is None else self.model
        return frozen_pass(model, trajectories, sequences, microbatch_tokens=self._budget, ranks=self._ranks, **wanted)

    def _hinted_view(
        self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence], hint: Hint
    ) -> TeacherView:
        siblings = self._kind == "siblings"
        top = int(self._settings["top"]) if siblings else 0
        scores = self._hinted(trajectories, sequences, hint, top=top)
        nothing = [torch.zeros(len(sequence)) for sequence in sequences]
        known = torch.tensor([score is not None for score in scores])
        filled = [FrozenScores(zero) if score is None else score for score, zero in zip(scores, nothing, strict=True)]
        logprob_NT = _pad([score.logprob_T for score in filled])
        if not siblings:
            return TeacherView(logprob_NT, scored_N=known)
        entropy = [zero if s.entropy_T is None else s.entropy_T for s, zero in zip(filled, nothing, strict=True)]
        divergence_NT = _pad(self._divergence(trajectories, sequences, scores, nothing))
        masked_NT = _pad([literal_tokens(trajectory, self._decoder) for trajectory in trajectories])
        return TeacherView(logprob_NT, _pad(entropy), divergence_NT, masked_NT, known)

    def _divergence(
        self,
        trajectories: Sequence[Trajectory],
        sequences: Sequence[TokenSequence],
        scores: Sequence[FrozenScores | None],
        nothing: Sequence[Tensor],
    ) -> list[Tensor]:
        """Compare the student's distribution with the teacher's over the teacher's support: one more pass."""
        direction: Direction = str(self._settings["direction"])  # type: ignore[assignment]
        rows = [row for row, score in enumerate(scores) if score is not None]
        found = list(nothing)
        teachers = [_distribution(score, sequences[row]) for row, score in enumerate(scores) if score is not None]
        asked = [
            replace(sequences[row], values={"support": teacher.support_TK})
            for row, teacher in zip(rows, teachers, strict=True)
        ]
        students = frozen_pass(
            self._student,
            [trajectories[row] for row in rows],
            asked,
            microbatch_tokens=self._budget,
            ranks=self._ranks,
        )
        for row, student, teacher in zip(rows, students, teachers, strict=True):
            assert student.support_TK is not None
            own_TK = with_tail(student.support_TK, teacher.support_TK)
            divergence_T = categorical_divergence(own_TK, teacher.logprob_TK, direction)
            found[row] = torch.where(sequences[row].loss_T, divergence_T, 0.0)
        return found

    def _hinted(
        self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence], hint: Hint, *, top: int
    ) -> list[FrozenScores | None]:
        """Score trajectories whose opening holds a hint; scores are moved back to the positions without it."""
        openings = [hint(trajectory) for trajectory in trajectories]
        rows = [row for row, opening in enumerate(openings) if opening is not None]
        asked = [_with_opening(trajectories[row], openings[row] or []) for row in rows]
        wanted = {"want_entropy": self._kind == "siblings", "top": top}
        scores = self._pass([trajectories[row] for row in rows], asked, **wanted) if rows else []
        found: list[FrozenScores | None] = [None] * len(trajectories)
        for row, score in zip(rows, scores, strict=True):
            shift = len(openings[row] or []) - len(trajectories[row].turns[0].prompt_ids)
            found[row] = _moved(score, len(sequences[row]), shift)
        return found


def frozen_copy(model: Any) -> Any:
    """Return a copy of a model that will not train."""
    return copy.deepcopy(model).requires_grad_(False).eval()


def _with_opening(trajectory: Trajectory, opening: Sequence[int]) -> TokenSequence:
    first = len(trajectory.turns[0].prompt_ids)
    ids, mask = trajectory.token_ids(), trajectory.action_mask()
    return make_sequence([*opening, *ids[first:]], [*[False] * len(opening), *mask[first:]])


def _moved(score: FrozenScores, length: int, shift: int) -> FrozenScores:
    """Undo the shift of a longer (or shorter) opening."""

    def move(value: Tensor | None) -> Tensor | None:
        if value is None:
            return None
        moved = torch.zeros((length, *value.shape[1:]), dtype=value.dtype)
        kept = min(length, len(value))
        moved[length - kept :] = value[len(value) - kept :]
        return moved

    logprob_T = move(score.logprob_T)
    assert logprob_T is not None
    assert len(score.logprob_T) - length == shift, "only the opening may differ"
    return FrozenScores(logprob_T, None, move(score.entropy_T), move(score.top_TK), move(score.support_TK))


def _distribution(score: FrozenScores, sequence: TokenSequence) -> Distribution:
    assert score.top_TK is not None, "the pass was not asked for the top"
    assert score.support_TK is not None, "the pass was not asked for the top"
    support_TK = with_observed(score.top_TK, sequence.ids_T)
    support_TK = torch.where(sequence.loss_T[:, None], support_TK, -1)
    picked_TK = torch.cat([score.support_TK, score.logprob_T[:, None]], dim=-1)
    return Distribution(support_TK, with_tail(picked_TK, support_TK), score.support_TK[:, 0].exp())


def _pad(rows: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
