"""One side of a comparison, read once: hashes of keys and columns, numbers, counts; no row is kept.

Legend: N rows of a side. Memory is 8 bytes a row and column for the hash, and 8 more for a number.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geartrain.differences.hashing import NULL, Hashes, combine, hash_column, mix, numeric_values
from geartrain.differences.kinds import Kind
from geartrain.differences.rows import Rows
from geartrain.errors import UserError

MOST_STRATA = 1000
"""A column with more values is none to count by."""


@dataclass(frozen=True)
class Profile:
    """What is known of a side."""

    rows: int
    key_N: Hashes
    """One hash per row; of rows that share a key, one per occurrence."""
    repeated: int
    """Rows whose key an earlier row has already."""
    columns: dict[str, Hashes]
    """Column -> [N]."""
    numbers: dict[str, NDArray[np.float64]]
    """Column -> [N], NaN where there is none; a list's length and a text's characters count as numbers."""
    lengths: frozenset[str]
    """Columns whose numbers are lengths."""
    strata: Counter[str]
    """Value of the kind's stratum -> rows."""
    group_N: Hashes | None
    """Hash of the group of each row."""


class _Columns:
    """Columns that grow by batches; one that a batch lacks is filled up."""

    def __init__(self, fill: float | np.uint64) -> None:
        self.parts: dict[str, list[NDArray[np.generic]]] = defaultdict(list)
        self.fill = fill

    def append(self, name: str, values: NDArray[np.generic], before: int) -> None:
        if name not in self.parts and before:
            self.parts[name].append(np.full(before, self.fill))
        self.parts[name].append(values)

    def fill_up(self, seen: set[str], rows: int) -> None:
        for name in self.parts.keys() - seen:
            self.parts[name].append(np.full(rows, self.fill))

    def whole(self) -> dict[str, NDArray[np.generic]]:
        """Return each column as one array; gives up the parts on the way."""
        return {name: np.concatenate(self.parts.pop(name)) for name in list(self.parts)}


def read_profile(rows: Rows, kind: Kind) -> Profile:
    """Read a side. Raises UserError: a key column is missing, or a file is unreadable."""
    hashes, numbers = _Columns(NULL), _Columns(np.nan)
    strata: Counter[str] = Counter()
    lengths: set[str] = set()
    count = 0
    for batch in rows.batches():
        _require(batch, kind, rows)
        numeric: set[str] = set()
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            hashes.append(name, hash_column(column), count)
            values = numeric_values(column)
            if values is not None:
                numbers.append(name, values, count)
                numeric.add(name)
                if not _is_number(column.type):
                    lengths.add(name)
        hashes.fill_up(set(batch.schema.names), batch.num_rows)
        numbers.fill_up(numeric, batch.num_rows)
        if kind.stratum in batch.schema.names:
            _count(strata, batch.column(kind.stratum))
        count += batch.num_rows
    if not count:
        raise UserError(f"{rows.files[0].parent}: holds no row")
    columns: dict[str, Hashes] = hashes.whole()  # type: ignore[assignment]
    key, repeated = _keys(columns, kind)
    whole: dict[str, NDArray[np.float64]] = numbers.whole()  # type: ignore[assignment]
    return Profile(count, key, repeated, columns, whole, frozenset(lengths), strata, columns.get(kind.group))


def _keys(columns: dict[str, Hashes], kind: Kind) -> tuple[Hashes, int]:
    parts = [columns[name] for name in kind.key]
    if kind.unordered:
        parts.append(combine([columns[name] for name in kind.unordered], ordered=False))
    key = combine(parts)
    order = np.argsort(key, kind="stable")
    fresh = np.concatenate([[True], np.diff(key[order]) != 0])
    starts = np.flatnonzero(fresh)
    occurrence = np.arange(len(key)) - np.repeat(starts, np.diff(np.append(starts, len(key))))
    again = occurrence > 0
    key[order[again]] += mix(occurrence[again].astype(np.uint64))
    return key, int(again.sum())


def _require(batch: pa.RecordBatch, kind: Kind, rows: Rows) -> None:
    named = {"id": kind.key + kind.unordered, "label": (kind.label,), "group": (kind.group,)}
    for option, names in named.items():
        missing = [name for name in names if name and name not in batch.schema.names]
        if missing:
            place = ", ".join(path.name for path in rows.files[:3])
            has = ", ".join(batch.schema.names)
            raise UserError(f"{place}: no column {missing[0]!r} (--{option}); it has {has}")


def _count(strata: Counter[str], column: pa.Array) -> None:
    if len(strata) > MOST_STRATA:
        return
    for item in column.value_counts().to_pylist():
        strata[str(item["values"])] += item["counts"]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))
