"""The policy loop: play siblings, weigh their verified advantage, take clipped steps, keep the best on `val`.

The loop does not know which algorithm runs: a `Recipe` says how advantages,
grains and denominators are made. It does not know the environment either: a
`World` plays, scores and validates. A killed run continues from its last
checkpoint and ends with the same weights and history (bit for bit at one
thread).

Legend: N trajectories, B rows, T positions.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from geartrain.algorithms.surrogate import LossTally, clipped_surrogate, kl_penalty, mismatch
from geartrain.config import PolicySection
from geartrain.errors import UserError
from geartrain.models.backbone import Policy, token_logprobs
from geartrain.seeds import seed_of
from geartrain.training.batch import TokenSequence, count_loss_tokens, microbatches
from geartrain.training.checkpoint import load_checkpoint, restore_rng_state, rng_state, save_checkpoint
from geartrain.training.credit import CreditAssigner
from geartrain.training.engine import Engine
from geartrain.training.features import FrozenScores, frozen_pass, sequence_of
from geartrain.trajectory import Trajectory

MAX_MISMATCH = 1e-3
"""Nats; in float32 the sampler's and the trainer's log-probs of one token differ by 1e-5."""
MAX_EMPTY_IN_A_ROW = 5
SOLVED = 0.9
"""Success above which a batch without signal is no fault."""

Record = dict[str, Any]


class Scored(Protocol):
    """Rewards of trajectories."""

    @property
    def rewards(self) -> Sequence[float | None]:
        """Totals; None where scoring failed."""
        ...

    @property
    def trajectories(self) -> Sequence[Trajectory]:
        """The same trajectories with rewards of every grain filled."""
        ...

    @property
    def failures(self) -> Counter[str]:
        """What has no value, by reason."""
        ...


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


@dataclass(frozen=True)
class Lesson:
    """What is trained on in one iteration."""

    trajectories: Sequence[Trajectory]
    advantage_N: Tensor
    filtered_groups: int
    """Groups whose rewards are all the same: no advantage, not trained on."""
    excluded: int
    """Trajectories without a reward."""


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
        self._context, self._seed, self._work = context, seed, work
        self.reference = _frozen_copy(policy.model)
        self._teacher = _frozen_copy(policy.model) if assigner.recipe.needs_mixture else None
        self._engine = Engine(
            policy.model.parameters(),
            learning_rate=section.learning_rate,
            total_steps=section.iterations * section.minibatches,
            gradient_clip=section.gradient_clip,
        )
        self._empty_in_a_row = 0
        self.history: list[Record] = []
        self.best: Validation | None = None
        self.best_iteration = -1
        """Iterations of training behind the best weights; 0 is the warm start itself."""
        self._best_weights: dict[str, Tensor] = {}
        self._float32 = next(policy.model.parameters()).dtype == torch.float32

    def run(self, on_iteration: Callable[[Record], None] = lambda record: None) -> list[Record]:
        """Train to the end, leave the best weights in the policy, return the history.

        Raises:
            UserError: training diverged, the sampler and the trainer disagree, or
                no group has carried a signal several iterations in a row.
        """
        self._resume()
        for record in self.history:
            on_iteration(record)
        if self.best is None:
            self._keep_if_best(self.world.validate(self.policy), 0)
        while len(self.history) < self.section.iterations:
            record = self.iterate(len(self.history))
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
        lesson = self._select(scored)
        record: Record = {
            "iteration": iteration,
            **self.world.describe(scored.trajectories),
            **_describe_rewards(scored, lesson),
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

    def _select(self, scored: Scored) -> Lesson:
        """Compute advantages and keep what carries a signal."""
        groups = [trajectory.group_id for trajectory in scored.trajectories]
        advantage = self.assigner.recipe.advantage(scored.rewards, groups)
        kept = [
            index
            for index, trajectory in enumerate(scored.trajectories)
            if trajectory.group_id not in advantage.flat
            and scored.rewards[index] is not None
            and any(turn.action_ids for turn in trajectory.turns)
        ]
        trajectories = [scored.trajectories[index] for index in kept]
        return Lesson(trajectories, advantage.advantage_N[kept], len(advantage.flat), advantage.excluded)

    def _train(self, lesson: Lesson, iteration: int) -> Record:
        sequences = [sequence_of(trajectory) for trajectory in lesson.trajectories]
        reference = self._reference_pass(lesson.trajectories, sequences)
        batch = self.assigner.assign(lesson.trajectories, lesson.advantage_N, reference)
        record: Record = dict(self.assigner.summary(batch))
        gap = self._teacher_gap(lesson.trajectories, sequences)
        if gap is not None:
            record["explanation_loss"] = self.assigner.learn(batch, gap)
        prepared = []
        for row, sequence in enumerate(sequences):
            values = {**sequence.values, "advantage": batch.advantage(row, len(sequence))}
            if reference is not None:
                values["reference"] = reference[row].logprob_T
            prepared.append(replace(sequence, values=values))
        record |= self._optimise(prepared, lesson.trajectories[0].temperature, iteration)
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
        self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence]
    ) -> list[Tensor] | None:
        """Return log teacher - log student at every sampled id; None without a teacher."""
        if self._teacher is None:
            return None
        budget = self.section.microbatch_tokens
        teacher = frozen_pass(self._teacher, trajectories, sequences, microbatch_tokens=budget)
        pairs = zip(teacher, sequences, strict=True)
        return [score.logprob_T - sequence.values["behaviour"] for score, sequence in pairs]

    def _optimise(self, sequences: Sequence[TokenSequence], temperature: float, iteration: int) -> Record:
        """Take one optimiser step per minibatch; each trajectory is used once."""
        order = np.random.default_rng(seed_of(self._seed, "minibatches", iteration)).permutation(len(sequences))
        parts = [part.tolist() for part in np.array_split(order, self.section.minibatches) if len(part)]
        tally, norms, skipped, differences = LossTally(), [], 0, [0.0]
        for index, part in enumerate(parts):
            chosen = [sequences[row] for row in part]
            # the weights are still those that sampled: whatever differs now is a fault
            watch = differences if index == 0 else None
            for loss in self._losses(chosen, temperature, tally, watch):
                self._engine.backward(loss)
            if index == 0:
                self._check_mismatch(max(differences))
            report = self._engine.step()
            skipped += report.skipped
            if not report.skipped:
                norms.append(report.gradient_norm)
        return {
            **tally.summary(),
            "gradient_norm": sum(norms) / len(norms) if norms else None,
            "learning_rate": report.learning_rate,
            "skipped_steps": skipped,
            "mismatch": max(differences),
            "trained_tokens": tally.tokens,
        }

    def _losses(
        self, sequences: Sequence[TokenSequence], temperature: float, tally: LossTally, watch: list[float] | None
    ) -> Iterator[Tensor]:
        section = self.section
        low, high = section.clip_low, section.clip_high
        tokens = count_loss_tokens(sequences)
        denominator = self.assigner.recipe.denominator(tokens, len(sequences), self._context)
        for batch in microbatches(sequences, budget=section.microbatch_tokens):
            scored = token_logprobs(
                self.policy.model, batch.ids_BT, batch.attention_BT, temperature=temperature, where_BT=batch.loss_BT
            )
            behaviour_BT, advantage_BT = batch.values["behaviour"], batch.values["advantage"]
            used = (scored.logprob_BT, behaviour_BT, advantage_BT, batch.loss_BT)
            loss = clipped_surrogate(*used, denominator=denominator, clip_low=low, clip_high=high)
            reference_BT = batch.values["reference"] if section.kl_coefficient > 0 else None
            if reference_BT is not None:
                penalty = kl_penalty(scored.logprob_BT, reference_BT, batch.loss_BT, denominator=denominator)
                loss = loss + section.kl_coefficient * penalty
            # -log p of what was sampled averages to the entropy, at no cost
            tally.add(*used, clip_low=low, clip_high=high, reference_BT=reference_BT, entropy_BT=-behaviour_BT)
            if watch is not None:
                watch.append(mismatch(scored.logprob_BT, behaviour_BT, batch.loss_BT))
            yield loss

    def _check_mismatch(self, difference: float) -> None:
        if self._float32 and not difference <= MAX_MISMATCH:
            raise UserError(
                f"the sampler and the trainer disagree by {difference:.2g} nats on the same weights (limit "
                f"{MAX_MISMATCH:g}): the log-probs of the rollouts are not those of this policy. "
                "Was a trajectory changed after it was sampled, or scored at another temperature?"
            )

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


def task_batch(count: int, per_iteration: int, iteration: int, *, seed: int) -> list[int]:
    """Return the task indices of an iteration: epochs of a shuffled order, a pure function of the arguments.

    An epoch ends when fewer than `per_iteration` tasks are left, so that no batch holds a task twice.
    """
    batches = count // per_iteration
    assert batches > 0, (count, per_iteration)
    epoch, place = divmod(iteration, batches)
    order = np.random.default_rng(seed_of(seed, "policy tasks", epoch)).permutation(count)
    chosen: list[int] = order[place * per_iteration : (place + 1) * per_iteration].tolist()
    return chosen


def _describe_rewards(scored: Scored, lesson: Lesson) -> Mapping[str, Any]:
    rewards = [reward for reward in scored.rewards if reward is not None]
    outcomes: dict[str, set[bool]] = {}
    for trajectory in scored.trajectories:
        outcomes.setdefault(trajectory.group_id, set()).add(trajectory.success)
    spread = float(lesson.advantage_N.std(correction=0)) if len(lesson.advantage_N) else 0.0
    return {
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "advantage_spread": spread,
        "groups": len(outcomes),
        "filtered_groups": lesson.filtered_groups,
        "groups_of_one_outcome": sum(len(values) == 1 for values in outcomes.values()),
        "unscored": lesson.excluded,
        "scoring_failures": dict(sorted(scored.failures.items())),
        "trained_trajectories": len(lesson.trajectories),
    }


def _frozen_copy(model: Any) -> Any:
    return copy.deepcopy(model).requires_grad_(False).eval()
