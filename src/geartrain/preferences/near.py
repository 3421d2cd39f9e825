"""Numbers per record on disk, and who shares one: what must not be in memory while millions of records are read.

Legend: N records in the order in which they were read, G groups of records that share a number.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from geartrain.preferences.words import Hashes

Kind = TypeVar("Kind", bound=np.generic)
_CHUNK = 1 << 14
"""Records that are walked through at a time."""
ALONE = -1
"""Group of a record that shares its number with none."""


class Spill:
    """Columns of numbers that grow on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, name: str, values: NDArray[np.generic]) -> None:
        """Add values to a column."""
        if name not in self._files:
            self._files[name] = (self._folder / name).open("w+b")
        self._files[name].write(values.tobytes())

    def read(self, name: str, kind: type[Kind], first: int = 0, count: int = -1) -> NDArray[Kind]:
        """Return a column, or a part of it."""
        if name not in self._files:
            return np.empty(0, dtype=kind)
        file = self._files[name]
        file.flush()
        return np.fromfile(file.name, dtype=kind, count=count, offset=first * np.dtype(kind).itemsize)

    def names(self, prefix: str) -> list[str]:
        """Return the columns whose name begins so, in order of their making."""
        return [name for name in self._files if name.startswith(prefix)]

    def close(self) -> None:
        """Close the files; they stay."""
        for file in self._files.values():
            file.close()


def first_seen(numbers_N: Hashes) -> NDArray[np.bool_]:
    """Return [N]: whether no earlier record has the same number."""
    order = np.argsort(numbers_N, kind="stable")
    ordered = numbers_N[order]
    later = np.zeros(len(order), dtype=bool)
    later[1:] = ordered[1:] == ordered[:-1]
    first = np.ones(len(order), dtype=bool)
    first[order[later]] = False
    return first


def number_groups(numbers_N: Hashes, start: int) -> tuple[NDArray[np.int32], int]:
    """Return [N]: the group of each record, from `start` on, `ALONE` for one without others; and how many there are."""
    order = np.argsort(numbers_N, kind="stable")
    ordered = numbers_N[order]
    as_before = np.zeros(len(order) + 1, dtype=bool)
    as_before[1:-1] = ordered[1:] == ordered[:-1]
    shared = as_before[:-1] | as_before[1:]
    begins = shared & ~as_before[:-1]
    group = np.full(len(order), ALONE, dtype=np.int32)
    group[order[shared]] = (np.cumsum(begins) - 1 + start)[shared]
    return group, int(begins.sum())


def walk(spill: Spill, prefix: str) -> Iterator[tuple[int, list[list[int]]]]:
    """Yield (place of the first record, groups of each record) through all records in order, some at a time.

    The groups are of the columns of `spill` whose names begin with `prefix`; a record that is alone in a column has no
    group there. They are numbered from 0 without gaps (`group_all`).
    """
    names = spill.names(f"groups.{prefix}")
    total = len(spill.read(names[0], np.int32)) if names else 0
    for first in range(0, total, _CHUNK):
        columns = [spill.read(name, np.int32, first, min(_CHUNK, total - first)) for name in names]
        table = np.stack(columns, axis=1)
        none = (table == ALONE).all(axis=1)
        rows = table.tolist()
        yield (
            first,
            [[] if alone else [g for g in row if g >= 0] for alone, row in zip(none.tolist(), rows, strict=True)],
        )


def group_all(spill: Spill, prefix: str) -> int:
    """Number the groups of all columns whose names begin with `prefix`; return how many there are."""
    total = 0
    for name in spill.names(prefix):
        group, count = number_groups(spill.read(name, np.uint64), total)
        spill.append(f"groups.{name}", group)
        total += count
    return total
