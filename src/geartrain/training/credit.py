"""From a batch of trajectories to weighted advantages: critic, grains, mixture, all detached from the policy.

Legend: N trajectories, T positions, S turns of all trajectories, K grains, H width.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geartrain.algorithms.evidence import Evidence, Settings, TeacherView
from geartrain.algorithms.granularity import fuse, pull
from geartrain.algorithms.recipe import Credit, Recipe, assign_credit
from geartrain.errors import UserError
from geartrain.models.heads import CriticHead, load_critic_head
from geartrain.placement import CPU
from geartrain.training.credit_numbers import (
    describe_grains,
    describe_granularity,
    describe_mixture,
    describe_ratio,
    describe_weights,
)
from geartrain.training.critic import Labelling
from geartrain.training.evidence import gather
from geartrain.training.features import Encoder, FrozenScores, TextEncoder, TurnFeatures
from geartrain.training.learners import Granularity, Mixture, Values
from geartrain.training.lesson import Lesson
from geartrain.training.online_critic import OnlineCritic


@dataclass(frozen=True)
class Critic:
    """A trained sibling critic."""

    head: CriticHead
    reliability: float
    """Correlation with its labels on held-out tasks, in [0, 1]."""
    encoder: Encoder | None
    """None reads the reference model's hidden states."""
    labelling: Labelling | None = None
    """How its labels were made, to go on learning; None: it stays as it is."""


