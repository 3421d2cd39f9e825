"""Preference pairs as the reward model reads them: two transcripts of one task, and which is better."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("task_id", pa.string()),
        ("family", pa.string()),
        ("split", pa.string()),
        ("prompt", pa.string()),
        ("chosen", pa.string()),
        ("rejected", pa.string()),
        ("margin", pa.float64()),
        ("chosen_id", pa.string()),
        ("rejected_id", pa.string()),
        ("origin", pa.string()),
    ]
)
SPLITS = ("train", "validation")
SIBLINGS = "siblings"
FILES = "file:"
"""What the origin of a pair from a file begins with; its name follows."""


@dataclass(frozen=True)
class Pair:
    """Two transcripts of one task. `*_id` name the trajectories, as "task/sibling"."""

    task_id: str
    family: str
    split: str
    prompt: str
    chosen: str
    rejected: str
    margin: float
    """Difference of the verified scores, > 0."""
    chosen_id: str
    rejected_id: str
    origin: str = SIBLINGS
    """Where the rejected text comes from: `SIBLINGS`, the kind of forgery, or `FILES` and the name of a file."""


def split_of(task_id: str, validation_share: float) -> str:
    """Return the split of a task: a function of its id alone, so that new tasks move no old one."""
    position = int.from_bytes(hashlib.sha256(f"preferences/{task_id}".encode()).digest()[:8], "big") / 2**64
    return "validation" if position < validation_share else "train"


def write_pairs(path: Path, pairs: Sequence[Pair]) -> None:
    """Write pairs as Parquet of `SCHEMA`."""
    rows = [{name: getattr(pair, name) for name in SCHEMA.names} for pair in pairs]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, compression="zstd")


def read_pairs(path: Path) -> list[Pair]:
    """Read pairs that `write_pairs` wrote."""
    return [Pair(**row) for row in pq.read_table(path, schema=SCHEMA).to_pylist()]
