"""What the channels of the reward said of a batch of episodes, for the history.

Legend: raw values are those of `Trajectory.rewards`; None where a channel failed or did not apply.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

from geartrain.features.statistics import Played, judge_disagreement, played
from geartrain.trajectory import Trajectory

Values = dict[str, Any]


def describe_channels(trajectories: Sequence[Trajectory]) -> Values:
    """Return, of each channel that gave a value: how many, their mean and spread, and their mean by task family."""
    by_channel: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trajectory in trajectories:
        for channel, value in trajectory.rewards.items():
            if value is not None:
                by_channel[channel][trajectory.family].append(value)
    described = {}
    for channel, by_family in sorted(by_channel.items()):
        values = [value for family in by_family.values() for value in family]
        described[channel] = {
            "values": len(values),
            "mean": fmean(values),
            "spread": pstdev(values),
            "families": {family: fmean(found) for family, found in sorted(by_family.items())},
        }
    return described


def disagreement(trajectories: Sequence[Trajectory]) -> float | None:
    """Return the share of siblings that the reward model orders against the verifier; None where none were compared."""
    groups: dict[str, list[Played]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.group_id].append(played(trajectory, None))
    told = None
    for group in groups.values():
        told = judge_disagreement(group, told) or told
    return None if told is None else float(told["disagreement"])
