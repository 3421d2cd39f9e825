"""The policy loop: play siblings, weigh their verified advantage, take clipped steps, keep the best on `val`.

The loop does not know which algorithm runs: a `Recipe` says how advantages,
grains and denominators are made. It does not know the environment either: a
`World` plays, scores and validates. A killed run continues from its last
checkpoint and ends with the same weights and history (bit for bit at one
thread).

Legend: N trajectories, B rows, T positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from geartrain import live
from geartrain.algorithms.schedule import linear
from geartrain.algorithms.surrogate import kl_as_reward
from geartrain.algorithms.validity import MAX_EMPTY_IN_A_ROW, SOLVED, inert_iterations
from geartrain.errors import UserError
from geartrain.models.backbone import Policy
from geartrain.placement import on_cpu
from geartrain.policy_section import PolicySection
from geartrain.preemption import asked
from geartrain.progress import note
from geartrain.ranks import ALONE, Ranks
from geartrain.seeds import seed_of
from geartrain.training.batch import TokenSequence, with_value
from geartrain.training.best import Best
from geartrain.training.checkpoint import load_checkpoint, restore_rng_state, rng_state, save_checkpoint
from geartrain.training.credit import BatchCredit, CreditAssigner
from geartrain.training.features import FrozenScores, sequence_of
from geartrain.training.health_numbers import describe_rewards, describe_step, distance
from geartrain.training.in_flight import InFlight
from geartrain.training.lesson import (
    Lesson,
    Pooled,
    charge,
    describe_lesson,
    pool,
    select_lesson,
    shorten,
    some_groups,
)
from geartrain.training.pace import Pace
from geartrain.training.policy_engine import build_engine
from geartrain.training.policy_step import PolicyStep, asks_reference
from geartrain.training.rank_numbers import rank_numbers
from geartrain.training.recorder import Recorder
from geartrain.training.reference import summarise
from geartrain.training.reference_policy import ReferencePolicy
from geartrain.training.reference_server import ServerReference
from geartrain.training.teachers import SHARE, Hint, Teachers, frozen_copy
from geartrain.training.watch import alarms, new_alarms, out_of_patience, refuse_invalid, spreads_of
from geartrain.training.world import Record, World
from geartrain.trajectory import Trajectory


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
        ranks: Ranks = ALONE,
        recorder: Recorder | None = None,
    ) -> None:
        self.policy, self.assigner, self.world, self.section = policy, assigner, world, section
        self._recorder = recorder or Recorder()
        self._seed, self._work, self._context, self._ranks = seed, work, context, ranks
        self.reference = ReferencePolicy(
            frozen_copy(policy.model),
            microbatch_tokens=section.microbatch_tokens,
            want_logprobs=section.uses_kl and not asks_reference(section),
            want_turns=assigner.needs_hidden,
            ranks=ranks,
        )
        self._teachers = Teachers(
            assigner.recipe,
            assigner.settings,
            policy.model,
            iterations=section.iterations,
            microbatch_tokens=section.microbatch_tokens,
            decoder=policy.tokenizer,
            ranks=ranks,
        )
        if not section.train_embeddings:
            for layer in (policy.model.get_input_embeddings(), policy.model.get_output_embeddings()):
                layer.weight.requires_grad_(False)
        self._engine = build_engine(policy.model, section, ranks)
        self._step = PolicyStep(
            policy.model,
            self._engine,
            section,
            assigner.recipe,
            assigner.settings,
            context,
            ranks,
            self.reference.model,
        )
        self._empty_in_a_row = 0
        self._pace = Pace()
        self._server: ServerReference | None = None
        if assigner.recipe.teacher == "siblings" and section.reference_url is not None:
            self._server = ServerReference(section.reference_url, section.reference_model)
        self._summarise: Callable[[Sequence[Trajectory]], str | None] = self._server or summarise
        self._in_flight = InFlight(work)
        self.history: list[Record] = []
        self.best = Best()

    def run(self, on_iteration: Callable[[Record], None] = lambda record: None) -> list[Record]:
        """Train to the end, or out of patience; leave the best weights in the policy, return the history.

        Raises:
            UserError: training diverged, the sampler and the trainer disagree, no group has
                carried a signal several iterations in a row, or the run is not valid (`training.watch`).
        """
        self._resume()
        for record in self.history:
            on_iteration(record)
        start: Record = {}
        if self.best.validation is None:
            validation = self.world.validate(self.policy)
            self.best.consider(validation, 0, self.policy.model)
            start = {"start_val_sampled": validation.sampled, "start_val_greedy": validation.greedy}
        while len(self.history) < self.section.iterations and not self._out_of_patience():
            record = self.iterate(len(self.history))
            if not self.history:
                record |= start
            self.history.append(record)
            ending = self._tell(record)
            if ending or len(self.history) % self.section.checkpoint_every == 0:
                self._save()
            on_iteration(record)
        if len(self.history) < self.section.iterations:
            note(f"policy: {self.section.patience} validations without improvement end it at {len(self.history)}")
        self.policy.model.load_state_dict(self.best.weights)
        return self.history

    def _tell(self, record: Record) -> bool:
        """Let those who watch know of an iteration; return whether a rank was asked to end."""
        mine = rank_numbers(self._ranks, trained_tokens=self._step.counted["trained_tokens"])
        asked_N, ranks = zip(*self._ranks.gather((asked(), mine)), strict=True)
        told = {"seconds": self._pace.seconds, "tokens": self._pace.tokens, "ranks": ranks}
        live.emit("iteration", index=record["iteration"], **told, record=record)
        return any(asked_N)  # one is enough: the others would wait for it

    def iterate(self, iteration: int) -> Record:
        """Play, train, validate when it is time; return the record of this iteration."""
        self._pace.begin()
        with self._pace.timed("play"):
            scored, lesson = self._play(iteration)
        self._pace.seconds["judge"] = scored.judge_seconds
        self._pace.count("played", scored.trajectories)
        self._pace.count("trained", lesson.trajectories)
        self.world.remember(iteration, scored)
        record: Record = {
            "iteration": iteration,
            **self.world.describe(scored.trajectories),
            **describe_lesson(scored, lesson),
            **describe_rewards(scored, lesson),
        }
        with self._recorder.keeping(iteration, self._in_flight, scored, lesson, self._pace):
            if lesson.trajectories:
                self._empty_in_a_row = 0
                with self._pace.timed("train"):
                    record |= self._train(lesson, iteration)
            else:
                self._note_empty(record)
        record["empty_in_a_row"] = self._empty_in_a_row
        done = iteration + 1
        if done % self.section.validate_every == 0 or done == self.section.iterations:
            with self._pace.timed("validate"):
                validation = self.world.validate(self.policy)
            self.best.consider(validation, done, self.policy.model)
            record |= {"val_sampled": validation.sampled, "val_greedy": validation.greedy}
        record["alarms"] = alarms([*self.history, record])
        for alarm in new_alarms(self.history, record["alarms"]):
            note(f"iteration {done}: alarm: {alarm}")
        return record

    def _play(self, iteration: int) -> tuple[Pooled, Lesson]:
        """Play until enough groups carry a signal, or as often as the method allows (dynamic sampling of DAPO)."""
        settings, wanted = self.assigner.settings, self.section.tasks_per_iteration
        self.reference.forget()
        rounds: list[Pooled] = []
        plain: list[float | None] = []
        for refill in range(1 + int(settings.get("refills", 0))):
            scored = self.world.score(self._played(iteration, refill))
            plain += scored.rewards
            share = float(settings.get("overlong_share", 0.0))
            rounds.append(self._charge_kl(shorten(scored, context=self._context, share=share), iteration))
            pooled = pool(rounds)
            lesson = select_lesson(
                pooled, self.assigner.recipe.advantage, learn_from_cut=self.section.learn_from_cut, plain=plain
            )
            if lesson.groups >= wanted:
                break
        return pooled, lesson.first(wanted)

    def _played(self, iteration: int, refill: int) -> list[Trajectory]:
        """Play a round, or take what a run that was ended since had played."""
        kept = self._ranks.first(self._in_flight.read(iteration, refill) if self._ranks.leads else None)
        if kept is not None:
            return kept
        played = self.world.play(self.policy, iteration, refill)
        if self._ranks.leads:
            self._in_flight.write(iteration, refill, played)
        return played

    def _charge_kl(self, scored: Pooled, iteration: int) -> Pooled:
        """Let each trajectory pay for its distance to the warm start, where the KL is part of the reward."""
        coefficient = linear(self.section.kl_coefficient, self.section.kl_final, self._share(iteration))
        if self.section.kl_place == "loss" or coefficient == 0.0:
            return scored
        sequences = [sequence_of(trajectory) for trajectory in scored.trajectories]
        found = self.reference.divergence(
            self.policy.model, scored.trajectories, sequences, estimator=self.section.kl_measure
        )
        rewards = [kl_as_reward(kl_T, s.loss_T) for s, kl_T in zip(sequences, found, strict=True)]
        return charge(scored, [-coefficient * float(reward_T.sum()) for reward_T in rewards])

    def _share(self, iteration: int) -> float:
        """Return the share of the run that is over when an iteration begins."""
        return iteration / max(1, self.section.iterations)

    def _train(self, lesson: Lesson, iteration: int) -> Record:
        sequences = [sequence_of(trajectory) for trajectory in lesson.trajectories]
        share, hint = self._share(iteration), self._hint(lesson.trajectories)
        self._teachers.begin(iteration)
        reference = self._reference_pass(lesson.trajectories, sequences)
        batch = self._assign(lesson, sequences, reference, hint, share)
        self._recorder.credited(batch)
        record: Record = {"staleness": iteration - min(t.policy_version for t in lesson.trajectories)}
        record |= self.assigner.summary(batch)
        rows: list[int] = []
        if self.assigner.explains_teacher:
            rows = some_groups(lesson.trajectories, share=SHARE, seed=seed_of(self._seed, "teacher", iteration))
        record |= self.assigner.learn(lesson, batch, rows, self._teachers.gap(lesson.trajectories, sequences, rows))
        self._agree()
        prepared = [
            replace(sequence, values={**sequence.values, "advantage": batch.advantage(row, len(sequence))})
            for row, sequence in enumerate(sequences)
        ]
        if reference is not None:
            prepared = [with_value(s, "reference", r.logprob_T) for s, r in zip(prepared, reference, strict=True)]
        if self._teachers.distils:
            prepared = self._with_distribution(prepared, lesson.trajectories, batch, hint)
        own = self.assigner.recipe, self.assigner.settings
        so_far = [*self.history, {"iteration": iteration, **record}]
        spreads = spreads_of(so_far, *own, self.section.iterations)
        refuse_invalid(*own, batch, prepared, lesson.trajectories, spreads)
        record["inert_iterations"] = inert_iterations(spreads)
        drift = None if self.section.uses_kl else self.reference.drift(lesson.trajectories, sequences)
        record |= describe_step(prepared, teacher=self._teachers.distance(), drift=drift)
        record |= self._step.run(
            prepared,
            temperature=lesson.trajectories[0].temperature,
            seed=seed_of(self._seed, "minibatches", iteration),
            share=share,
        )
        self._engine.publish()
        record["model_distance"], record["model_distance_rms"] = distance(self.policy.model, self.reference.model)
        self._teachers.end()
        if self._server is not None:
            record["reference_failures"] = dict(self._server.failures)
        return record

    def _agree(self) -> None:
        """Take rank 0's heads: all have learned the same, but for the last bits of another device."""
        if self._ranks.size > 1:
            self.assigner.load_state_dict(self._ranks.first(on_cpu(self.assigner.state_dict())))

    def weigh(self, lesson: Lesson) -> BatchCredit:
        """Return the credit that a lesson would be given now, without learning from it."""
        sequences = [sequence_of(trajectory) for trajectory in lesson.trajectories]
        reference = self._reference_pass(lesson.trajectories, sequences)
        hint = self._hint(lesson.trajectories)
        return self._assign(lesson, sequences, reference, hint, self._share(len(self.history)))

    def _assign(
        self,
        lesson: Lesson,
        sequences: Sequence[TokenSequence],
        reference: Sequence[FrozenScores] | None,
        hint: Hint,
        share: float,
    ) -> BatchCredit:
        view = self._teachers.view(lesson.trajectories, sequences, hint) if self.assigner.recipe.weigh else None
        return self.assigner.assign(lesson, reference, view, run_share=share)

    def _hint(self, trajectories: Sequence[Trajectory]) -> Hint:
        """Return what gives a teacher's openings: the answer, or what the siblings of the group tell."""
        if self.assigner.recipe.teacher == "siblings":
            groups: dict[str, list[Trajectory]] = {}
            for trajectory in trajectories:
                groups.setdefault(trajectory.group_id, []).append(trajectory)
            # asked once: two answers of a server would be two teachers
            mine = groups if self._ranks.leads else {}
            told = self._ranks.first({name: self._summarise(siblings) for name, siblings in mine.items()})

            def from_siblings(trajectory: Trajectory) -> list[int] | None:
                text = told[trajectory.group_id]
                return None if text is None else self.world.opening(trajectory, text)

            return from_siblings
        return lambda trajectory: self.world.opening(trajectory, self.world.answer(trajectory))

    def _with_distribution(
        self,
        sequences: Sequence[TokenSequence],
        trajectories: Sequence[Trajectory],
        batch: BatchCredit,
        hint: Hint,
    ) -> list[TokenSequence]:
        """Add the teacher's distribution, and how hard it pulls at each token."""
        found = self._teachers.distributions(trajectories, sequences, hint)
        widest = max((len(d.support_TK[0]) for d in found if d is not None), default=1)
        prepared = []
        for row, (sequence, distribution) in enumerate(zip(sequences, found, strict=True)):
            length = len(sequence)
            if distribution is None:
                support = torch.full((length, widest), -1)
                values = {"support": support, "teacher": torch.zeros(length, widest + 1), "pull": torch.zeros(length)}
            else:
                pull_T = self.assigner.pull(batch, row, distribution.confidence_T)
                values = {"support": distribution.support_TK, "teacher": distribution.logprob_TK, "pull": pull_T}
            prepared.append(replace(sequence, values={**sequence.values, **values}))
        return prepared

    def _reference_pass(
        self, trajectories: Sequence[Trajectory], sequences: Sequence[TokenSequence]
    ) -> list[FrozenScores] | None:
        """Score with the frozen warm start, for whoever needs it."""
        if not self.reference.wanted:
            return None
        return self.reference.score(trajectories, sequences)

    def _out_of_patience(self) -> bool:
        return out_of_patience(self.history, self.best.iteration, self.section.patience)

    def _note_empty(self, record: Record) -> None:
        self._empty_in_a_row += 1
        if self._empty_in_a_row >= MAX_EMPTY_IN_A_ROW and record["success"] < SOLVED:
            raise UserError(
                f"{self._empty_in_a_row} iterations in a row without a group whose siblings differ in reward, at "
                f"{record['success']:.0%} success: there is nothing to learn from. Raise warm_start.demonstrations "
                "or policy.siblings, or the sampling temperature."
            )

    def _save(self) -> None:
        with self._pace.timed("save"):
            self._write_checkpoint()
        live.emit("checkpoint", step=len(self.history), seconds=self._pace.seconds["save"])

    def _write_checkpoint(self) -> None:
        engine = self._engine.save(self._work, len(self.history))
        state = {
            "model": self.policy.model.state_dict(),
            "engine": engine,
            "assigner": self.assigner.state_dict(),
            "teacher": self._teachers.state_dict(),
            "best": self.best.state_dict(),
            "world": self.world.state_dict(),
            "empty_in_a_row": self._empty_in_a_row,
            "history": self.history,
            "rng": rng_state(self.policy.model.device),
        }
        if self._ranks.leads:
            save_checkpoint(self._work, state, step=len(self.history))
            self._in_flight.forget(but=len(self.history))
        self._engine.prune(self._work, engine)

    def _resume(self) -> None:
        state = self._ranks.first(load_checkpoint(self._work) if self._ranks.leads else None)
        if self._ranks.leads:
            self._in_flight.forget(but=0 if state is None else len(state["history"]))
        if state is None:
            return
        self.policy.model.load_state_dict(state["model"])
        self._engine.load(self._work, state["engine"])
        self.assigner.load_state_dict(state["assigner"])
        self._teachers.load_state_dict(state["teacher"])
        self.best.load_state_dict(state["best"])
        self.world.load_state_dict(state["world"])
        self._empty_in_a_row, self.history = state["empty_in_a_row"], state["history"]
        restore_rng_state(state["rng"], self.policy.model.device)
