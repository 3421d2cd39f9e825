"""Keeps the episodes that a run plays, with the credit of each turn, for people to look at; see `credit_table`.

It costs a second name for the file that `in_flight` has written anyway, and a
small table. What it cannot write it says once; a run is never lost for it.

Legend: N trajectories, T positions, S turns of all trajectories.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from geartrain.credit_table import count_episodes, recorded, round_path, write_credit
from geartrain.progress import note
from geartrain.training.credit import BatchCredit
from geartrain.training.credit_numbers import turn_means
from geartrain.training.in_flight import InFlight
from geartrain.training.lesson import Lesson, Pooled
from geartrain.training.pace import Pace
from geartrain.trajectory import Trajectory

MEGABYTE = 10**6
ROOM_AFTER_THINNING = 0.8
"""Share of the room that is taken when room has been made: else every iteration would have to make some."""

NOT_TRAINED: Mapping[str, Any] = {"weight": None, "credit": None, "grains": None}
"""Credit of a turn that was not trained on, or has no token."""


class Recorder:
    """The record of one run.

    Args:
        folder: where it lies; None keeps no record.
        megabytes: what it and `earlier` may take. Past that the earlier ones go, the oldest first; then every second
            iteration of its own, then every second of those left.
        grains: names of the recipe's grains.
        earlier: folders of what other runs of the same workspace have recorded.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        megabytes: int = 0,
        grains: Sequence[str] = (),
        earlier: Sequence[Path] = (),
    ) -> None:
        self._folder = folder if megabytes > 0 else None
        self._earlier = {path: sum(map(_size, path.iterdir())) for path in sorted(earlier, key=_changed)}
        self._room, self._grains = megabytes * MEGABYTE, grains
        self._batch: BatchCredit | None = None

    def credited(self, batch: BatchCredit) -> None:
        """Take the credit of the iteration at hand."""
        self._batch = batch if self._folder is not None else None

    @contextmanager
    def keeping(self, iteration: int, flight: InFlight, scored: Pooled, lesson: Lesson, pace: Pace) -> Iterator[None]:
        """Keep an iteration when the block, which trains on it, has ended; most of all if it raises."""
        try:
            yield
        finally:
            with pace.timed("record"):
                self.write(iteration, flight.rounds(iteration), scored, lesson)

    def write(self, iteration: int, rounds: Sequence[Path], scored: Pooled, lesson: Lesson) -> None:
        """Keep an iteration.

        Args:
            iteration: counted from 0.
            rounds: files of what was played, a round each; their rows are the trajectories of `scored`.
            scored: all that was played, with its rewards.
            lesson: what of it was trained on, in the order of the credit.
        """
        batch, self._batch = self._batch, None
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for number, path in enumerate(rounds):
                _put(path, round_path(self._folder, iteration, number))
            places = [(number, row) for number, path in enumerate(rounds) for row in range(count_episodes(path))]
            rows = list(_rows(iteration, places, scored, lesson, batch))
            write_credit(self._folder, iteration, rows, self._grains)
            self._make_room(iteration)
        except OSError as error:
            note(f"policy: {error}; episodes are not recorded any more. Is the disk full?")
            self._folder = None

    def _make_room(self, newest: int) -> None:
        """Let every second iteration go, the oldest first, then every second of those left, until the rest fits."""
        assert self._folder is not None
        sizes: dict[int, int] = {}
        for path in self._folder.glob("[0-9]*.parquet"):
            sizes[int(path.name[:9])] = sizes.get(int(path.name[:9]), 0) + _size(path)
        taken = sum(sizes.values()) + sum(self._earlier.values())
        while taken > self._room and self._earlier:
            oldest = next(iter(self._earlier))
            taken -= self._earlier.pop(oldest)
            shutil.rmtree(oldest, ignore_errors=True)
        if taken <= self._room:
            return
        for iteration in _least_wanted(recorded(self._folder), newest):
            for path in self._folder.glob(f"{iteration:09d}[-.]*"):
                path.unlink()
            taken -= sizes.get(iteration, 0)
            if taken <= ROOM_AFTER_THINNING * self._room:
                return


