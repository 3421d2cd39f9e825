"""Every recipe's credit of single turns, held against the exact advantage of a policy that is known.

The episodes are those of `known_policy`; advantage and weight come from the
trainer's own `CreditAssigner`. What a recipe would ask a model for is asked of
tables: a past self errs more, a teacher that knows the answer errs less, one
that has read the siblings leans to the way of the best of them. What a recipe
learns beside the policy it learns here as it does there, on siblings of other
tasks.

Legend: N trajectories, T positions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain.algorithms.advantage import group_relative
from geartrain.algorithms.divergence import Direction
from geartrain.algorithms.evidence import Settings, TeacherView
from geartrain.algorithms.recipe import RECIPES, Recipe
from geartrain.config import CriticSection
from geartrain.environments.environment import Environment, Task
from geartrain.environments.twophase.exact import Mdp, Policy, State, evaluate, expert_action, tilted, uniform
from geartrain.environments.twophase.replay import ExactStep, exact_steps, trace
from geartrain.methods import settings_of
from geartrain.models.chat import ChatFormat
from geartrain.policy_section import PolicySection
from geartrain.rewards.mix import RewardMix
from geartrain.rollouts.collect import Limits
from geartrain.seeds import seed_of
from geartrain.study.known_policy import WIDTH, Table, Told, features, play, reread
from geartrain.training.credit import CreditAssigner, Critic
from geartrain.training.credit_report import credit_records
from geartrain.training.critic import Labelling, judge_critic, split_by_task, train_critic
from geartrain.training.features import FrozenScores, TurnFeatures
from geartrain.training.lesson import Lesson, Pooled, select_lesson, shorten, some_groups
from geartrain.training.reference import choose, literal_tokens, summarise
from geartrain.training.teachers import SHARE
from geartrain.trajectory import Trajectory

PAST = 0.5
"""Nats by which a past self errs more."""
TOLD = 2.0
"""Nats by which a teacher leans to what it was told."""
ITERATIONS = 30
"""Batches that learned parts see before they are scored; the practice is gone through several times."""
RUN_SHARE = 0.5
"""Share of the run that is over: past every warm-up."""
LIMITS = Limits(context=4096, max_turns=16, spare_turns=4)
TEACHERS = {
    "none": "",
    "past_self": "teacher: another self, {:g} nats {}",
    "privileged": f"teacher: {TOLD:g} nats nearer to the answer",
    "siblings": f"teacher: {TOLD:g} nats nearer to the best sibling's way",
}
"""Teacher of a recipe -> who stands in for it."""


@dataclass(frozen=True)
class Played:
    """Scored siblings of some tasks whose rewards differ, and who played them."""

    tasks: Mapping[str, Task]
    tables: Mapping[str, Table]
    """By task."""
    pooled: Pooled
    features: Sequence[TurnFeatures]
    _told: dict[tuple[str, str, float], list[Told | None]] = field(default_factory=dict)

    @property
    def trajectories(self) -> Sequence[Trajectory]:
        """The episodes, group by group."""
        return self.pooled.trajectories

    def exact(self) -> list[list[ExactStep]]:
        """Return the truth about every turn, under the very policy that played."""
        values = {name: evaluate(table.mdp, table.policy) for name, table in self.tables.items()}
        return [exact_steps(self.tables[t.task_id].mdp, values[t.task_id], t.turns) for t in self.trajectories]

    def told(self, teacher: str, *, direction: Direction = "reverse", behind: float = PAST) -> list[Told | None]:
        """Return what a kind of teacher makes of each episode; None where it has nothing to go by."""
        key = (teacher, direction, behind)
        if key not in self._told:
            others = {name: self._teacher(teacher, name, behind) for name in self.tables}
            self._told[key] = [
                None if other is None else reread(self.tables[t.task_id], other, t, direction=direction)
                for t in self.trajectories
                for other in [others[t.task_id]]
            ]
        return self._told[key]

    def _teacher(self, kind: str, task_id: str, behind: float) -> Table | None:
        own = self.tables[task_id]
        wanted = partial(expert_action, own.mdp)
        policy: Policy
        if kind == "siblings":
            siblings = [t for t in self.trajectories if t.task_id == task_id]
            if summarise(siblings) is None:
                return None
            way = {s._replace(calls=0): action for s, action in trace(own.mdp, choose(siblings)[0].turns)}

            def known(state: State) -> str | None:
                return way.get(state._replace(calls=0))

            policy = tilted(own.policy, known, TOLD)
        else:
            policy = tilted(own.policy, wanted, TOLD if kind == "privileged" else -behind)
        return Table(own.mdp, policy, own.chat)


def play_groups(
    environment: Environment, tasks: Sequence[Task], chat: ChatFormat, *, edge: float, siblings: int, seed: int
) -> Played:
    """Play siblings of tasks under an expert that errs, score them as training does, keep groups that differ in reward.

    Args:
        environment: `twophase`.
        tasks: of it.
        chat: of any tokenizer.
        edge: nats by which the expert's action stands above each other one; low errs more.
        siblings: episodes per task.
        seed: of the play.
    """
    tables = {}
    for task in tasks:
        mdp = Mdp.of(task, horizon=LIMITS.turns(task))
        tables[task.task_id] = Table(mdp, tilted(uniform(mdp), partial(expert_action, mdp), edge), chat)
    trajectories = [
        play(environment, task, tables[task.task_id], sibling=sibling, seed=seed, limits=LIMITS)
        for task in tasks
        for sibling in range(siblings)
    ]
    by_id = {task.task_id: task for task in tasks}
    mix = RewardMix(
        chat.tokenizer, model_weight=0.0, invalid_call_reward=PolicySection().invalid_call_reward, learned=None
    )
    scored = mix.score(trajectories, by_id)
    flat = group_relative(scored.rewards, [t.group_id for t in trajectories]).flat
    kept = [row for row, t in enumerate(trajectories) if t.group_id not in flat]
    pooled = Pooled([scored.rewards[row] for row in kept], [scored.trajectories[row] for row in kept], scored.failures)
    used = {t.task_id: tables[t.task_id] for t in pooled.trajectories}
    return Played(by_id, used, pooled, [features(used[t.task_id], t) for t in pooled.trajectories])


def why_unscored(recipe: Recipe) -> str | None:
    """Return why a recipe's credit cannot be scored here, or None."""
    if not recipe.policy_gradient:
        return "its loss is the distillation alone: no turn has a credit"
    if recipe.teacher not in TEACHERS:
        return f"nobody stands in for its teacher, {recipe.teacher!r}"
    return None


