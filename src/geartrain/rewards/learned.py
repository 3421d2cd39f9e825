"""The learned channel: a trained reward model's opinion of a transcript, in nats."""

from collections.abc import Sequence

from geartrain.datasets.transcript import render, split
from geartrain.models.reward_model import RewardModel, TextTooLongError, Tokens
from geartrain.rewards.channel import Tasks
from geartrain.rewards.outcome import Failed, NotApplicable, Outcome, measured
from geartrain.trajectory import Trajectory


class Learned:
    """Scores each different text once: siblings often say the same.

    A model that held-out pairs could not show to be better than a coin has no
    opinion ("not_trusted"); that is decided once, at training.
    """

    name = "learned"

    def __init__(self, model: RewardModel, *, bfloat16: bool) -> None:
        self._model = model
        self._bfloat16 = bfloat16

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        """Return one outcome per trajectory; only the differences between siblings mean anything."""
        if not self._model.trusted:
            return [NotApplicable("not_trusted")] * len(trajectories)
        outcomes: list[Outcome | None] = [None] * len(trajectories)
        rows: dict[Tokens, list[int]] = {}
        for row, trajectory in enumerate(trajectories):
            tokens = self._tokens(trajectory, tasks)
            if isinstance(tokens, Failed):
                outcomes[row] = tokens
            else:
                rows.setdefault(tokens, []).append(row)
        for score, same in zip(self._model.score(list(rows), bfloat16=self._bfloat16), rows.values(), strict=True):
            for row in same:
                outcomes[row] = measured(score)
        return [Failed("not_scored") if outcome is None else outcome for outcome in outcomes]

    def _tokens(self, trajectory: Trajectory, tasks: Tasks) -> Tokens | Failed:
        task = tasks.get(trajectory.task_id)
        if task is None:
            return Failed("unknown_task", trajectory.task_id)
        try:
            return self._model.tokens(task.prompt, *split(render(trajectory)))
        except TextTooLongError as error:
            return Failed("too_long", str(error))