def load_critic(folder: Path, decode: Callable[[list[int]], str], *, device: torch.device = CPU) -> Critic:
    """Load the `critic` artifact, to `device`.

    Raises:
        UserError: the folder holds no critic.
    """
    try:
        record = json.loads((folder / "critic.json").read_text(encoding="utf-8"))
        own = record["features"] == "warm_start"
        encoder = None if own else TextEncoder(folder / "encoder", decode, device=device)
        head = load_critic_head(folder / "critic.safetensors", device=device)
        return Critic(head, float(record["reliability"]), encoder, Labelling(**record["labels"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: no critic in this folder ({error!r:.200}). Run the stage `critic`.") from error


@dataclass(frozen=True)
class BatchCredit:
    """Credit of one batch, in the order of its trajectories."""

    credit: Credit
    evidence: Evidence
    state_SH: Tensor | None
    """Hidden states before the turns: inputs of what is learned."""
    critic_S: Tensor | None
    mixture_SK: Tensor | None
    critic_features: Sequence[TurnFeatures] = ()
    """What the critic read."""

    def advantage(self, row: int, length: int) -> Tensor:
        """Return the weighted advantage of one trajectory, [length]."""
        return self.credit.advantage_NT[row, :length]


class CreditAssigner:
    """A recipe with its settings and with what it learns."""

    def __init__(
        self,
        recipe: Recipe,
        settings: Settings,
        *,
        critic: Critic | None,
        width: int,
        iterations: int,
        seed: int,
        device: torch.device = CPU,
    ) -> None:
        """Take a recipe; what it learns beside the policy lies on `device`, a critic where it was loaded."""
        assert critic is not None or not recipe.needs_critic, "the recipe needs a critic"
        self.recipe, self.settings = recipe, settings
        self.critic: OnlineCritic | None = None
        self._encoder: Encoder | None = None
        if critic is not None and recipe.needs_critic:
            self._encoder = critic.encoder
            self.critic = OnlineCritic(
                critic.head, critic.reliability, critic.labelling, settings, iterations=iterations
            )
        self.mixture: Mixture | None = None
        self.values: Values | None = None
        self.granularity: Granularity | None = None
        shared: dict[str, Any] = {"iterations": iterations, "seed": seed, "device": device}
        if recipe.learns_mixture:
            self.mixture = Mixture(width, len(recipe.grains), settings, **shared)
        if recipe.needs_values:
            self.values = Values(width, settings, **shared)
        if settings.get("granularity") == "learned":
            self.granularity = Granularity(width, **shared)

    @property
    def needs_hidden(self) -> bool:
        """Whether the reference pass must return hidden states."""
        own_critic = self.critic is not None and self._encoder is None
        return own_critic or any(learner is not None for learner in self._heads().values())

    def assign(
        self,
        lesson: Lesson,
        reference: Sequence[FrozenScores] | None,
        teacher: TeacherView | None = None,
        *,
        run_share: float = 1.0,
    ) -> BatchCredit:
        """Weigh the advantages of a lesson.

        Args:
            lesson: trajectories with step and token rewards filled; groups whole, or filtered as groups.
            reference: the reference pass, with hidden states if `needs_hidden`.
            teacher: what the recipe's teacher says, if it has one that weighs.
            run_share: share of the run that is over.
        """
        evidence = gather(
            lesson.trajectories,
            advantage_N=lesson.advantage_N,
            reward_N=lesson.reward_N,
            run_share=run_share,
            step_discount=float(self.settings.get("step_discount", 0.0)),
            token_discount=float(self.settings.get("token_discount", 0.0)),
        )
        features = self._features(lesson, reference)
        critic_S, state_SH, mixture_SK = None, None, None
        read: Sequence[TurnFeatures] = ()
        if self.critic is not None:
            read = features if self._encoder is None else self._encoder(lesson.trajectories)
            critic_S = self.critic(read)
            evidence = replace(
                evidence, critic_NT=evidence.spread(critic_S), critic_reliability=self.critic.reliability
            )
        if any(learner is not None for learner in self._heads().values()):
            state_SH = _join(features, "state_SH")
            evidence = self._with_learned(evidence, state_SH)
            mixture_SK = None if self.mixture is None else self.mixture(state_SH)
        mixture_NTK = None if mixture_SK is None else evidence.spread(mixture_SK)
        evidence = replace(evidence, teacher=teacher)
        credit = assign_credit(self.recipe, evidence, mixture_NTK, settings=self.settings)
        return BatchCredit(credit, evidence, state_SH, critic_S, mixture_SK, read)

    def learn(
        self, lesson: Lesson, batch: BatchCredit, rows: Sequence[int] = (), gap: Sequence[Tensor] = ()
    ) -> dict[str, float | None]:
        """Teach what is learned on trajectories that have been weighed already; return losses from before.

        With them comes the ratio to the teacher, where it is `gap` that tells.

        Args:
            lesson: what was weighed.
            batch: from `assign`.
            rows: trajectories that a past self has scored; whole groups.
            gap: log teacher - log student at each sampled id, [T] per entry of `rows`.
        """
        losses: dict[str, float | None] = {}
        if self.critic is not None:
            losses |= self.critic.fit(lesson.trajectories, batch.critic_features)
        if batch.state_SH is None:
            return losses
        if gap:
            losses |= _ratio_of_some(batch.evidence, rows, gap)
        if self.mixture is not None and batch.credit.grain_NTK is not None:
            arguments = (batch.state_SH, batch.credit.grain_NTK, batch.evidence)
            explains = self.mixture.objective == "explanation"
            losses["explanation_loss" if explains else "outcome_loss"] = (
                self.mixture.explain(*arguments, rows, gap) if explains else self.mixture.align(*arguments)
            )
        if self.values is not None:
            losses["value_loss"] = self.values.fit(batch.state_SH, batch.evidence)
        if self.granularity is not None:
            losses["granularity_loss"] = self.granularity.fit(batch.state_SH, batch.evidence)
        return losses

    def pull(self, batch: BatchCredit, row: int, confidence_T: Tensor) -> Tensor:
        """Return how hard a teacher's distribution pulls at each token of one trajectory, [T]."""
        if batch.credit.grain_NTK is None:  # direct distillation: everywhere alike
            return torch.ones_like(confidence_T)
        length = len(confidence_T)
        grain_TK = batch.credit.grain_NTK[row, :length]
        even_TK = torch.full_like(grain_TK, 1.0 / grain_TK.shape[-1])
        turn_T = batch.evidence.turn_NT[row, :length]
        mixture_TK = even_TK if batch.mixture_SK is None else batch.mixture_SK[turn_T.clamp(min=0)]
        return pull(
            confidence_T,
            fuse(grain_TK, mixture_TK),
            confidence_power=float(self.settings["confidence_power"]),
            advantage_power=float(self.settings["advantage_power"]),
        )

    @property
    def explains_teacher(self) -> bool:
        """Whether the mixture learns from a teacher's log ratios."""
        return self.mixture is not None and self.mixture.objective == "explanation"

    def summary(self, batch: BatchCredit) -> dict[str, float | None]:
        """Return the distribution of the weights, what credit goes with, and what it was made of."""
        record = describe_weights(batch.credit, batch.evidence)
        record |= describe_grains(self.recipe.grains, batch.evidence)
        if self.recipe.weigh is not None:
            record |= describe_granularity(batch.evidence, self.settings)
        if batch.critic_S is not None:
            record["critic_spread"] = float(batch.critic_S.std(correction=0))
            record["critic_reliability"] = batch.evidence.critic_reliability
        if batch.mixture_SK is not None:
            means = batch.mixture_SK.mean(0).tolist()
            record |= {f"grain_{name}": mean for name, mean in zip(self.recipe.grains, means, strict=True)}
            record |= describe_mixture(batch.mixture_SK)
        return record

    def state_dict(self) -> dict[str, Any]:
        """Return what has been learned."""
        return {name: learner.state_dict() for name, learner in self._learners().items() if learner is not None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`'s value."""
        for name, learner in self._learners().items():
            if learner is not None:
                learner.load_state_dict(state[name])

    def _heads(self) -> dict[str, Mixture | Values | Granularity | None]:
        """What reads the hidden states before the turns."""
        return {"mixture": self.mixture, "values": self.values, "granularity": self.granularity}

    def _learners(self) -> dict[str, Mixture | Values | Granularity | OnlineCritic | None]:
        return {**self._heads(), "critic": self.critic}

    def _with_learned(self, evidence: Evidence, state_SH: Tensor) -> Evidence:
        if self.values is not None:
            evidence = replace(evidence, value_S=self.values(state_SH))
        if self.granularity is not None:
            evidence = replace(evidence, granularity_NT=evidence.spread(self.granularity(state_SH)))
        return evidence

    def _features(self, lesson: Lesson, reference: Sequence[FrozenScores] | None) -> list[TurnFeatures]:
        if not self.needs_hidden:
            return []
        assert reference is not None, "the recipe needs the reference pass"
        features = [score.turns for score in reference if score.turns is not None]
        assert len(features) == len(lesson.trajectories), "the reference pass returned no hidden states"
        return features


def _ratio_of_some(evidence: Evidence, rows: Sequence[int], gap: Sequence[Tensor]) -> dict[str, float | None]:
    log_ratio_NT, scored_N = torch.zeros(evidence.mask_NT.shape), torch.zeros(len(evidence.group_N), dtype=torch.bool)
    for row, gap_T in zip(rows, gap, strict=True):
        log_ratio_NT[row, : len(gap_T)] = -gap_T
        scored_N[row] = True
    return describe_ratio(log_ratio_NT, evidence, scored_N)


def _join(features: Sequence[TurnFeatures], name: str) -> Tensor:
    return torch.cat([getattr(feature, name) for feature in features])
