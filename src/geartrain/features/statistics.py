"""What a group of episodes says, as the values of feature tables. Pure functions.

`old` is the row of the same key before, or None. Counts add up over a key's whole life; `recent_*` forget, since the
policy that played long ago is another one. (ours)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum
from statistics import fmean, pstdev
from typing import Any

from geartrain.trajectory import Trajectory

Values = dict[str, Any]
Old = Mapping[str, Any] | None

MEMORY = 0.7
"""What `recent_*` keep of themselves when a key is played again: half is forgotten after two times."""


@dataclass(frozen=True)
class Played:
    """What is remembered of an episode."""

    task_id: str
    family: str
    policy_version: int
    success: bool
    progress: float
    outcome: float
    """See `Trajectory.outcome`."""
    reward: float | None
    """What was trained on; None where scoring failed."""
    verified: float | None
    learned: float | None
    """Raw rewards of the channels of these names; None where one was not asked, or failed."""
    turns: int
    tokens: int


def played(trajectory: Trajectory, reward: float | None) -> Played:
    """Return what is remembered of a trajectory."""
    return Played(
        task_id=trajectory.task_id,
        family=trajectory.family,
        policy_version=trajectory.policy_version,
        success=trajectory.success,
        progress=trajectory.progress,
        outcome=trajectory.outcome,
        reward=reward,
        verified=trajectory.rewards.get("verified"),
        learned=trajectory.rewards.get("learned"),
        turns=len(trajectory.turns),
        tokens=len(trajectory.token_ids()),
    )


def task_history(group: Sequence[Played], old: Old) -> Values:
    """Return success and progress of a task over all that was played, and lately."""
    counted = _counts(group, old, "")
    before, now = _past(old, "attempts"), len(group)
    progress = fsum([*(episode.progress for episode in group), _past(old, "progress") * before])
    return {**counted, "progress": progress / (before + now)}


def prompt_history(group: Sequence[Played], old: Old) -> Values:
    """Return success of a family of prompts over all that was played, and lately."""
    return _counts(group, old, "prompt_")


def task_rewards(group: Sequence[Played], old: Old) -> Values:
    """Return mean and spread of the last group's rewards, and how far the mean has moved; None without rewards."""
    mean, spread = _moments(group)
    before = None if old is None else old["reward_mean"]
    return {"reward_mean": mean, "reward_spread": spread, "reward_drift": _difference(mean, before)}


def policy_rewards(group: Sequence[Played], before: Old) -> Values:
    """Return the same of a policy version; drift is against the version before it."""
    mean, spread = _moments(group)
    drift = _difference(mean, None if before is None else before["policy_reward_mean"])
    return {
        "policy_episodes": len(group),
        "policy_reward_mean": mean,
        "policy_reward_spread": spread,
        "policy_reward_drift": drift,
    }


def sibling_contrast(group: Sequence[Played]) -> Values:
    """Return how far the last group's siblings differ: without contrast there is nothing to learn from a task."""
    outcomes = [episode.outcome for episode in group]
    mixed = len({episode.success for episode in group}) > 1
    return {"group_size": len(group), "mixed": int(mixed), "outcome_spread": pstdev(outcomes)}


def task_length(group: Sequence[Played]) -> Values:
    """Return mean length of the last group's episodes, in turns and in tokens."""
    return {
        "mean_turns": fmean(episode.turns for episode in group),
        "mean_tokens": fmean(episode.tokens for episode in group),
    }


def judge_disagreement(group: Sequence[Played], old: Old) -> Values | None:
    """Return how often the reward model orders two siblings against the verifier; None where none were compared.

    A tie of the model counts half.
    """
    known = [(e.verified, e.learned) for e in group if e.verified is not None and e.learned is not None]
    wrong, compared = 0.0, 0
    for (first, judged_first), (second, judged_second) in combinations(known, 2):
        if first != second:
            product = (first - second) * (judged_first - judged_second)
            wrong += 1.0 if product < 0 else 0.5 * (product == 0)
            compared += 1
    if not compared:
        return None
    before = _past(old, "comparisons")
    wrong += before * _past(old, "disagreement")
    return {"comparisons": int(before) + compared, "disagreement": wrong / (before + compared)}


def source_history(margins: Sequence[float], tasks: int) -> Values:
    """Return what a source of preference pairs has given; `margins` are the verified ones of its pairs."""
    return {"source_pairs": len(margins), "source_tasks": tasks, "source_margin": fmean(margins)}


def _counts(group: Sequence[Played], old: Old, prefix: str) -> Values:
    successes = sum(episode.success for episode in group)
    attempts = int(_past(old, f"{prefix}attempts")) + len(group)
    whole = int(_past(old, f"{prefix}successes")) + successes
    return {
        f"{prefix}attempts": attempts,
        f"{prefix}successes": whole,
        f"{prefix}success_rate": whole / attempts,
        f"{prefix}recent_attempts": MEMORY * _past(old, f"{prefix}recent_attempts") + len(group),
        f"{prefix}recent_successes": MEMORY * _past(old, f"{prefix}recent_successes") + successes,
    }


def _past(old: Old, name: str) -> float:
    return 0.0 if old is None or old[name] is None else float(old[name])


def _moments(group: Sequence[Played]) -> tuple[float | None, float | None]:
    rewards = [episode.reward for episode in group if episode.reward is not None]
    return (fmean(rewards), pstdev(rewards)) if rewards else (None, None)


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before
