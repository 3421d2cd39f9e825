"""The policy loop: play siblings, weigh their verified advantage, take clipped steps, keep the best on `val`.

The loop does not know which algorithm runs: a `Recipe` says how advantages,
grains and denominators are made. It does not know the environment either: a
`World` plays, scores and validates. A killed run continues from its last
checkpoint and ends with the same weights and history (bit for bit at one
thread).

Legend: N trajectories, B rows, T positions.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from geartrain.config import PolicySection
from geartrain.errors import UserError
from geartrain.models.backbone import Policy
from geartrain.seeds import seed_of
from geartrain.training.batch import TokenSequence
from geartrain.training.checkpoint import load_checkpoint, restore_rng_state, rng_state, save_checkpoint
from geartrain.training.credit import CreditAssigner
from geartrain.training.engine import Engine
from geartrain.training.features import FrozenScores, frozen_pass, sequence_of
from geartrain.training.lesson import Lesson, Scored, describe_lesson, select_lesson, some_groups
from geartrain.training.policy_step import PolicyStep
from geartrain.trajectory import Trajectory

MAX_EMPTY_IN_A_ROW = 5
WARMUP_ITERATIONS = 3
"""Adam's first steps move every weight by the full learning rate, however noisy its gradient."""
EPSILON = 1e-5
"""Adam's. At 1e-8 the output rows of tokens that hardly occur move as far as all others, on gradients of nothing but
noise, and invalid calls rise until the policy falls apart."""
TEACHER_SHARE = 0.25
"""Share of the groups that the teacher scores: its pass costs as much as the reference's, the mixture needs less."""
SOLVED = 0.9
"""Success above which a batch without signal is no fault."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Validation:
    """How a policy does on `val`; shares in [0, 1]."""

    greedy: float
    sampled: float
    progress: float

    @property
    def rank(self) -> tuple[float, float]:
        """What checkpoints are compared by."""
        return 0.5 * (self.greedy + self.sampled), self.progress


class World(Protocol):
    """What the loop asks of the outside."""

    def play(self, policy: Policy, iteration: int) -> list[Trajectory]:
        """Play the siblings of this iteration's tasks; the same arguments give the same episodes."""
        ...

    def score(self, trajectories: Sequence[Trajectory]) -> Scored:
        """Score trajectories, in order."""
        ...

    def validate(self, policy: Policy) -> Validation:
        """Measure a policy on `val`, always with the same seeds."""
        ...

    def describe(self, trajectories: Sequence[Trajectory]) -> Record:
        """Return numbers about trajectories for the history."""
        ...


