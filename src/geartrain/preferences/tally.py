"""What is counted of the records that are kept, block by block; nothing of them stays in memory.

Legend: N records of a block, C candidates, M messages of candidates.
"""

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Z = 1.959964
"""Of a 95 % interval."""
BINS = 33
"""Of the histograms over powers of two."""
MOST_TASKS = 100_000
"""Different tasks that are counted one by one."""


class Tally:
    """Counts over kept records."""

    def __init__(self) -> None:
        self.records = 0
        self.pairs = 0
        self.by_task: Counter[str] = Counter()
        self.by: dict[str, Counter[str]] = {
            name: Counter() for name in ("split", "language", "source", "licence", "flags", "answers")
        }
        self.longer = Share()
        self.listed = Share()
        """Whether the answer listed first is better than the one listed last, where both were shown in that order."""
        self.ratio_H = np.zeros(BINS, dtype=np.int64)
        """Of log2(characters of the best / of the worst answer), from -4 to 4 by quarters."""
        self.chars_H = np.zeros(BINS, dtype=np.int64)
        """Of log2(characters of an answer), from 0 to 16 by halves."""
        self.asked_H = np.zeros(BINS, dtype=np.int64)
        """The same of prompts."""
        self.clusters = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a block of `STAGED` records with the column `split`."""
        self.records += batch.num_rows
        for name in ("split", "language", "source", "licence"):
            _count(self.by[name], batch.column(name))
        if len(self.by_task) < MOST_TASKS:
            _count(self.by_task, batch.column("task"))
        _count(self.by["flags"], batch.column("flags").flatten())
        counts_N = np.asarray(pc.list_value_length(batch.column("candidates")))
        for size, times in zip(*np.unique(counts_N, return_counts=True), strict=True):
            self.by["answers"][str(size)] += int(times)
        chars_C, score_C = _candidates(batch.column("candidates"))
        first_N = np.concatenate([[0], np.cumsum(counts_N)])[:-1]
        _histogram(self.chars_H, np.log2(np.maximum(chars_C, 1)) * 2)
        asked = _sums(batch.column("prompt"))
        _histogram(self.asked_H, np.log2(np.maximum(asked, 1)) * 2)
        best_N, worst_N = (np.asarray(batch.column(name)) for name in ("best", "worst"))
        judged = np.flatnonzero(best_N >= 0)
        self.pairs += len(judged)
        best, worst = (chars_C[first_N[judged] + side_N[judged]] for side_N in (best_N, worst_N))
        self.longer.add(
            wins=int((best > worst).sum()), losses=int((best < worst).sum()), ties=int((best == worst).sum())
        )
        _histogram(self.ratio_H, (np.log2(np.maximum(best, 1) / np.maximum(worst, 1)) + 4) * 4)
        ordered = judged[np.asarray(batch.column("ordered").to_numpy(zero_copy_only=False))[judged]]
        last_N = counts_N - 1
        wins = int((best_N[ordered] == 0).sum()), int((best_N[ordered] == last_N[ordered]).sum())
        self.listed.add(wins=wins[0], losses=wins[1], ties=len(ordered) - sum(wins))
        del score_C


class Share:
    """How often one side wins, with the interval in which that may lie."""

    def __init__(self) -> None:
        self.wins = self.losses = self.ties = 0

    def add(self, *, wins: int, losses: int, ties: int) -> None:
        """Count some."""
        self.wins, self.losses, self.ties = self.wins + wins, self.losses + losses, self.ties + ties

    def told(self) -> dict[str, Any]:
        """Return the share of wins among what is no tie, with Wilson's 95 % interval; None where there is nothing."""
        count = self.wins + self.losses
        counts = {"wins": self.wins, "losses": self.losses, "ties": self.ties}
        if not count:
            return {**counts, "share": None, "low": None, "high": None}
        low, high = wilson(self.wins, count)
        return {**counts, "share": round(self.wins / count, 4), "low": round(low, 4), "high": round(high, 4)}


def wilson(wins: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of `count` > 0 (Wilson's)."""
    share, spread = wins / count, Z * Z / count
    middle = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt(share * (1 - share) / count + spread / (4 * count)) / (1 + spread)
    return middle - half, middle + half


def _count(counter: Counter[str], column: pa.Array) -> None:
    for entry in pc.value_counts(column):
        value, times = entry["values"].as_py(), entry["counts"].as_py()
        counter["" if value is None else value] += times


def _candidates(column: pa.ListArray) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return [C]: characters of each candidate, and its score (NaN without one)."""
    candidates = column.flatten()
    return _sums(candidates.field("messages")), candidates.field("score").to_numpy(zero_copy_only=False)


def _sums(messages: pa.ListArray) -> NDArray[np.int64]:
    """Return how many characters each list of messages has."""
    said = messages.flatten().field("content")
    chars_M = np.concatenate([[0], np.cumsum(np.asarray(pc.utf8_length(said), dtype=np.int64))])
    ends = np.concatenate([[0], np.cumsum(np.asarray(pc.list_value_length(messages), dtype=np.int64))])
    return np.asarray(np.diff(chars_M[ends]))


def _histogram(counts_H: NDArray[np.int64], values: NDArray[np.float64]) -> None:
    counts_H += np.bincount(np.clip(values.astype(np.int64), 0, BINS - 1), minlength=BINS)
