"""Rewards below the episode: by turn (step grain) and by sampled token (token grain).

Token rewards lie on the ids as they were sampled (`models.spans`).
"""

from dataclasses import replace

from geartrain.models.spans import Decoder, covering, token_ends
from geartrain.rewards.grounding import UNGROUNDED_REWARD, ungrounded
from geartrain.trajectory import Trajectory, Turn

FAULT_REWARD = -1.0
"""Token reward of the token in which a rejected message goes wrong."""


def with_grains(trajectory: Trajectory, decoder: Decoder, *, invalid_call_reward: float) -> Trajectory:
    """Return the trajectory with `reward` and `token_rewards` of every turn filled.

    Args:
        trajectory: as it was sampled.
        decoder: tokenizer of the policy that sampled it.
        invalid_call_reward: step reward added for a turn that was answered by an error; at most 0.
    """
    steps = step_rewards(trajectory, invalid_call_reward=invalid_call_reward)
    turns = []
    seen = ""
    for turn, reward in zip(trajectory.turns, steps, strict=True):
        seen += decoder.decode(list(turn.prompt_ids), skip_special_tokens=False).casefold()
        turns.append(replace(turn, reward=reward, token_rewards=token_rewards(turn, decoder, seen)))
    return replace(trajectory, turns=turns)


def step_rewards(trajectory: Trajectory, *, invalid_call_reward: float) -> list[float]:
    """Return one reward per turn: share of the task's sub-goals newly reached, plus the price of an error.

    A sub-goal pays once per episode, however often a turn claims it.
    """
    total = total_subgoals(trajectory)
    reached: set[str] = set()
    rewards = []
    for turn in trajectory.turns:
        fresh = set(turn.subgoals) - reached
        reached |= fresh
        rewards.append(len(fresh) / total + (0.0 if turn.result.error is None else invalid_call_reward))
    return rewards


def total_subgoals(trajectory: Trajectory) -> int:
    """Return how many sub-goals the task has, at least 1, as far as the episode shows.

    `progress` is held / total at the end. When all that was reached was held,
    that gives the total exactly; when some was lost again, the total is the
    smallest number that agrees with `progress`.
    """
    reached = len({name for turn in trajectory.turns for name in turn.subgoals})
    if reached == 0 or trajectory.progress <= 0.0:
        return max(1, reached)
    fitting = [n for n in range(reached, 8 * reached + 8) if _is_whole(n * trajectory.progress)]
    total = reached / trajectory.progress
    return round(total) if _is_whole(total) or not fitting else fitting[0]


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) < 1e-6


def token_rewards(turn: Turn, decoder: Decoder, seen: str) -> tuple[float, ...]:
    """Return rewards aligned with `action_ids`; empty where there is nothing to say.

    - A turn that was answered by an error whose character `position` is known
      gives `FAULT_REWARD` to the token that covers this character; a position
      at or past the end of the message, to its last token, which ended it too
      soon. An unknown position charges no one.
    - A quoted name that the agent never read gives `UNGROUNDED_REWARD` to its tokens.

    `seen` is the casefolded text that the agent was shown before this turn.
    """
    position = None if turn.result.error is None else turn.result.position
    spans = ungrounded(turn.action_text, seen)
    if not turn.action_ids or (position is None and not spans):
        return ()
    ends = token_ends(turn.action_ids, turn.action_text, decoder)
    if ends is None:
        return ()
    rewards = [0.0] * len(ends)
    for start, stop in spans:
        for index in range(covering(ends, start), covering(ends, stop - 1) + 1):
            rewards[index] = UNGROUNDED_REWARD
    if position is not None and position >= 0:
        rewards[covering(ends, position)] = FAULT_REWARD
    return tuple(rewards) if any(rewards) else ()
