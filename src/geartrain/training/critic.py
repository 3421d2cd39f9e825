"""Train the sibling critic: labels from siblings, one small head on frozen features, tasks held out.

Legend: S turns of all trajectories, H width of the features.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain.algorithms.sibling import match_by_similarity, match_exactly, sibling_labels, state_keys
from geartrain.errors import UserError
from geartrain.models.heads import CriticHead
from geartrain.placement import CPU, device_of, seeded
from geartrain.seeds import seed_of
from geartrain.training.features import TurnFeatures
from geartrain.trajectory import Trajectory, Turn

PATIENCE = 5
"""Epochs without improvement before training stops."""
_BATCH_TURNS = 256


@dataclass(frozen=True)
class CriticData:
    """Turns with their labels, and where each came from."""

    state_SH: Tensor
    action_SH: Tensor
    credit_S: Tensor
    support_S: Tensor
    """Siblings on the smaller side of the contrast; 0: the label is sub-goal credit alone."""
    outcome_S: Tensor
    """Verified outcome of the whole trajectory."""
    task_S: Sequence[str]
    weight_S: Tensor
    """How much each turn's error counts, >= 0."""

    def __len__(self) -> int:
        return len(self.task_S)

    def to(self, device: torch.device) -> "CriticData":
        """Return the turns with their tensors on `device`."""
        moved: dict[str, Any] = {name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **moved)

    def take(self, keep_S: Tensor) -> "CriticData":
        """Return the turns that a bool mask selects."""
        tasks = [task for task, kept in zip(self.task_S, keep_S.tolist(), strict=True) if kept]
        return CriticData(
            self.state_SH[keep_S],
            self.action_SH[keep_S],
            self.credit_S[keep_S],
            self.support_S[keep_S],
            self.outcome_S[keep_S],
            tasks,
            self.weight_S[keep_S],
        )


def action_key(turn: Turn) -> str:
    """Return what was done: the call in canonical form, or the text where there was no call."""
    if turn.call is None:
        return turn.action_text
    return json.dumps([turn.call.name, turn.call.arguments], sort_keys=True, ensure_ascii=False)


