"""Play a model over several splits, greedy and sampled, in chunks that survive a kill.

All splits and both ways of decoding share the same batches, longest tasks first,
so that rows idle only at the very end. Chunks are cut by count alone: a run
that was killed and resumed has the batches, hence the bits, of one that was not.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from geartrain.config import EvaluationSection
from geartrain.environments.environment import Environment, Task
from geartrain.errors import UserError
from geartrain.models.backbone import Policy
from geartrain.rollouts.collect import EpisodeRequest, Limits, play
from geartrain.rollouts.comparison import count_subgoals
from geartrain.trajectory import Trajectory, read_trajectories, write_trajectories

DECODINGS = ("greedy", "sampled")

Episodes = dict[tuple[str, str], list[Trajectory]]
"""By (split, decoding), in the order of tasks, then siblings."""


@dataclass(frozen=True)
class Suite:
    """What a model is measured on. Both models of a comparison get the same suite, so the same seeds."""

    environment: Environment
    tasks: Mapping[str, Sequence[Task]]
    """By split; empty splits are left out."""
    section: EvaluationSection
    limits: Limits
    seed: int

    def __post_init__(self) -> None:
        ids = [task.task_id for tasks in self.tasks.values() for task in tasks]
        twice = sorted({name for name in ids if ids.count(name) > 1}) if len(set(ids)) < len(ids) else []
        if twice:
            raise UserError(f"task id {twice[0]!r} is in two splits; ids must be unique. Run the stage `tasks` again.")

    def siblings(self, decoding: str) -> int:
        """Return the episodes per task under one way of decoding."""
        return 1 if decoding == "greedy" else self.section.samples

    @cached_property
    def subgoals(self) -> dict[str, int]:
        """How many sub-goals the verifier checks in each task, by task id."""
        return count_subgoals(self.environment, [t for ts in self.tasks.values() for t in ts], seed=self.seed)

    @property
    def episodes(self) -> int:
        """Episodes that one model plays in all."""
        return sum(map(len, self.tasks.values())) * sum(map(self.siblings, DECODINGS))

    def requests(self) -> list[EpisodeRequest]:
        """Return every episode to play, longest tasks first, those of a task side by side."""
        tasks = [task for tasks in self.tasks.values() for task in tasks]
        tasks.sort(key=lambda task: -task.necessary_steps)
        return [
            EpisodeRequest(task, sibling, task.task_id, greedy=decoding == "greedy")
            for task in tasks
            for decoding in DECODINGS
            for sibling in range(self.siblings(decoding))
        ]


def play_suite(
    suite: Suite,
    load: Callable[[], Policy],
    *,
    work: Path,
    label: str,
    on_episode: Callable[[int], object] = lambda count: None,
    play: Callable[..., list[Trajectory]] = play,
) -> Episodes:
    """Play the whole suite with one model.

    Args:
        suite: tasks, seeds and limits.
        load: returns the model; called once, and only if something is left to play.
        work: folder of finished chunks; those that are there are not played again.
        label: name of the model in the files' names.
        on_episode: called with the number of episodes just finished.
        play: as `rollouts.collect.play`.
    """
    work.mkdir(parents=True, exist_ok=True)
    load = cache(load)
    requests = suite.requests()
    played: list[Trajectory] = []
    for start in range(0, len(requests), suite.section.chunk_episodes):
        chunk = requests[start : start + suite.section.chunk_episodes]
        path = work / f"{label}-{start:06d}.parquet"
        if path.exists():
            on_episode(len(chunk))
        else:
            _play_chunk(path, suite, load(), chunk, on_episode, play)
        played.extend(read_trajectories(path))
    return _by_split(suite, requests, played)


def write_episodes(folder: Path, label: str, episodes: Episodes) -> None:
    """Write one Parquet file per split and way of decoding, `<label>_<split>_<decoding>.parquet`."""
    folder.mkdir(parents=True, exist_ok=True)
    for (split, decoding), trajectories in episodes.items():
        write_trajectories(folder / f"{label}_{split}_{decoding}.parquet", trajectories)


def _play_chunk(
    path: Path,
    suite: Suite,
    policy: Policy,
    requests: Sequence[EpisodeRequest],
    on_episode: Callable[[int], object],
    play: Callable[..., list[Trajectory]],
) -> None:
    options: dict[str, Any] = {
        "sampling": suite.section.sampling,
        "limits": suite.limits,
        "seed": suite.seed,
        "policy_version": 0,
    }
    played = play(suite.environment, policy, requests, on_episode=lambda _: on_episode(1), **options)
    half = path.with_suffix(f".{os.getpid()}.half")
    write_trajectories(half, played)
    half.replace(path)


def _by_split(suite: Suite, requests: Sequence[EpisodeRequest], played: Sequence[Trajectory]) -> Episodes:
    found = {(r.greedy, r.task.task_id, r.sibling): t for r, t in zip(requests, played, strict=True)}
    return {
        (split, decoding): [
            found[decoding == "greedy", task.task_id, sibling]
            for task in tasks
            for sibling in range(suite.siblings(decoding))
        ]
        for split, tasks in suite.tasks.items()
        for decoding in DECODINGS
    }
