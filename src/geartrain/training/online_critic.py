"""The sibling critic while the policy moves: refreshed each iteration, queried through a slow copy.

A critic that was trained on the warm start's siblings describes that policy, not
the one that is being trained. Each iteration it first scores the new batch
(through its slow copy), then is compared with that batch's own sibling labels,
which it has not seen: that correlation is what it is trusted by next. Only then
it learns them.

Source: the article on SGCD, see `algorithms.sibling`; trust by fresh batches: ours.

Legend: S turns of all trajectories, H width.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from geartrain.algorithms.evidence import Settings
from geartrain.models.heads import CriticHead
from geartrain.placement import device_of
from geartrain.training.critic import Labelling, pearson
from geartrain.training.engine import Engine
from geartrain.training.features import TurnFeatures
from geartrain.training.health_numbers import distance
from geartrain.trajectory import Trajectory

TRUST_DECAY = 0.8
"""What the reliability keeps of itself per batch: one batch's correlation is noisy."""


class OnlineCritic:
    """A critic with a slow copy and a reliability; `critic_steps` 0 leaves all of it as it was trained."""

    def __init__(
        self, head: CriticHead, reliability: float, labelling: Labelling | None, settings: Settings, *, iterations: int
    ) -> None:
        self.head, self.reliability, self._labelling = head, reliability, labelling
        self.target = copy.deepcopy(head).requires_grad_(False).eval()
        """What is queried."""
        self._device = device_of(head)
        self.steps = int(settings.get("critic_steps", 0))
        self._decay = float(settings.get("critic_decay", 0.9))
        self._engine: Engine | None = None
        if self.steps > 0:
            self._start = copy.deepcopy(self.target)
            rate = float(settings["critic_learning_rate"])
            self._engine = Engine(
                head.requires_grad_(True).parameters(), learning_rate=rate, total_steps=iterations * self.steps
            )

    @torch.no_grad()
    def __call__(self, features: Sequence[TurnFeatures]) -> Tensor:
        """Return the score of every turn, [S]."""
        state_SH, action_SH = (torch.cat([getattr(f, name) for f in features]) for name in ("state_SH", "action_SH"))
        score_S: Tensor = self.target(state_SH.to(self._device), action_SH.to(self._device)).cpu()
        return score_S

    def fit(self, trajectories: Sequence[Trajectory], features: Sequence[TurnFeatures]) -> dict[str, float]:
        """Judge the critic by a batch that it has not seen, then learn it; return what was found before.

        `critic_distance` is how far the weights that are queried have come from those that the run began with.
        """
        if self._labelling is None:
            return {}
        data = self._labelling.label(trajectories, features).to(self._device)
        with torch.no_grad():
            found = pearson(self.target(data.state_SH, data.action_SH), data.credit_S)
        if self._engine is None:
            return {"critic_correlation": found or 0.0, "critic_reliability": self.reliability}
        self.reliability = TRUST_DECAY * self.reliability + (1.0 - TRUST_DECAY) * max(0.0, found or 0.0)
        first = 0.0
        for step in range(self.steps):
            error = (self.head(data.state_SH, data.action_SH) - data.credit_S).square().mean()
            first = float(error.detach()) if step == 0 else first
            self._engine.update([error])
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.head.parameters(), strict=True):
                slow.lerp_(fast, 1.0 - self._decay)
        told = {"critic_loss": first, "critic_correlation": found or 0.0, "critic_reliability": self.reliability}
        return {**told, "critic_distance": distance(self.target, self._start, frozen_too=True)[0]}

    def state_dict(self) -> dict[str, Any]:
        """Return what has been learned."""
        if self._engine is None:
            return {}
        return {
            "head": self.head.state_dict(),
            "target": self.target.state_dict(),
            "engine": self._engine.state_dict(),
            "reliability": self.reliability,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`'s value."""
        if self._engine is not None:
            self.head.load_state_dict(state["head"])
            self.target.load_state_dict(state["target"])
            self._engine.load_state_dict(state["engine"])
            self.reliability = state["reliability"]
