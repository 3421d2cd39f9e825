"""The episodes that a training has recorded: a page of a filtered list, and one with the credit of its turns."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from geartrain.credit_table import Opened, credit_path, open_episode, read_summary, recorded
from geartrain.reporting.transcript import pretty_call, printable

LONGEST = 20_000
"""Characters of a message that are sent."""
SORTS = ("iteration", "advantage", "reward", "turns", "progress")
Record = dict[str, Any]
SHOWN = (
    *("iteration", "task_id", "family", "sibling", "success", "progress", "end", "turns", "invalid_calls"),
    *("reward", "advantage"),
)
"""Columns of the list."""


@dataclass(frozen=True)
class Asked:
    """What of the episodes is asked for; None: any."""

    iteration: int | None = None
    family: str | None = None
    success: bool | None = None
    trained: bool | None = None
    task: str | None = None
    """Part of a task's id."""
    sort: str = "iteration"
    ascending: bool = False
    offset: int = 0
    limit: int = 50


class Episodes:
    """The record of one training, which grows while it is looked at. Many threads may ask.

    A list reads the summaries, an iteration's once; an open episode the row group that holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Lock()
        self._read: dict[int, tuple[int, pa.Table]] = {}
        self._whole: tuple[tuple[int, ...], pa.Table] | None = None

    def iterations(self) -> list[int]:
        """Return the iterations that are there."""
        return recorded(self.folder)

    def page(self, asked: Asked) -> Record:
        """Return a page of the list: `rows`, `total` of those that fit, and the `families` to choose from."""
        table = self._table(asked.iteration)
        if table is None:
            return {"rows": [], "total": 0, "families": []}
        families = sorted(pc.unique(table["family"]).to_pylist())
        chosen = _sorted(_filtered(table, asked), asked)
        rows = chosen.slice(asked.offset, asked.limit).select([*SHOWN, "place"]).to_pylist()
        return {"rows": rows, "total": len(chosen), "families": families}

    def open(self, iteration: int, place: int) -> Record | None:
        """Return an episode by its place in its iteration, with its siblings; None: it is not there (any more)."""
        try:
            opened = open_episode(self.folder, iteration, place)
            table = self._table(iteration)
        except (OSError, pa.ArrowInvalid):
            return None
        if opened is None or table is None:
            return None
        group = table.filter(pc.equal(table["group_id"], opened.row["group_id"]))
        siblings = group.select(["sibling", "success", "reward", "advantage", "turns", "place"]).to_pylist()
        return {**_episode(opened), "place": place, "siblings": siblings}

    def _table(self, iteration: int | None) -> pa.Table | None:
        """Return the rows of an iteration, or of all, with their `place` in it."""
        with self._lock:
            if iteration is not None:
                return self._summary(iteration)
            there = self.iterations()
            tables = [table for number in there if (table := self._summary(number)) is not None]
            state = tuple(self._read[number][0] for number in there if number in self._read)
            if self._whole is None or self._whole[0] != state:
                self._whole = (state, pa.concat_tables(tables).combine_chunks()) if tables else None
            return self._whole[1] if self._whole else None

    def _summary(self, iteration: int) -> pa.Table | None:
        try:
            changed = credit_path(self.folder, iteration).stat().st_mtime_ns
            known = self._read.get(iteration)
            if known is None or known[0] != changed:
                table = read_summary(self.folder, iteration)
                table = table.append_column("place", pa.array(range(len(table)), pa.int32()))
                self._read[iteration] = known = (changed, table)
            return known[1]
        except (OSError, pa.ArrowInvalid):  # let go to make room, or damaged
            self._read.pop(iteration, None)
            return None


def _filtered(table: pa.Table, asked: Asked) -> pa.Table:
    masks = []
    if asked.family is not None:
        masks.append(pc.equal(table["family"], asked.family))
    if asked.success is not None:
        masks.append(pc.equal(table["success"], asked.success))
    if asked.trained is not None:
        trained = pc.is_valid(table["advantage"])
        masks.append(trained if asked.trained else pc.invert(trained))
    if asked.task:
        masks.append(pc.match_substring(table["task_id"], asked.task))
    for number, mask in enumerate(masks):
        masks[0] = mask if number == 0 else pc.and_(masks[0], mask)
    return table.filter(masks[0]) if masks else table


def _sorted(table: pa.Table, asked: Asked) -> pa.Table:
    order = "ascending" if asked.ascending else "descending"
    keys = {"iteration": "descending", asked.sort: order, "place": "ascending"}
    first = [asked.sort, *(key for key in keys if key != asked.sort)]
    return table.take(pc.sort_indices(table, sort_keys=[(key, keys[key], "at_end") for key in first]))


def _episode(opened: Opened) -> Record:
    row, trajectory = opened.row, opened.trajectory
    known = {name: row[name] for name in (*SHOWN, "tokens", "group_id")}
    turns = [
        {
            "action": printable(pretty_call(turn.action_text), LONGEST),
            "called": turn.call is not None,
            "result": printable(turn.result.content, LONGEST),
            "error": turn.result.error,
            "subgoals": [printable(goal) for goal in turn.subgoals],
            "tokens": len(turn.action_ids),
            "entropy": _mean(turn.action_entropies or [-x for x in turn.action_logprobs]),
            "reward": step["reward"],
            "token_reward": step["token_reward"],
            "weight": step["weight"],
            "credit": step["credit"],
            "grains": dict(zip(opened.grains, step["grains"] or (), strict=False)),
        }
        for turn, step in zip(trajectory.turns, row["steps"], strict=True)
    ]
    return {**known, "channels": row["rewards"], "temperature": trajectory.temperature, "turns": turns}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def task_prompt(tasks: Path, task_id: str) -> str | None:
    """Return the wording of a training task, or None where the task set is not there, or is another by now."""
    try:
        with (tasks / "train.jsonl").open(encoding="utf-8") as file:
            for line in file:
                if task_id in line and (task := json.loads(line)).get("task_id") == task_id:
                    return printable(str(task.get("prompt", "")), LONGEST)
    except (OSError, ValueError, AttributeError):
        return None
    return None
