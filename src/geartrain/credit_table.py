"""The episodes that a training has played and what credit their turns got: two kinds of Parquet files per iteration.

    000000012-0.parquet        what was played in a round, as `trajectory` writes it: texts, calls, results, token ids
    000000012.credit.parquet   one row per episode of all rounds, in their order: outcome, rewards, advantage, and per
                               turn rewards and the means of its tokens' weight and credit

They lie beside the live record of the stage, in a folder of its name, and are no
output: nothing that is trained, signed or served reads them. An iteration that
a resumed run does again replaces its files.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geartrain.trajectory import Trajectory, from_record

FOLDER = "episodes"
_CREDIT = re.compile(r"(\d{9})\.credit\.parquet")
_GRAINS = b"grains"

STEP = pa.struct(
    [
        ("reward", pa.float32()),  # step grain
        ("token_reward", pa.float32()),  # token grain, summed over the turn
        ("weight", pa.float32()),  # mean W of its tokens; null: not trained on
        ("credit", pa.float32()),  # mean A * W of its tokens
        ("grains", pa.list_(pa.float32())),  # mean of each grain, of a method that mixes grains
        ("error", pa.string()),  # kind of the error that answered it
    ]
)
SCHEMA = pa.schema(
    [
        ("iteration", pa.int32()),
        ("round", pa.int16()),
        ("row", pa.int32()),  # in the file of its round
        ("task_id", pa.string()),
        ("family", pa.string()),
        ("group_id", pa.string()),
        ("sibling", pa.int32()),
        ("success", pa.bool_()),
        ("progress", pa.float32()),
        ("end", pa.string()),
        ("turns", pa.int32()),
        ("tokens", pa.int32()),
        ("invalid_calls", pa.int32()),
        ("reward", pa.float64()),  # total; null: scoring failed
        ("rewards", pa.string()),  # raw by channel, JSON
        ("advantage", pa.float32()),  # null: not trained on
        ("steps", pa.list_(STEP)),
    ]
)
SUMMARY = tuple(name for name in SCHEMA.names if name != "steps")
"""Columns that a list of episodes shows; all but the turns."""


@dataclass(frozen=True)
class Opened:
    """One episode with its credit."""

    trajectory: Trajectory
    row: Mapping[str, Any]
    """Its row of `SCHEMA`; `rewards` parsed."""
    grains: Sequence[str]
    """Names of `steps[...]["grains"]`."""


def round_path(folder: Path, iteration: int, number: int) -> Path:
    """Return the file of what was played in a round of an iteration."""
    return folder / f"{iteration:09d}-{number}.parquet"


def credit_path(folder: Path, iteration: int) -> Path:
    """Return the file of an iteration's credit."""
    return folder / f"{iteration:09d}.credit.parquet"


def recorded(folder: Path) -> list[int]:
    """Return the iterations whose episodes are there, in order; none if there is no such folder."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(match[1]) for name in names if (match := _CREDIT.fullmatch(name)))


def count_episodes(path: Path) -> int:
    """Return how many episodes a file of a round holds."""
    return int(pq.read_metadata(path).num_rows)


def write_credit(folder: Path, iteration: int, rows: Sequence[Mapping[str, Any]], grains: Sequence[str]) -> Path:
    """Write an iteration's credit; a reader sees all of it or none.

    Args:
        folder: exists.
        iteration: counted from 0.
        rows: fit `SCHEMA`.
        grains: names of the grains that a turn's `grains` are of.
    """
    path = credit_path(folder, iteration)
    temporary = path.with_name(f".{path.name}.tmp")
    schema = SCHEMA.with_metadata({_GRAINS: json.dumps(list(grains)).encode()})
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), temporary, compression="zstd")
    temporary.replace(path)
    return path


def read_summary(folder: Path, iteration: int) -> pa.Table:
    """Return the rows of an iteration without their turns. Raises OSError or pa.ArrowInvalid: gone, or damaged."""
    return _read(credit_path(folder, iteration), SUMMARY)


def open_episode(folder: Path, iteration: int, index: int) -> Opened | None:
    """Return one episode of an iteration, by its row in the credit file; None: there is none.

    Of the file of its round only the row group is read that holds it. Raises as `read_summary`.
    """
    table = _read(credit_path(folder, iteration), SCHEMA.names)
    if not 0 <= index < len(table):
        return None
    (row,) = table.slice(index, 1).to_pylist()
    row["rewards"] = json.loads(row["rewards"])
    trajectory = _played(round_path(folder, iteration, row["round"]), row["row"])
    grains = json.loads((table.schema.metadata or {}).get(_GRAINS, b"[]"))
    return None if trajectory is None else Opened(trajectory, row, grains)


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    """Read a small file: its set-up is what takes time, a fifth of what `pq.read_table` needs."""
    with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
        return file.read(columns=list(columns), use_threads=False)


def _played(path: Path, row: int) -> Trajectory | None:
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            inside = file.metadata.row_group(group).num_rows
            if row < inside:
                (record,) = file.read_row_group(group).slice(row, 1).to_pylist()
                return from_record(record)
            row -= inside
    return None