def _size(path: Path) -> int:
    return path.stat().st_size


def _changed(path: Path) -> float:
    return path.stat().st_mtime


def _least_wanted(iterations: Sequence[int], newest: int) -> Iterator[int]:
    """Yield all iterations but the newest, in the order in which they may go."""
    left = [iteration for iteration in iterations if iteration != newest]
    step = 2
    while left:
        yield from (iteration for iteration in left if iteration % step)
        left = [iteration for iteration in left if not iteration % step]
        if left == [0]:
            yield 0
            return
        step *= 2


def _put(source: Path, target: Path) -> None:
    """Give a file a second name, which may be taken; where a file system has no such thing, copy it."""
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    temporary.replace(target)
    with suppress(FileNotFoundError):  # a rename onto another name of the same file leaves both
        temporary.unlink()


def _rows(
    iteration: int,
    places: Sequence[tuple[int, int]],
    scored: Pooled,
    lesson: Lesson,
    batch: BatchCredit | None,
) -> Iterator[dict[str, Any]]:
    """Yield what `credit_table` writes; `places` are the round and the row in its file of every episode."""
    trained = {(t.group_id, t.sibling): index for index, t in enumerate(lesson.trajectories)}
    advantages, credit = lesson.advantage_N.tolist(), _turn_credit(lesson, batch)
    for (number, row), trajectory, reward in zip(places, scored.trajectories, scored.rewards, strict=True):
        index = trained.get((trajectory.group_id, trajectory.sibling))
        yield {
            "iteration": iteration,
            "round": number,
            "row": row,
            "task_id": trajectory.task_id,
            "family": trajectory.family,
            "group_id": trajectory.group_id,
            "sibling": trajectory.sibling,
            "success": trajectory.success,
            "progress": trajectory.progress,
            "end": trajectory.end,
            "turns": len(trajectory.turns),
            "tokens": sum(len(turn.prompt_ids) + len(turn.action_ids) for turn in trajectory.turns),
            "invalid_calls": trajectory.invalid_calls,
            "reward": reward,
            "rewards": json.dumps(dict(trajectory.rewards), sort_keys=True),
            "advantage": None if index is None else advantages[index],
            "steps": _steps(trajectory, credit[index] if index is not None and credit else None),
        }


def _steps(trajectory: Trajectory, credit: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    return [
        {
            "reward": turn.reward,
            "token_reward": float(sum(turn.token_rewards)),
            "error": turn.result.error,
            **(NOT_TRAINED if credit is None else credit[index]),
        }
        for index, turn in enumerate(trajectory.turns)
    ]


def _turn_credit(lesson: Lesson, batch: BatchCredit | None) -> list[list[dict[str, Any]]]:
    """Return, for every trajectory of a lesson, what each of its turns was given."""
    if batch is None:
        return []
    evidence, credit = batch.evidence, batch.credit
    turns = len(evidence.row_S)

    def means(value_NT: Tensor) -> list[float]:
        return turn_means(value_NT.detach(), evidence.turn_NT, turns).tolist()

    weights, credits = means(credit.weight_NT), means(credit.advantage_NT)
    grain_NTK = credit.grain_NTK
    grains = [] if grain_NTK is None else [means(grain_NTK[..., k]) for k in range(grain_NTK.shape[-1])]
    spoken = means(evidence.mask_NT.float())
    found: list[list[dict[str, Any]]] = [[] for _ in lesson.trajectories]
    for turn, row in enumerate(evidence.row_S.tolist()):
        values = {"weight": weights[turn], "credit": credits[turn], "grains": [grain[turn] for grain in grains] or None}
        found[row].append(values if spoken[turn] else dict(NOT_TRAINED))
    return found
