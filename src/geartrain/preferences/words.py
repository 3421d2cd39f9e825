"""Words of many texts at once, as 64-bit hashes that are the same in every process; n-grams of them.

A word is a run of letters, digits and characters beyond ASCII, in lower case (of ASCII); of scripts that write
without spaces, and a few others, every character is one.

Legend: N texts, T words of all of them, W n-grams of all of them, B bytes.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]

_FACTOR = 0x9E3779B97F4A7C15
_INVERSE = pow(_FACTOR, -1, 2**64)
CHUNK = 1 << 20
"""Bytes of text that are looked at together; more memory makes it no faster."""


def _alphabet() -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    lower = np.zeros(256, dtype=np.uint8)
    for byte in range(256):
        if byte >= 0x80 or chr(byte).isalnum():
            lower[byte] = ord(chr(byte).lower()) if byte < 0x80 else byte
    leads = np.zeros(256, dtype=bool)
    leads[[0xE0, *range(0xE3, 0xEE), *range(0xF0, 0xF8)]] = True  # Thai and Indic; Chinese, Japanese, Korean; signs
    return lower, leads


_LOWER, _LEADS = _alphabet()
_MARKS = ((0xC2, 2), (0xE2, 3))
"""First bytes of punctuation beyond ASCII, and how many bytes it has: ¿ « » “ ” — …"""


class Words(NamedTuple):
    """The words of N texts."""

    hash_T: Hashes
    ends_N1: Places
    """Text i has the words from `ends_N1[i]` up to `ends_N1[i + 1]`."""


class _Powers:
    """Powers of an odd number and of its inverse, as many as the longest chunk so far has bytes."""

    def __init__(self) -> None:
        self.up = self.down = np.ones(1, dtype=np.uint64)

    def upto(self, length: int) -> tuple[Hashes, Hashes]:
        if length > len(self.up):
            size = max(length, CHUNK + 1)
            ups = np.full(size, _FACTOR, dtype=np.uint64)
            downs = np.full(size, _INVERSE, dtype=np.uint64)
            ups[0] = downs[0] = 1
            self.up, self.down = np.cumprod(ups, dtype=np.uint64), np.cumprod(downs, dtype=np.uint64)
        return self.up[:length], self.down[:length]


_POWERS = _Powers()


def mix(values: Hashes) -> Hashes:
    """Return each bit of the result dependent on every bit of the value (the finaliser of splitmix64)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def words_of(texts: pa.Array) -> Words:
    """Return the words of texts (strings without null)."""
    if not len(texts):
        return Words(np.empty(0, np.uint64), np.zeros(1, np.int64))
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    offsets = np.frombuffer(texts.buffers()[1], dtype=kind)[texts.offset : texts.offset + len(texts) + 1].astype(
        np.int64
    )
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    hashes, counts = [], []
    first = 0
    while first < len(texts):
        stop = max(first + 1, int(np.searchsorted(offsets, offsets[first] + CHUNK, side="right")) - 1)
        found, lengths = _words(data[offsets[first] : offsets[stop]], offsets[first : stop + 1] - offsets[first])
        hashes.append(found)
        counts.append(lengths)
        first = stop
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts))])
    return Words(np.concatenate(hashes), ends)


def _words(data_B: NDArray[np.uint8], starts_N1: Places) -> tuple[Hashes, Places]:
    """Return the hashes of the words, and how many each text has. A hash is a polynomial over the word's bytes."""
    count = len(starts_N1) - 1
    if not len(data_B):
        return np.empty(0, np.uint64), np.zeros(count, np.int64)
    lower_B = _LOWER[data_B]
    for mark, width in _MARKS:
        place = np.flatnonzero(data_B == mark)
        for step in range(width if len(place) else 0):
            lower_B[np.minimum(place + step, len(data_B) - 1)] = 0
    inside_B = lower_B != 0
    starts_B = inside_B.copy()
    starts_B[1:] &= ~inside_B[:-1]
    starts_B |= _LEADS[data_B]
    at = starts_N1[:-1][starts_N1[:-1] < len(data_B)]
    starts_B[at] = inside_B[at]
    place_T = np.flatnonzero(starts_B)
    if not len(place_T):
        return np.empty(0, np.uint64), np.zeros(count, np.int64)
    up_B, down_B = _POWERS.upto(len(data_B))
    sums_T = np.add.reduceat(lower_B * up_B, place_T)
    hash_T = mix(sums_T * down_B[place_T])
    return hash_T, np.diff(np.searchsorted(place_T, starts_N1))


def ngrams(words: Words, size: int, *, short: bool) -> Words:
    """Return the n-grams of each text, in order; of a text with fewer words the one of all it has, if `short`."""
    length_N = np.diff(words.ends_N1)
    count_N = np.maximum(length_N - size + 1, np.minimum(length_N, 1) if short else 0)
    ends_N1 = np.concatenate([np.zeros(1, np.int64), np.cumsum(count_N)])
    total = int(ends_N1[-1])
    if not total:
        return Words(np.empty(0, np.uint64), ends_N1)
    text_W = np.repeat(np.arange(len(count_N)), count_N)
    place_W = np.arange(total) - (ends_N1[:-1] - words.ends_N1[:-1])[text_W]
    last_W = words.ends_N1[1:][text_W]
    gram_W = words.hash_T[place_W]
    padded_T = np.concatenate([words.hash_T, np.zeros(size, np.uint64)])
    for step in range(1, size):
        gram_W *= np.uint64(_FACTOR)
        gram_W += np.where(place_W + step < last_W, padded_T[place_W + step], np.uint64(0))
    return Words(mix(gram_W), ends_N1)


def stable_hash(words: str) -> int:
    """Return what `words_of` gives for a word; for lists of words."""
    found = words_of(pa.array([words])).hash_T
    assert len(found) == 1, words
    return int(found[0])