class PolicyTrainer:
    """State of one run."""

    def __init__(
        self,
        policy: Policy,
        assigner: CreditAssigner,
        world: World,
        section: PolicySection,
        *,
        context: int,
        seed: int,
        work: Path,
    ) -> None:
        self.policy, self.assigner, self.world, self.section = policy, assigner, world, section
        self._seed, self._work = seed, work
        self.reference = _frozen_copy(policy.model)
        self._teacher = _frozen_copy(policy.model) if assigner.recipe.needs_mixture else None
        if not section.train_embeddings:
            for layer in (policy.model.get_input_embeddings(), policy.model.get_output_embeddings()):
                layer.weight.requires_grad_(False)
        self._engine = Engine(
            policy.model.parameters(),
            learning_rate=section.learning_rate,
            total_steps=section.iterations * section.minibatches,
            gradient_clip=section.gradient_clip,
            warmup_steps=WARMUP_ITERATIONS * section.minibatches,
            schedule=section.schedule,
            betas=(0.9, 0.99),
            epsilon=EPSILON,
        )
        self._step = PolicyStep(policy.model, self._engine, section, assigner.recipe.denominator, context)
        self._empty_in_a_row = 0
        self.history: list[Record] = []
        self.best: Validation | None = None
        self.best_iteration = -1
        """Iterations of training behind the best weights; 0 is the warm start itself."""
        self._best_weights: dict[str, Tensor] = {}

    def run(self, on_iteration: Callable[[Record], None] = lambda record: None) -> list[Record]:
        """Train to the end, leave the best weights in the policy, return the history.

        Raises:
            UserError: training diverged, the sampler and the trainer disagree, or
                no group has carried a signal several iterations in a row.
        """
        self._resume()
        for record in self.history:
            on_iteration(record)
        start: Record = {}
        if self.best is None:
            validation = self.world.validate(self.policy)
            self._keep_if_best(validation, 0)
            start = {"start_val_sampled": validation.sampled, "start_val_greedy": validation.greedy}
        while len(self.history) < self.section.iterations:
            record = self.iterate(len(self.history))
            if not self.history:
                record |= start
            self.history.append(record)
            if len(self.history) % self.section.checkpoint_every == 0:
                self._save()
            on_iteration(record)
        self.policy.model.load_state_dict(self._best_weights)
        return self.history

    def iterate(self, iteration: int) -> Record:
        """Play, train, validate when it is time; return the record of this iteration."""
        played = self.world.play(self.policy, iteration)
        scored = self.world.score(played)
        lesson = select_lesson(scored, self.assigner.recipe.advantage, learn_from_cut=self.section.learn_from_cut)
        record: Record = {
            "iteration": iteration,
            **self.world.describe(scored.trajectories),
            **describe_lesson(scored, lesson),
        }
        if lesson.trajectories:
            self._empty_in_a_row = 0
            record |= self._train(lesson, iteration)
        else:
            self._note_empty(record)
        done = iteration + 1
        if done % self.section.validate_every == 0 or done == self.section.iterations:
            validation = self.world.validate(self.policy)
            self._keep_if_best(validation, done)
            record |= {"val_sampled": validation.sampled, "val_greedy": validation.greedy}
        return record

    def _train(self, lesson: Lesson, iteration: int) -> Record:
        sequences = [sequence_of(trajectory) for trajectory in lesson.trajectories]
        reference = self._reference_pass(lesson.trajectories, sequences)
        batch = self.assigner.assign(lesson.trajectories, lesson.advantage_N, reference)
        record: Record = dict(self.assigner.summary(batch))
        if self._teacher is not None:
            rows = some_groups(lesson.trajectories, share=TEACHER_SHARE, seed=seed_of(self._seed, "teacher", iteration))
            gap = self._teacher_gap(self._teacher, lesson.trajectories, sequences, rows)
            record["explanation_loss"] = self.assigner.learn(batch, rows, gap)
        prepared = []
        for row, sequence in enumerate(sequences):
            values = {**sequence.values, "advantage": batch.advantage(row, len(sequence))}
            if reference is not None:
                values["reference"] = reference[row].logprob_T
            prepared.append(replace(sequence, values=values))
        record |= self._step.run(
            prepared,
            temperature=lesson.trajectories[0].temperature,
            seed=seed_of(self._seed, "minibatches", iteration),
        )
        self._move_teacher()
        return record

    def _reference_pass(
        self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence]
    ) -> list[FrozenScores] | None:
        """Score with the frozen warm start, once, for whoever needs it."""
        if self.section.kl_coefficient == 0 and not self.assigner.needs_hidden:
            return None
        return frozen_pass(
            self.reference,
            trajectories,
            sequences,
            microbatch_tokens=self.section.microbatch_tokens,
            want_logprobs=self.section.kl_coefficient > 0,
            want_turns=self.assigner.needs_hidden,
        )

    def _teacher_gap(
        self, teacher: Any, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence], rows: Sequence[int]
    ) -> list[Tensor]:
        """Return log teacher - log student at every sampled id of some trajectories."""
        chosen = [sequences[row] for row in rows]
        scores = frozen_pass(
            teacher,
            [trajectories[row] for row in rows],
            chosen,
            microbatch_tokens=self.section.microbatch_tokens,
        )
        pairs = zip(scores, chosen, strict=True)
        return [score.logprob_T - sequence.values["behaviour"] for score, sequence in pairs]

    @torch.no_grad()
    def _move_teacher(self) -> None:
        """Move the teacher towards the student: `teacher_decay` is what it keeps."""
        if self._teacher is not None:
            for own, student in zip(self._teacher.parameters(), self.policy.model.parameters(), strict=True):
                own.lerp_(student, 1.0 - self.section.teacher_decay)

    def _note_empty(self, record: Record) -> None:
        self._empty_in_a_row += 1
        if self._empty_in_a_row >= MAX_EMPTY_IN_A_ROW and record["success"] < SOLVED:
            raise UserError(
                f"{self._empty_in_a_row} iterations in a row without a group whose siblings differ in reward, at "
                f"{record['success']:.0%} success: there is nothing to learn from. Raise warm_start.demonstrations "
                "or policy.siblings, or the sampling temperature."
            )

    def _keep_if_best(self, validation: Validation, done: int) -> None:
        if self.best is None or validation.rank > self.best.rank:
            self.best, self.best_iteration = validation, done
            self._best_weights = {name: value.clone() for name, value in self.policy.model.state_dict().items()}

    def _save(self) -> None:
        assert self.best is not None
        state = {
            "model": self.policy.model.state_dict(),
            "engine": self._engine.state_dict(),
            "assigner": self.assigner.state_dict(),
            "teacher": None if self._teacher is None else self._teacher.state_dict(),
            "best": [self.best.greedy, self.best.sampled, self.best.progress],
            "best_iteration": self.best_iteration,
            "best_weights": self._best_weights,
            "empty_in_a_row": self._empty_in_a_row,
            "history": self.history,
            "rng": rng_state(),
        }
        save_checkpoint(self._work, state, step=len(self.history))

    def _resume(self) -> None:
        state = load_checkpoint(self._work)
        if state is None:
            return
        self.policy.model.load_state_dict(state["model"])
        self._engine.load_state_dict(state["engine"])
        self.assigner.load_state_dict(state["assigner"])
        if self._teacher is not None:
            self._teacher.load_state_dict(state["teacher"])
        self.best, self.best_iteration = Validation(*state["best"]), state["best_iteration"]
        self._best_weights, self._empty_in_a_row = state["best_weights"], state["empty_in_a_row"]
        self.history = state["history"]
        restore_rng_state(state["rng"])


def _frozen_copy(model: Any) -> Any:
    return copy.deepcopy(model).requires_grad_(False).eval()
