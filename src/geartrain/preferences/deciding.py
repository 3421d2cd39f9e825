"""What becomes of each record once all were read: kept, in which split, or left out, and why.

Splits are of prompts. A prompt that is near no earlier one goes where a hash of it says; one that is near earlier ones
goes where they are. One that is near to earlier ones of both splits is left out: it would tie them together. So what
comes later, in whatever number, moves nothing that was there before, and near prompts never lie in two splits. "Before"
is the order of reading; records of an earlier build come before all others (`Earlier`).

Legend: N records in the order in which they were read, L prompts of an earlier build, before them.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from geartrain.preferences.near import Spill, first_seen, group_all, walk
from geartrain.preferences.pairs import SPLITS
from geartrain.preferences.words import Hashes, mix

PROMPTS, RECORDS = "prompts.", "records."
"""Columns of a `Spill` by which prompts and records are near."""
_SALT = np.uint64(0x7072656665726573)


class Fate(IntEnum):
    """What becomes of a record; names are the reasons in the quarantine."""

    KEPT = 0
    LEAKS_INTO_HELD_OUT = 1
    DUPLICATE_ID = 2
    EXACT_DUPLICATE = 3
    CONTRADICTION = 4
    BETWEEN_SPLITS = 5
    NEAR_DUPLICATE = 6


@dataclass(frozen=True)
class Decision:
    """Of all records."""

    fate_N: NDArray[np.uint8]
    """`Fate`."""
    split_N: NDArray[np.uint8]
    """Place in `SPLITS`; of no meaning for what is not kept."""


def own_split(prompt_N: Hashes, validation_share: float) -> NDArray[np.uint8]:
    """Return [N], places in `SPLITS`: a function of a prompt alone."""
    position = mix(prompt_N ^ _SALT) >> np.uint64(11)  # 53 bits: exact as floats
    return np.asarray(position < validation_share * 2.0**53, dtype=np.uint8)


def decide(spill: Spill, *, validation_share: float, earlier_L: NDArray[np.uint8] | None = None) -> Decision:
    """Decide on what `spill` holds: columns `prompt`, `record`, `id`, `leaks`, `pair`, `pair_row`, `pair_first`, and
    those of `PROMPTS` and `RECORDS`; the first have the L prompts of an earlier build, in `earlier_L`'s splits, before
    the N others.
    """
    prompt_N = spill.read("prompt", np.uint64)
    fate_N = np.zeros(len(prompt_N), dtype=np.uint8)
    splits = _splits(spill, own_split(prompt_N, validation_share), earlier_L)
    del prompt_N
    _leave_out(fate_N, spill.read("leaks", np.uint8) != 0, Fate.LEAKS_INTO_HELD_OUT)
    identity_N = spill.read("id", np.uint64)
    _leave_out(fate_N, ~first_seen(identity_N) & (identity_N != 0), Fate.DUPLICATE_ID)
    del identity_N
    _leave_out(fate_N, ~first_seen(spill.read("record", np.uint64)), Fate.EXACT_DUPLICATE)
    contradicting = np.zeros(len(fate_N), dtype=bool)
    contradicting[_contradicting(spill)] = True
    _leave_out(fate_N, contradicting, Fate.CONTRADICTION)
    _leave_out(fate_N, splits == len(SPLITS), Fate.BETWEEN_SPLITS)
    _leave_out_near(fate_N, spill)
    return Decision(fate_N, splits)


def _leave_out(fate_N: NDArray[np.uint8], which_N: NDArray[np.bool_], fate: Fate) -> None:
    fate_N[which_N & (fate_N == Fate.KEPT)] = fate


def _splits(spill: Spill, own_N: NDArray[np.uint8], earlier_L: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
    """Return [N], places in `SPLITS`; `len(SPLITS)` for what lies between."""
    before = 0 if earlier_L is None else len(earlier_L)
    split_N = own_N.copy()
    none, between = len(SPLITS) + 1, len(SPLITS)
    held = bytearray([none]) * group_all(spill, PROMPTS)
    for first, rows in walk(spill, PROMPTS):
        for place, groups in enumerate(rows, first):
            if not groups:
                continue
            if place < before:
                assert earlier_L is not None
                split = int(earlier_L[place])
            else:
                taken = {held[group] for group in groups} - {none}
                if len(taken) > 1:
                    split_N[place - before] = between
                    continue
                split = taken.pop() if taken else int(own_N[place - before])
                split_N[place - before] = split
            for group in groups:
                if held[group] == none:
                    held[group] = split
    return split_N


def _contradicting(spill: Spill) -> NDArray[np.int32]:
    """Return the records in which an answer is better than another that is better than it elsewhere."""
    pair_P = spill.read("pair", np.uint64)
    if not len(pair_P):
        return np.empty(0, dtype=np.int32)
    order = np.argsort(pair_P, kind="stable").astype(np.int32)
    ordered = pair_P[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    first_P = spill.read("pair_first", np.uint8)[order]
    mixed = np.minimum.reduceat(first_P, starts) != np.maximum.reduceat(first_P, starts)
    lengths = np.diff(np.append(starts, len(ordered)))
    return np.asarray(spill.read("pair_row", np.int32)[order[np.repeat(mixed, lengths)]], dtype=np.int32)


def _leave_out_near(fate_N: NDArray[np.uint8], spill: Spill) -> None:
    """Leave out each record that is near to an earlier one that is kept."""
    taken = bytearray(group_all(spill, RECORDS))
    for first, rows in walk(spill, RECORDS):
        for place, groups in enumerate(rows, first):
            if not groups or fate_N[place] != Fate.KEPT:
                continue
            if any(taken[group] for group in groups):
                fate_N[place] = Fate.NEAR_DUPLICATE
                continue
            for group in groups:
                taken[group] = 1
