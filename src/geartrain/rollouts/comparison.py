"""Tables of an evaluation: one model's results, and two models on the same tasks and seeds.

Legend: N tasks, S samples per task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geartrain.algorithms import statistics
from geartrain.environments.environment import Environment, Task
from geartrain.rollouts.quality import summarise_quality
from geartrain.trajectory import Trajectory

Table = dict[str, Any]


def count_subgoals(environment: Environment, tasks: Sequence[Task], *, seed: int) -> dict[str, int]:
    """Return how many sub-goals the verifier checks in each task, by task id."""
    counts = {}
    for task in tasks:
        episode = environment.reset(task, seed=seed)
        try:
            counts[task.task_id] = len(episode.verdict().subgoals)
        finally:
            episode.close()
    return counts


def outcome_table(trajectories: Sequence[Trajectory], tasks: Sequence[Task]) -> NDArray[np.float64]:
    """Return success as [N, S], rows in the order of `tasks`, columns in the order of siblings.

    Raises:
        ValueError: a task lacks an episode that another has, or an episode is of an unknown task.
    """
    rows: dict[str, dict[int, bool]] = {task.task_id: {} for task in tasks}
    for trajectory in trajectories:
        if trajectory.task_id not in rows or trajectory.sibling in rows[trajectory.task_id]:
            raise ValueError(f"episode {trajectory.task_id}/{trajectory.sibling} is unknown or comes twice")
        rows[trajectory.task_id][trajectory.sibling] = trajectory.success
    siblings = sorted({sibling for row in rows.values() for sibling in row})
    if any(sorted(row) != siblings for row in rows.values()):
        raise ValueError("every task needs the same siblings")
    return np.array([[row[sibling] for sibling in siblings] for row in rows.values()], dtype=np.float64)


def describe_model(
    trajectories: Sequence[Trajectory],
    tasks: Sequence[Task],
    subgoals: Mapping[str, int],
    *,
    confidence: float,
    resamples: int,
    seed: int,
) -> Table:
    """Return success with its interval, pass@k, pass^k and quality of one model on one split."""
    outcome_NS = outcome_table(trajectories, tasks)
    samples = outcome_NS.shape[1]
    rate = statistics.success_rate(outcome_NS, confidence=confidence, resamples=resamples, seed=seed)
    count_N = outcome_NS.sum(axis=1)
    return {
        "tasks": len(tasks),
        "episodes": len(trajectories),
        "success": _rounded(asdict(rate)),
        "pass_at_k": {str(k): round(statistics.pass_at_k(count_N, samples, k), 6) for k in range(1, samples + 1)},
        "pass_hat_k": {str(k): round(statistics.pass_hat_k(count_N, samples, k), 6) for k in range(1, samples + 1)},
        **summarise_quality(trajectories, {task.task_id: task for task in tasks}, subgoals),
    }


def compare_models(
    before: Sequence[Trajectory],
    after: Sequence[Trajectory],
    tasks: Sequence[Task],
    *,
    confidence: float,
    resamples: int,
    seed: int,
) -> Table:
    """Return the paired gain on one split: interval, p-values, and the gain that so many tasks could show."""
    before_NS, after_NS = outcome_table(before, tasks), outcome_table(after, tasks)
    gain = statistics.paired_gain(before_NS, after_NS, confidence=confidence, resamples=resamples, seed=seed)
    deviation = float(np.std(after_NS.mean(axis=1) - before_NS.mean(axis=1), ddof=1)) if len(tasks) > 1 else 0.0
    table = _rounded(asdict(gain))
    if before_NS.shape[1] == 1:
        table["mcnemar_p_value"] = round(statistics.mcnemar_exact(before_NS[:, 0], after_NS[:, 0]), 6)
    table["deviation"] = round(deviation, 6)
    detectable = statistics.minimum_detectable_effect(len(tasks), deviation=deviation, confidence=confidence)
    table["minimum_detectable_effect"] = round(detectable, 6)
    return table


def compare_families(
    before: Sequence[Trajectory],
    after: Sequence[Trajectory],
    tasks: Sequence[Task],
    *,
    confidence: float,
    resamples: int,
    seed: int,
) -> list[Table]:
    """Return one row per task family, by name: success before and after, each with its interval."""
    rows = []
    for family in sorted({task.family for task in tasks}):
        chosen = [task for task in tasks if task.family == family]
        row: Table = {"family": family, "tasks": len(chosen)}
        for role, episodes in (("before", before), ("after", after)):
            outcome_NS = outcome_table([t for t in episodes if t.family == family], chosen)
            rate = statistics.success_rate(outcome_NS, confidence=confidence, resamples=resamples, seed=seed)
            row[role] = _rounded(asdict(rate))
        rows.append(row)
    return rows


def _rounded(record: Mapping[str, Any]) -> Table:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in record.items()}
