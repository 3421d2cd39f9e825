"""How an agent worked, beside whether it succeeded: steps, faults, repetition, first-attempt sub-goals.

All numbers are shares or means over episodes or turns, as each key says; a
share whose denominator is 0 is None, never 0.
"""

import json
from collections.abc import Mapping, Sequence

from geartrain.environments.environment import Task
from geartrain.trajectory import Trajectory, Turn


def summarise_quality(
    trajectories: Sequence[Trajectory], tasks: Mapping[str, Task], subgoals: Mapping[str, int]
) -> dict[str, float | None]:
    """Return the quality of a set of episodes.

    Args:
        trajectories: episodes of one model under one way of decoding.
        tasks: by task id.
        subgoals: how many sub-goals each task has, by task id.
    """
    episodes = len(trajectories)
    successes = [t for t in trajectories if t.success]
    turns = sum(len(t.turns) for t in trajectories)
    winning_turns = sum(len(t.turns) for t in successes)
    necessary = sum(tasks[t.task_id].necessary_steps for t in successes)
    goals = sum(subgoals[t.task_id] for t in trajectories)
    return {
        "progress": _share(sum(t.progress for t in trajectories), episodes),
        "steps": _share(turns, episodes),
        "steps_of_successes": _share(winning_turns, len(successes)),
        # 1: every success took the shortest known way.
        "necessary_steps": _share(necessary, winning_turns),
        "invalid_calls": _share(sum(t.invalid_calls for t in trajectories), turns),
        "redundant_calls": _share(sum(map(redundant_calls, trajectories)), turns),
        "zero_tool_successes": _share(sum(map(used_no_tool, successes)), len(successes)),
        "key_steps": _share(sum(map(first_attempts, trajectories)), goals),
        "truncated": _share(sum(t.truncated for t in trajectories), episodes),
        "action_tokens": _share(sum(len(x.action_ids) for t in trajectories for x in t.turns), episodes),
    }


def describe_play(trajectories: Sequence[Trajectory]) -> dict[str, float | None]:
    """Return how a batch of training episodes was played; what can be told without the tasks.

    `environment_steps` is what methods are compared by: agent turns played, refills included.
    `first_attempts` is of the sub-goals that were reached. Entropies are means per token, in nats, over the turns that
    were begun with less than a third, two thirds, and more of the sub-goals reached.
    """
    turns = sum(len(t.turns) for t in trajectories)
    reached = sum(len(turn.subgoals) for t in trajectories for turn in t.turns)
    thirds = entropy_by_progress(trajectories)
    return {
        "episodes": len(trajectories),
        "environment_steps": turns,
        "redundant_calls": _share(sum(map(redundant_calls, trajectories)), turns),
        "first_attempts": _share(sum(map(first_attempts, trajectories)), reached),
        **{f"entropy_{name}": value for name, value in zip(("early", "middle", "late"), thirds, strict=True)},
    }


def describe_families(
    trajectories: Sequence[Trajectory], train: Sequence[Task], val: Sequence[Task]
) -> dict[str, dict[str, float | int | None]]:
    """Return what was played of each family that is trained or held out, those that never came included.

    `tasks` and `held_out` count the family's tasks in both sets, `success` is the share of its `episodes`.
    """
    found: dict[str, dict[str, float | int | None]] = {}
    for family in sorted({task.family for task in (*train, *val)} | {t.family for t in trajectories}):
        own = [trajectory for trajectory in trajectories if trajectory.family == family]
        found[family] = {
            "tasks": sum(task.family == family for task in train),
            "held_out": sum(task.family == family for task in val),
            "episodes": len(own),
            "success": _share(sum(t.success for t in own), len(own)),
        }
    return found


def entropy_by_progress(trajectories: Sequence[Trajectory], bins: int = 3) -> list[float | None]:
    """Return the mean entropy of a sampled token by the share of sub-goals reached before its turn, in equal bins.

    The number of a task's sub-goals follows from `progress`; where nothing was reached, every turn is of the first bin.
    """
    sums, tokens = [0.0] * bins, [0] * bins
    for trajectory in trajectories:
        reached = sum(len(turn.subgoals) for turn in trajectory.turns)
        entropies, before = trajectory.entropies(), 0
        for turn, (start, stop) in zip(trajectory.turns, trajectory.action_spans(), strict=True):
            share = trajectory.progress * before / reached if reached else 0.0
            place = min(bins - 1, int(share * bins + 1e-9))
            sums[place] += sum(entropies[start:stop])
            tokens[place] += stop - start
            before += len(turn.subgoals)
    return [_share(total, count) for total, count in zip(sums, tokens, strict=True)]


def redundant_calls(trajectory: Trajectory) -> int:
    """Count turns whose call, arguments included, was made before in the episode.

    An upper bound of waste: asking again after the world changed counts too.
    """
    seen: set[str] = set()
    repeats = 0
    for turn in trajectory.turns:
        key = _call_key(turn)
        repeats += key is not None and key in seen
        if key is not None:
            seen.add(key)
    return repeats


def used_no_tool(trajectory: Trajectory) -> bool:
    """Return whether no call before the last turn, which ends the episode, was answered without error.

    The share of such successes is the zero-tool collapse of SGCD (arXiv 2606.12634, section 3).
    """
    return not any(turn.call is not None and turn.result.error is None for turn in trajectory.turns[:-1])


def first_attempts(trajectory: Trajectory) -> int:
    """Count sub-goals reached at the first attempt (SGCD's "key-step accuracy").

    The article defines no attempt, so ours: an attempt at a sub-goal is a turn,
    since the sub-goal before it, that calls the tool that reaches it or is
    answered by an error. Exploring with other tools is no attempt.
    """
    count = 0
    tried: set[str | None] = set()
    failed = False
    for turn in trajectory.turns:
        tool = turn.call.name if turn.call else None
        if turn.subgoals:
            count += 0 if failed or tool in tried else len(turn.subgoals)
            tried, failed = set(), False
        else:
            tried.add(tool)
            failed = failed or turn.result.error is not None
    return count


def _call_key(turn: Turn) -> str | None:
    if turn.call is None:
        return None
    return json.dumps([turn.call.name, turn.call.arguments], sort_keys=True, default=str)


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None
