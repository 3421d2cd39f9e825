"""Preference pairs from verified siblings: one task, two episodes, the verifier says which is better.

A record that cannot be used is quarantined with its reason and counted; a pair
that would teach nothing or two opposite things is dropped with its reason and
counted. Nothing is chosen at random, so the same rollouts give the same pairs.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import pyarrow.parquet as pq

from geartrain.datasets.transcript import render
from geartrain.environments.environment import Task
from geartrain.preferences.pairs import Pair, split_of
from geartrain.trajectory import Trajectory, from_record

Score = Callable[[Trajectory], float]


@dataclass(frozen=True)
class Candidate:
    """One usable episode of a task."""

    source: str
    text: str
    score: float


@dataclass
class Built:
    """Pairs, and why everything else is not one."""

    pairs: list[Pair]
    quarantined: list[dict[str, str]] = field(default_factory=list)
    """One entry per unusable record: `source` and `reason`."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Reasons why episodes ("episodes_of_...") and pairs were not used."""
    records: int = 0
    usable: list[Trajectory] = field(default_factory=list)
    """The records that were not quarantined."""


def build_pairs(
    trajectories: Iterable[Trajectory],
    tasks: Mapping[str, Task],
    *,
    score: Score,
    pairs_per_task: int,
    min_margin: float,
    validation_share: float,
) -> Built:
    """Build the pairs of every task.

    Args:
        trajectories: siblings of any number of tasks, in any order.
        tasks: tasks by id.
        score: verified score of an episode, finite.
        pairs_per_task: at most this many per task, spread over the episodes, wide margins first.
        min_margin: smallest difference in `score` that makes a pair.
        validation_share: share of tasks whose pairs are held out.
    """
    built = Built([])
    by_task: dict[str, list[Candidate]] = defaultdict(list)
    for source, trajectory in _sources(trajectories):
        built.records += 1
        reason = _defect(trajectory, tasks, score)
        if reason is None and any(source == known.source for known in by_task[trajectory.task_id]):
            reason = "duplicate_record"
        if reason is None:
            built.usable.append(trajectory)
            by_task[trajectory.task_id].append(Candidate(source, render(trajectory), score(trajectory)))
        else:
            built.quarantined.append({"source": source, "reason": reason})
    for task_id in sorted(task_id for task_id, candidates in by_task.items() if candidates):
        task = tasks[task_id]
        for better, worse in _choose(by_task[task_id], pairs_per_task, min_margin, built.dropped):
            built.pairs.append(_pair(task, better, worse, validation_share))
    built.pairs = _without_clashes(built.pairs, built.dropped)
    return built


def read_siblings(path: Path) -> tuple[list[Trajectory], list[dict[str, str]]]:
    """Read rollouts; return them and one quarantine entry per record that is none."""
    trajectories: list[Trajectory] = []
    malformed: list[dict[str, str]] = []
    with pq.ParquetFile(path) as file:
        rows = (row for batch in file.iter_batches(batch_size=256) for row in batch.to_pylist())
        for number, row in enumerate(rows):
            try:
                trajectories.append(from_record(row))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                malformed.append({"source": f"row {number}", "reason": f"malformed_{type(error).__name__}"})
    return trajectories, malformed


def _sources(trajectories: Iterable[Trajectory]) -> Iterable[tuple[str, Trajectory]]:
    return ((f"{trajectory.task_id}/{trajectory.sibling}", trajectory) for trajectory in trajectories)


def _defect(trajectory: Trajectory, tasks: Mapping[str, Task], score: Score) -> str | None:
    if trajectory.task_id not in tasks:
        return "unknown_task"
    if not trajectory.turns:
        return "no_turns"
    if trajectory.group_id != trajectory.task_id:
        return "foreign_group"
    if not isinstance(trajectory.success, bool):
        return "verdict_not_boolean"
    if not 0.0 <= trajectory.progress <= 1.0:
        return "progress_out_of_range"
    return None if math.isfinite(score(trajectory)) else "score_not_finite"


def _choose(
    candidates: Sequence[Candidate], limit: int, min_margin: float, dropped: Counter[str]
) -> list[tuple[Candidate, Candidate]]:
    """Return at most `limit` pairs: those whose episodes were used least, then the widest margin."""
    possible: list[tuple[Candidate, Candidate]] = []
    for first, second in combinations(_distinct(candidates, dropped), 2):
        better, worse = (first, second) if first.score > second.score else (second, first)
        margin = better.score - worse.score
        if margin >= min_margin and margin > 0:
            possible.append((better, worse))
        else:
            dropped["margin_too_small" if margin > 0 else "tie"] += 1
    uses: Counter[str] = Counter()
    chosen: list[tuple[Candidate, Candidate]] = []
    while possible and len(chosen) < limit:
        pair = min(possible, key=lambda p: (uses[p[0].source] + uses[p[1].source], p[1].score - p[0].score, _order(p)))
        possible.remove(pair)
        chosen.append(pair)
        uses.update((pair[0].source, pair[1].source))
    dropped["over_the_limit_of_the_task"] += len(possible)
    return chosen


def _distinct(candidates: Sequence[Candidate], dropped: Counter[str]) -> list[Candidate]:
    """Return one candidate per text; none of a text that was scored in two ways, for it would contradict itself."""
    by_text: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda candidate: candidate.source):
        by_text[candidate.text].append(candidate)
    kept = []
    for same in by_text.values():
        if len({candidate.score for candidate in same}) > 1:
            dropped["episodes_of_same_text_other_score"] += len(same)
        else:
            dropped["episodes_of_same_text"] += len(same) - 1
            kept.append(same[0])
    return kept


def _order(pair: tuple[Candidate, Candidate]) -> str:
    """Return a key that is arbitrary but fixed, so that the order of siblings decides nothing."""
    return hashlib.sha256(f"{pair[0].source}\0{pair[1].source}".encode()).hexdigest()


def _pair(task: Task, better: Candidate, worse: Candidate, validation_share: float) -> Pair:
    return Pair(
        task_id=task.task_id,
        family=task.family,
        split=split_of(task.task_id, validation_share),
        prompt=task.prompt,
        chosen=better.text,
        rejected=worse.text,
        margin=round(better.score - worse.score, 6),
        chosen_id=better.source,
        rejected_id=worse.source,
    )


def _without_clashes(pairs: Sequence[Pair], dropped: Counter[str]) -> list[Pair]:
    """Drop repeats (all but the first) and pairs of the same texts that contradict each other (all of them)."""
    verdicts: dict[tuple[str, str, str], set[bool]] = defaultdict(set)
    for pair in pairs:
        verdicts[_texts(pair)].add(pair.chosen < pair.rejected)
    kept: list[Pair] = []
    seen: set[tuple[str, str, str]] = set()
    for pair in pairs:
        key = _texts(pair)
        if len(verdicts[key]) > 1:
            dropped["contradiction"] += 1
        elif key in seen:
            dropped["duplicate"] += 1
        else:
            seen.add(key)
            kept.append(pair)
    return kept


def _texts(pair: Pair) -> tuple[str, str, str]:
    first, second = sorted((pair.chosen, pair.rejected))
    return pair.prompt, first, second
