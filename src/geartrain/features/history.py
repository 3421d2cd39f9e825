"""What is known of tasks, prompts and policies, tick by tick: the newest values in memory, every one as a row.

The rows are the feature tables of a stage. A run that is resumed goes on from `state_dict`; one that starts from a
frame (what Feast says is known) goes on from that.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from geartrain.features import statistics
from geartrain.features.clock import time_of
from geartrain.features.headroom import Floats, expected_success
from geartrain.features.statistics import Played, Values
from geartrain.features.tables import CREATED, EVENT, TABLES, write_tables

Key = str | int
LEAST_SPREAD = 0.05
"""Spread of rewards below which a shift is not blown up further; as in `data/feature_repo/on_demand.py`."""
_CARRIED = ("task_history", "prompt_history", "task_rewards", "judge_disagreement")
"""Tables whose new values rest on the old ones."""


class History:
    """Grows by `observe`; plain values, so that a checkpoint may hold it."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[Key, Values]] = {name: {} for name in TABLES}
        self._rows: dict[str, list[Values]] = {name: [] for name in TABLES}

    @classmethod
    def of_frame(cls, frame: pa.Table) -> "History":
        """Continue from a frame that has the values of `task_history` and the like; null is never played."""
        history = cls()
        for name in _CARRIED:
            key, *columns = (column for column in TABLES[name].names if column in frame.column_names)
            columns = [column for column in columns if column not in (EVENT, CREATED)]
            for row in frame.select([key, *columns]).to_pylist():
                values = {column: row[column] for column in columns}
                if any(value is not None for value in values.values()):
                    history._latest[name][row[key]] = values
        return history

    def observe(self, tick: int, episodes: Sequence[Played]) -> None:
        """Add what was played, known from `tick` on; the order of the episodes does not matter."""
        tasks, prompts, versions = (_grouped(episodes, name) for name in ("task_id", "family", "policy_version"))
        for task, group in tasks.items():
            self._add("task_history", tick, task, statistics.task_history(group, self.newest("task_history", task)))
            self._add("task_rewards", tick, task, statistics.task_rewards(group, self.newest("task_rewards", task)))
            self._add("sibling_contrast", tick, task, statistics.sibling_contrast(group))
            self._add("task_length", tick, task, statistics.task_length(group))
            told = statistics.judge_disagreement(group, self.newest("judge_disagreement", task))
            if told is not None:
                self._add("judge_disagreement", tick, task, told)
        for prompt, group in prompts.items():
            self._add(
                "prompt_history", tick, prompt, statistics.prompt_history(group, self.newest("prompt_history", prompt))
            )
        for version, group in versions.items():
            before = self.newest("policy_rewards", int(version) - 1)
            self._add("policy_rewards", tick, version, statistics.policy_rewards(group, before))

    def observe_source(self, tick: int, source: str, margins: Sequence[float], tasks: int) -> None:
        """Add what a source of preference pairs has given."""
        self._add("source_history", tick, source, statistics.source_history(margins, tasks))

    def reward_drift(self, version: int) -> float | None:
        """Return by how many spreads the mean reward of a policy version lies above that of the version before."""
        values = self.newest("policy_rewards", version)
        if values is None or values["policy_reward_drift"] is None:
            return None
        return float(values["policy_reward_drift"] / max(values["policy_reward_spread"], LEAST_SPREAD))

    def newest(self, table: str, key: Key) -> Values | None:
        """Return the newest values of a key, or None."""
        return self._latest[table].get(key)

    def expected_success(self, tasks: Sequence[tuple[str, str]]) -> Floats:
        """Return the expected share of successes of (task, family), [N]; see `features.headroom`."""
        columns = []
        for table, place, names in (
            ("task_history", 0, ("recent_attempts", "recent_successes")),
            ("prompt_history", 1, ("prompt_recent_attempts", "prompt_recent_successes")),
        ):
            found = [self.newest(table, task[place]) or {} for task in tasks]
            columns += [[float(values.get(name) or 0.0) for values in found] for name in names]
        return expected_success(*columns)

    def write(self, folder: Path, origin: datetime) -> None:
        """Write all that was observed as feature tables; tick 0 is at `origin`."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for name, ticked in self._rows.items():
            timed = [(dict(row), time_of(origin, row["tick"])) for row in ticked]
            rows[name] = [{**_without_tick(row), EVENT: time, CREATED: time} for row, time in timed]
        write_tables(folder, rows)

    def state_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return {"latest": self._latest, "rows": self._rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`'s value."""
        self._latest, self._rows = state["latest"], state["rows"]

    def _add(self, table: str, tick: int, key: Key, values: Values) -> None:
        self._latest[table][key] = values
        self._rows[table].append({TABLES[table].names[0]: key, **values, "tick": tick})


def _grouped(episodes: Sequence[Played], name: str) -> dict[Any, list[Played]]:
    groups: dict[Any, list[Played]] = defaultdict(list)
    for episode in episodes:
        groups[getattr(episode, name)].append(episode)
    return dict(sorted(groups.items()))


def _without_tick(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "tick"}
