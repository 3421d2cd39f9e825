"""What watches over a run: faults that end it, alarms that are written into its history, and its patience.

The rules are in `algorithms.validity`; here is what they are asked about. Everything is a function of the batch and
of the history, so that a resumed run says what an uninterrupted one would have said.

Legend: N trajectories, T positions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from geartrain.algorithms import validity
from geartrain.algorithms.evidence import Settings
from geartrain.algorithms.recipe import Recipe
from geartrain.algorithms.schedule import blended
from geartrain.algorithms.weights import reachable
from geartrain.errors import UserError
from geartrain.methods import NEUTRAL
from geartrain.training.batch import TokenSequence
from geartrain.training.credit import BatchCredit
from geartrain.trajectory import Trajectory

Record = dict[str, Any]


_MASK = "Build both masks from the sampled ids alone (Trajectory.action_mask)."


def refuse_invalid(
    recipe: Recipe,
    settings: Settings,
    batch: BatchCredit,
    sequences: Sequence[TokenSequence],
    trajectories: Sequence[Trajectory],
    spreads: Sequence[float],
) -> None:
    """Stop a run whose next step would make its result worthless.

    Args:
        recipe: that gave the credit.
        settings: of the method.
        batch: its credit.
        sequences: what is about to be trained on, with every value.
        trajectories: what they were made from, in their order.
        spreads: of W, of the iterations so far in which it had to weigh; see `spreads_of`.

    Raises:
        UserError: says what is wrong, and how to mend it.
    """
    evidence, credit = batch.evidence, batch.credit
    for sequence, trajectory in zip(sequences, trajectories, strict=True):
        sampled = [token for turn in trajectory.turns for token in turn.action_ids]
        _stop(validity.marks_other_tokens(sequence.action_T, sequence.ids_T, sampled), _MASK)
        reason = validity.trains_what_was_not_sampled(sequence.loss_T, sequence.action_T)
        _stop(reason, _MASK)
        _stop(validity.carries_gradient(sequence.values), "Detach it where it is made.")
    for name, feature in _features(batch).items():
        reason = validity.silent_features(name, feature)
        _stop(reason, "The weights of this model are damaged, or its pass was not run: check the stage's inputs.")
    low, high = (1.0, 1.0) if recipe.weigh is None else recipe.bounds(settings)
    low, high = reachable(low, high, normalise=bool(settings.get("normalise", False)))
    reason = validity.outside_bounds(credit.weight_NT, evidence.mask_NT, low=low, high=high)
    _stop(reason, "The recipe's weights must end in weights.bounded_weight.")
    critic = " (the sibling critic's reliability on held-out tasks is 0)" if not evidence.critic_reliability else ""
    reason = validity.inert_weights(spreads)
    _stop(
        reason and reason + critic,
        "Give the method something to say: its settings are in `geartrain methods`, its critic or teacher may be too "
        "weak, a snapshot too young. If plain GRPO is meant, set policy.recipe to grpo.",
    )


def spreads_of(
    history: Sequence[Mapping[str, Any]], recipe: Recipe, settings: Settings, iterations: int
) -> list[float]:
    """Return the spread of W within trajectories in every trained iteration in which it should not have been 1."""
    return [
        record["weight_spread_within"]
        for record in history
        if "weight_spread_within" in record and must_weigh(recipe, settings, record["iteration"] / max(1, iterations))
    ]


def must_weigh(recipe: Recipe, settings: Settings, share: float) -> bool:
    """Return whether W should differ from 1 at this share of the run.

    Not where a setting switches weighing off, nor before a snapshot of the policy has been blended in.
    """
    if recipe.weigh is None or any(settings.get(name) == 0 for name in NEUTRAL):
        return False
    if not recipe.weighs_by_past_self:
        return True
    start, length = float(settings["warm_share"]), float(settings["blend_share"])
    return blended(share - float(settings["snapshot_share"]), start=start, length=length) > 0


def alarms(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the alarms that the latest record of a history raises, each as "name: reason"; worlds may tell less."""
    shares = [(r["zero_tool_share"] or 0.0, r["successes"]) for r in history if r.get("successes") is not None]
    found = {
        "zero_tool": validity.zero_tool_collapse(
            [round(share * successes) for share, successes in shares], [successes for _, successes in shares]
        ),
        "held_out": validity.lost_success(_validations(history)),
        "hacking": validity.reward_hacking(_column(history, "reward"), _validations(history)),
        "tools": validity.lost_tools(_column(history, "invalid_calls")),
        "turns": validity.length_drift("turns", _column(history, "turns")),
        "tokens": validity.length_drift("tokens", _column(history, "tokens")),
        "entropy": validity.entropy_drift(_column(history, "entropy")),
        "kl": validity.distance(_column(history, "kl")),
        "mixture": validity.stuck_mixture(_column(history, "mixture_spread")),
        "granularity": validity.stuck_granularity(_column(history, "granularity_spread")),
    }
    return [f"{name}: {reason}" for name, reason in found.items() if reason is not None]


def new_alarms(history: Sequence[Mapping[str, Any]], raised: Sequence[str]) -> list[str]:
    """Return those of the alarms whose name is in no earlier record: what people should be told of now."""
    known = {alarm.partition(":")[0] for record in history for alarm in record.get("alarms", ())}
    return [alarm for alarm in raised if alarm.partition(":")[0] not in known]


def out_of_patience(history: Sequence[Mapping[str, Any]], best_iteration: int, patience: int | None) -> bool:
    """Return whether as many validations as `patience` have passed since the best one; None never is."""
    since = sum("val_sampled" in record and record["iteration"] >= best_iteration for record in history)
    return patience is not None and since >= patience


def _features(batch: BatchCredit) -> dict[str, Tensor]:
    """Return what credit is made from, where it was scored at all."""
    evidence, found = batch.evidence, {}
    if batch.state_SH is not None:
        found["hidden states of the warm start"] = batch.state_SH
    if batch.critic_features:
        found["what the sibling critic reads"] = torch.cat([turns.action_SH for turns in batch.critic_features])
    if evidence.teacher is not None:
        where_NT, scored_N = evidence.mask_NT, evidence.teacher.scored_N
        if scored_N is not None:
            where_NT = where_NT & evidence.broadcast(scored_N)
        found["log-probs of the teacher"] = evidence.teacher.logprob_NT[where_NT]
    return found


def _validations(history: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the success on `val`, greedy and sampled alike, before the first update and whenever it was measured."""
    pairs = [
        (record.get(f"{when}val_greedy"), record.get(f"{when}val_sampled"))
        for record in history
        for when in ("start_", "")
    ]
    return [0.5 * (greedy + sampled) for greedy, sampled in pairs if greedy is not None and sampled is not None]


def _column(history: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(record[name]) for record in history if record.get(name) is not None]


def _stop(reason: str | None, remedy: str) -> None:
    if reason:
        raise UserError(f"this run is not valid: {reason}. {remedy}")
