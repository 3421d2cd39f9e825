"""What collected rollouts and the pairs made of them say: feature tables, and the frames of who trains on them."""

import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from geartrain.environments.environment import Task
from geartrain.features.clock import COLLECTED
from geartrain.features.definitions import TABLES_FOLDER, find_definitions
from geartrain.features.earlier import Earlier
from geartrain.features.frames import CRITIC, FRAMES, REWARD_MODEL, SAMPLER, Frame, write_frame
from geartrain.features.history import History
from geartrain.features.statistics import Played
from geartrain.features.tables import EVENT, FOLDER, TIME, gather
from geartrain.preferences.pairs import Pair
from geartrain.trajectory import Trajectory

NOTHING = Earlier()
"""A run that is the first."""


def remember(episodes: Sequence[Played], pairs: Sequence[Pair], before: History | None = None) -> History:
    """Return what is known once rollouts are collected and pairs are made of them, and what was known `before`."""
    history = History() if before is None else before
    history.observe(COLLECTED, episodes)
    by_source: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_source[pair.origin].append(pair)
    for source, given in sorted(by_source.items()):
        tasks = len({pair.task_id for pair in given})
        history.observe_source(COLLECTED, source, [pair.margin for pair in given], tasks)
    return history


def spines(
    tasks: Sequence[Task], trajectories: Sequence[Trajectory], pairs: Sequence[Pair]
) -> Mapping[str, dict[str, Sequence[Any]]]:
    """Return the rows of every frame, without time and features: keys, labels, and how many siblings play a task."""
    sizes = Counter(trajectory.task_id for trajectory in trajectories)
    return {
        SAMPLER: {
            "task_id": [task.task_id for task in tasks],
            "family": [task.family for task in tasks],
            "siblings": [max(sizes.values())] * len(tasks),
        },
        REWARD_MODEL: {
            **{name: [getattr(pair, name) for pair in pairs] for name in ("task_id", "family", "chosen_id")},
            "rejected_id": [pair.rejected_id for pair in pairs],
            "source_id": [pair.origin for pair in pairs],
            "siblings": [sizes[pair.task_id] for pair in pairs],
            "margin": [pair.margin for pair in pairs],
        },
        CRITIC: {
            **{name: [getattr(t, name) for t in trajectories] for name in ("task_id", "family", "policy_version")},
            "sibling": [trajectory.sibling for trajectory in trajectories],
            "siblings": [sizes[trajectory.task_id] for trajectory in trajectories],
            "outcome": [t.outcome if isinstance(t.success, bool) else None for t in trajectories],
        },
    }


def write_features(
    output: Path,
    history: History,
    rows: Mapping[str, Mapping[str, Sequence[Any]]],
    *,
    known_from: datetime,
    work: Path,
    earlier: Earlier = NOTHING,
) -> dict[str, Any]:
    """Write the tables to `output/features` and each frame, as of `known_from`, to `output/frames`.

    Returns where the features are from, for metrics. `work` is for Feast's registry; it is emptied first. What runs
    have learned `earlier` is in the frames, and not written again.

    Raises:
        FeatureError: see `geartrain.features.errors`.
    """
    from geartrain.features.store import private_store  # loads feast

    _, digest = find_definitions()
    history.write(output / FOLDER, known_from)
    shutil.rmtree(work, ignore_errors=True)  # a killed run may have left half a registry
    folders = [output / FOLDER, *([earlier.tables] if earlier.tables else [])]
    counts = gather(folders, work / TABLES_FOLDER)
    store = private_store(work)
    for service, columns in rows.items():
        table = pa.table(dict(columns))
        table = table.append_column(EVENT, pa.array([known_from] * len(table), TIME))
        write_frame(output / FRAMES, Frame(store.as_of(service, table), service, digest, known_from))
    told: dict[str, Any] = {"definitions": digest, "as_of": known_from.isoformat(), "services": sorted(rows)}
    told |= {"earlier": earlier.told} if earlier.told else {}
    return {**told, "rows": {name: count for name, count in counts.items() if count}}
