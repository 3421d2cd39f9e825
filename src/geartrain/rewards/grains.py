"""Rewards below the episode: by turn (step grain) and by sampled token (token grain).

Token rewards lie on the ids as they were sampled. What a token covers is found
by decoding prefixes of those ids, never by tokenising the text again
(rl-faults B1, D9).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from geartrain.trajectory import Trajectory, Turn

FAULT_REWARD = -1.0
"""Token reward of the token in which a rejected message goes wrong."""


class Decoder(Protocol):
    """What is asked of a tokenizer."""

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        """Return the text of ids."""
        ...


def with_grains(trajectory: Trajectory, decoder: Decoder, *, invalid_call_reward: float) -> Trajectory:
    """Return the trajectory with `reward` and `token_rewards` of every turn filled.

    Args:
        trajectory: as it was sampled.
        decoder: tokenizer of the policy that sampled it.
        invalid_call_reward: step reward added for a turn that was answered by an error; at most 0.
    """
    steps = step_rewards(trajectory, invalid_call_reward=invalid_call_reward)
    turns = [
        replace(turn, reward=reward, token_rewards=token_rewards(turn, decoder))
        for turn, reward in zip(trajectory.turns, steps, strict=True)
    ]
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


def token_rewards(turn: Turn, decoder: Decoder) -> tuple[float, ...]:
    """Return rewards aligned with `action_ids`; empty where nothing is known.

    A turn that was answered by an error whose character `position` is known
    gives `FAULT_REWARD` to the token that covers this character; a position at
    or past the end of the message, to its last token, which ended it too soon.
    """
    if turn.result.error is None or turn.result.position is None or not turn.action_ids:
        return ()
    index = covering_token(turn.action_ids, turn.action_text, turn.result.position, decoder)
    if index is None:
        return ()
    return tuple(FAULT_REWARD if i == index else 0.0 for i in range(len(turn.action_ids)))


def covering_token(ids: Sequence[int], text: str, position: int, decoder: Decoder) -> int | None:
    """Return the index of the sampled token in which character `position` of `text` is complete.

    None when the position is negative or `text` is not what the ids say. A
    character spread over several tokens belongs to the one that completes it.
    """
    whole = decoder.decode(list(ids), skip_special_tokens=False)
    offset = whole.find(text)
    if position < 0 or offset < 0:
        return None
    if position >= len(text):
        return len(ids) - 1
    for index in range(len(ids)):
        decoded = decoder.decode(list(ids[: index + 1]), skip_special_tokens=False)
        # what decodes the same as in the whole: half a character does not
        if decoded[: offset + position + 1] == whole[: offset + position + 1]:
            return index
    return None
