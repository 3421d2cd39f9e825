"""The verified channel: the environment's verdict, which the agent cannot reach."""

from collections.abc import Sequence

from geartrain.rewards.channel import Tasks
from geartrain.rewards.outcome import Failed, NotApplicable, Outcome, Value
from geartrain.trajectory import Trajectory

PROGRESS_WEIGHT = 0.2
"""Default share of the reward that a failed episode earns by reaching every sub-goal."""


def verified_score(success: bool, progress: float, *, progress_weight: float = PROGRESS_WEIGHT) -> float:
    """Return 1 for a success, else `progress_weight * progress`.

    `progress` is the share of sub-goals reached, in [0, 1]. With a weight below
    1, every success stands above every failure by at least `1 - progress_weight`.
    """
    return 1.0 if success else progress_weight * progress


class Verified:
    """Success and progress, as the environment judged them."""

    name = "verified"

    def __init__(self, *, progress_weight: float = PROGRESS_WEIGHT) -> None:
        assert 0.0 <= progress_weight < 1.0, progress_weight
        self._progress_weight = progress_weight

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        """Return one outcome in [0, 1] per trajectory; a verdict that is not one fails.

        A task whose spec says `"verdict": false` has nobody who could verify it.
        """
        return [
            NotApplicable("no_verdict") if _unverified(tasks, trajectory) else self._one(trajectory)
            for trajectory in trajectories
        ]

    def _one(self, trajectory: Trajectory) -> Outcome:
        if not isinstance(trajectory.success, bool):  # result codes such as -1 are truthy (rl-faults E6)
            return Failed("verdict_not_boolean", repr(trajectory.success)[:80])
        if not 0.0 <= trajectory.progress <= 1.0:  # false for NaN too
            return Failed("progress_out_of_range", str(trajectory.progress))
        return Value(
            verified_score(trajectory.success, trajectory.progress, progress_weight=self._progress_weight),
        )


def _unverified(tasks: Tasks, trajectory: Trajectory) -> bool:
    task = tasks.get(trajectory.task_id)
    return task is not None and task.spec.get("verdict") is False