def stand_ins(recipe: Recipe, settings: Settings, *, behind: float = PAST) -> str:
    """Say what a recipe was given in place of a model, for people; `behind` as in `credit_of`."""
    learned = [
        name
        for name, used in (
            ("critic", recipe.needs_critic),
            ("mixture", recipe.learns_mixture),
            ("values", recipe.needs_values),
            ("granularity", settings.get("granularity") == "learned"),
        )
        if used
    ]
    unasked = not _weighs(recipe) and settings.get("objective") != "explanation"
    teacher = "" if unasked else TEACHERS[recipe.teacher].format(abs(behind), "worse" if behind > 0 else "better")
    said = [teacher, f"learned here: {', '.join(learned)}" if learned else ""]
    return "; ".join(text for text in said if text)


def credit_of(
    name: str,
    played: Played,
    practice: Sequence[Played],
    *,
    given: Settings | None = None,
    behind: float = PAST,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Return the credit that a recipe gives to every turn, one record per episode (`training.credit_report`).

    Args:
        name: a row of `RECIPES` that `why_unscored` has nothing against.
        played: what is credited.
        practice: batches of other tasks, for what the recipe learns beside the policy.
        given: settings other than the defaults.
        behind: nats by which a past self errs more than the policy; below 0 it is ahead.
        seed: of what is learned.
    """
    recipe, settings = RECIPES[name], settings_of(name, given or {})
    assigner = CreditAssigner(
        recipe,
        settings,
        critic=_critic(practice, seed) if recipe.needs_critic else None,
        width=WIDTH,
        iterations=ITERATIONS,
        seed=seed,
    )
    if assigner.needs_hidden:
        for iteration in range(ITERATIONS):
            _learn(assigner, practice[iteration % len(practice)], behind, seed_of(seed, "teacher", iteration))
    lesson = _lesson(recipe, settings, played)
    batch = assigner.assign(lesson, _reference(played), _view(recipe, settings, played, behind), run_share=RUN_SHARE)
    return credit_records(batch, assigner, lesson, {name: task.prompt for name, task in played.tasks.items()})


def with_credit(records: Sequence[Mapping[str, Any]], credit: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Return records with other credit of their turns: controls."""
    return [
        {**record, "turns": [{**turn, "credit": c} for turn, c in zip(record["turns"], row, strict=True)]}
        for record, row in zip(records, credit, strict=True)
    ]


def shuffled(exact: Sequence[Sequence[ExactStep]], *, seed: int) -> list[list[float]]:
    """Return the exact advantages dealt out anew among all turns: credit that knows nothing."""
    flat = np.random.default_rng(seed).permutation([step.advantage for steps in exact for step in steps])
    stops = np.cumsum([len(steps) for steps in exact])[:-1]
    return [part.tolist() for part in np.split(flat, stops)]


def _lesson(recipe: Recipe, settings: Settings, played: Played) -> Lesson:
    share = float(settings.get("overlong_share", 0.0))
    short = shorten(played.pooled, context=LIMITS.context, share=share)
    lesson = select_lesson(short, recipe.advantage, plain=played.pooled.rewards)
    assert len(lesson.trajectories) == len(played.trajectories), "every recipe is scored on the same turns"
    return lesson


def _reference(played: Played) -> list[FrozenScores]:
    both = zip(played.trajectories, played.features, strict=True)
    return [FrozenScores(torch.zeros(len(t.token_ids())), turns) for t, turns in both]


def _view(recipe: Recipe, settings: Settings, played: Played, behind: float) -> TeacherView | None:
    """Return what the recipe's teacher says, as `training.teachers` would of a model."""
    if not _weighs(recipe):
        return None
    direction: Direction = str(settings.get("direction", "reverse"))  # type: ignore[assignment]
    told = played.told(recipe.teacher, direction=direction, behind=behind)
    nothing = [torch.zeros(len(t.token_ids())) for t in played.trajectories]
    filled = [Told(zero, zero, zero) if t is None else t for t, zero in zip(told, nothing, strict=True)]
    known_N = torch.tensor([t is not None for t in told])
    decoder = next(iter(played.tables.values())).chat.tokenizer
    masked_NT = _pad([literal_tokens(t, decoder) for t in played.trajectories])
    return TeacherView(
        _pad([t.logprob_T for t in filled]),
        _pad([t.entropy_T for t in filled]),
        _pad([t.divergence_T for t in filled]),
        masked_NT,
        known_N,
    )


def _weighs(recipe: Recipe) -> bool:
    """Tell whether it is the teacher that weighs; a past self may explain the grains alone."""
    return recipe.teacher in ("privileged", "siblings") or recipe.weighs_by_past_self


def _learn(assigner: CreditAssigner, played: Played, behind: float, seed: int) -> None:
    recipe, settings = assigner.recipe, assigner.settings
    lesson, view = _lesson(recipe, settings, played), _view(recipe, settings, played, behind)
    batch = assigner.assign(lesson, _reference(played), view, run_share=RUN_SHARE)
    rows: list[int] = []
    gap: list[Tensor] = []
    if assigner.explains_teacher:
        rows = some_groups(lesson.trajectories, share=SHARE, seed=seed)
        for row, told in ((row, played.told(recipe.teacher, behind=behind)[row]) for row in rows):
            assert told is not None, "a past self has always something to say"
            gap.append(told.logprob_T - torch.tensor(lesson.trajectories[row].behaviour_logprobs()))
    assigner.learn(lesson, batch, rows, gap)


def _critic(practice: Sequence[Played], seed: int) -> Critic:
    """Train the sibling critic as its stage does."""
    section = CriticSection()
    labelling = Labelling(section.shrinkage, section.subgoal_credit, section.clip, section.similarity)
    trajectories = [t for played in practice for t in played.trajectories]
    data = labelling.label(trajectories, [f for played in practice for f in played.features])
    training, validation = split_by_task(data, validation_share=section.validation_share, seed=seed)
    settings: dict[str, Any] = {"hidden": section.hidden, "learning_rate": section.learning_rate, "seed": seed}
    head, _ = train_critic(training, validation, epochs=section.epochs, **settings)
    return Critic(head, max(0.0, judge_critic(head, validation)["correlation"] or 0.0), None, labelling)


def _pad(rows: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