def label_turns(
    trajectories: Sequence[Trajectory],
    features: Sequence[TurnFeatures],
    *,
    shrinkage: float,
    subgoal_credit: float,
    clip: float,
    similarity: float | None = None,
    outcomes: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> CriticData:
    """Label every turn by the contrast with its siblings.

    Args:
        trajectories: siblings share a `group_id`.
        features: of the same trajectories.
        shrinkage: see `sibling_labels`, as the next two.
        subgoal_credit: see there.
        clip: see there.
        similarity: cosine from which two states count as the same; None wants equal histories.
        outcomes: verified outcome of each trajectory; None takes the trajectories' own.
        weights: how much the turns of each trajectory count; None counts all alike.
    """
    outcomes = [trajectory.outcome for trajectory in trajectories] if outcomes is None else outcomes
    weights = [1.0] * len(trajectories) if weights is None else weights
    groups: dict[str, list[int]] = {}
    for index, trajectory in enumerate(trajectories):
        groups.setdefault(trajectory.group_id, []).append(index)
    parts = []
    for members in groups.values():
        turns = [turn for index in members for turn in trajectories[index].turns]
        if not turns:
            continue
        counts = torch.tensor([len(trajectories[index].turns) for index in members])
        state_SH = torch.cat([features[index].state_SH for index in members])
        action_SH = torch.cat([features[index].action_SH for index in members])
        if similarity is None:
            match_SS = match_exactly([key for index in members for key in _state_keys(trajectories[index])])
        else:
            owner_S = torch.arange(len(members)).repeat_interleave(counts)
            match_SS = match_by_similarity(state_SH, owner_S, threshold=similarity)
        outcome_S = torch.tensor([outcomes[index] for index in members]).repeat_interleave(counts)
        weight_S = torch.tensor([weights[index] for index in members]).repeat_interleave(counts)
        labels = sibling_labels(
            match_SS,
            [action_key(turn) for turn in turns],
            outcome_S,
            torch.tensor([bool(turn.subgoals) for turn in turns]),
            shrinkage=shrinkage,
            subgoal_credit=subgoal_credit,
            clip=clip,
        )
        task = trajectories[members[0]].task_id
        names = [task] * len(turns)
        parts.append(CriticData(state_SH, action_SH, labels.credit_S, labels.support_S, outcome_S, names, weight_S))
    if not parts:
        raise UserError("the rollouts hold no turn at all: there is nothing to label. Run the stage `collect` again.")
    return _concatenate(parts)


@dataclass(frozen=True)
class Labelling:
    """How turns are labelled, as the critic was trained; see `algorithms.sibling`."""

    shrinkage: float
    subgoal_credit: float
    clip: float
    similarity: float | None = None

    def label(
        self,
        trajectories: Sequence[Trajectory],
        features: Sequence[TurnFeatures],
        *,
        outcomes: Sequence[float] | None = None,
        weights: Sequence[float] | None = None,
    ) -> CriticData:
        """Label every turn by the contrast with its siblings, see `label_turns`; turns come out group by group."""
        return label_turns(trajectories, features, **vars(self), outcomes=outcomes, weights=weights)


def split_by_task(data: CriticData, *, validation_share: float, seed: int) -> tuple[CriticData, CriticData]:
    """Return (training, validation) turns; a task lies on one side.

    Raises:
        UserError: there are fewer than two tasks.
    """
    tasks = sorted(set(data.task_S), key=lambda task: seed_of(seed, "critic validation", task))
    if len(tasks) < 2:
        raise UserError("the critic needs rollouts of at least 2 tasks to hold one out: raise collect.tasks")
    count = min(max(1, round(validation_share * len(tasks))), len(tasks) - 1)
    held_out = set(tasks[:count])
    mask_S = torch.tensor([task in held_out for task in data.task_S])
    return data.take(~mask_S), data.take(mask_S)


def train_critic(
    training: CriticData,
    validation: CriticData,
    *,
    hidden: int,
    learning_rate: float,
    epochs: int,
    seed: int,
    device: torch.device = CPU,
) -> tuple[CriticHead, list[dict[str, float]]]:
    """Regress the labels with early stopping; return the best head, on `device`, and one record per epoch.

    Labels are standardised while training; the head that is returned predicts credit itself.
    """
    with seeded(seed_of(seed, "critic head")):
        head = CriticHead(training.state_SH.shape[1], hidden=hidden)
    head.fit_scale(training.state_SH, training.action_SH)
    head, training, validation = head.to(device), training.to(device), validation.to(device)
    mean, scale = training.credit_S.mean(), training.credit_S.std(correction=0).clamp(min=1e-6)
    target_S = (training.credit_S - mean) / scale
    expected_S = (validation.credit_S - mean) / scale
    optimizer = torch.optim.AdamW(head.parameters(), lr=learning_rate, weight_decay=0.01)
    best, best_error, since = {name: x.clone() for name, x in head.state_dict().items()}, float("inf"), 0
    history: list[dict[str, float]] = []
    for epoch in range(epochs):
        order = np.random.default_rng(seed_of(seed, "critic", epoch)).permutation(len(training))
        for rows in torch.split(torch.from_numpy(order).to(device), _BATCH_TURNS):
            error_S = (head(training.state_SH[rows], training.action_SH[rows]) - target_S[rows]).square()
            error = (training.weight_S[rows] * error_S).mean()
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
        with torch.no_grad():
            predicted_S = head(validation.state_SH, validation.action_SH)
            validation_error = float((predicted_S - expected_S).square().mean())
        correlation = pearson(predicted_S, expected_S)
        history.append({"epoch": epoch, "error": validation_error, "correlation": correlation or 0.0})
        since += 1
        if validation_error < best_error:
            best_error, since = validation_error, 0
            best = {name: value.clone() for name, value in head.state_dict().items()}
        if since >= PATIENCE:
            break
    head.load_state_dict(best)
    with torch.no_grad():
        head.outer.weight.mul_(scale)
        head.outer.bias.mul_(scale).add_(mean)
    return head.eval(), history


@torch.no_grad()
def judge_critic(head: CriticHead, validation: CriticData) -> Mapping[str, float | None]:
    """Return correlations on held-out tasks; None where one side does not vary.

    `correlation` is with the labels and is what the policy trusts the critic
    by; `correlation_contrast` the same over turns that siblings contradict,
    where the label is not sub-goal credit alone; `correlation_outcome` with the
    whole trajectory's outcome, which a step's credit should not merely repeat.
    """
    validation = validation.to(device_of(head))
    predicted_S = head(validation.state_SH, validation.action_SH)
    contrasted_S = validation.support_S > 0
    return {
        "correlation": pearson(predicted_S, validation.credit_S),
        "correlation_contrast": pearson(predicted_S[contrasted_S], validation.credit_S[contrasted_S]),
        "correlation_outcome": pearson(predicted_S, validation.outcome_S),
    }


def shuffle_labels(data: CriticData, *, seed: int) -> CriticData:
    """Return the same turns with permuted labels: a critic trained on them must not correlate with anything."""
    order = torch.from_numpy(np.random.default_rng(seed_of(seed, "shuffled labels")).permutation(len(data)))
    return replace(data, credit_S=data.credit_S[order], support_S=data.support_S[order])


def pearson(left_S: Tensor, right_S: Tensor) -> float | None:
    """Return the correlation, or None when there are fewer than two values or one side is constant."""
    if len(left_S) < 2 or len(left_S) != len(right_S):
        return None
    left_S, right_S = left_S.double() - left_S.double().mean(), right_S.double() - right_S.double().mean()
    norm = float(left_S.norm() * right_S.norm())
    return float(left_S @ right_S) / norm if norm > 1e-12 else None


def _state_keys(trajectory: Trajectory) -> list[str]:
    actions = [action_key(turn) for turn in trajectory.turns]
    return state_keys(actions, [turn.result.content for turn in trajectory.turns])


def _concatenate(parts: Sequence[CriticData]) -> CriticData:
    return CriticData(
        torch.cat([part.state_SH for part in parts]),
        torch.cat([part.action_SH for part in parts]),
        torch.cat([part.credit_S for part in parts]),
        torch.cat([part.support_S for part in parts]),
        torch.cat([part.outcome_S for part in parts]),
        [task for part in parts for task in part.task_S],
        torch.cat([part.weight_S for part in parts]),
    )
