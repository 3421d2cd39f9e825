"""Prompts that must not be trained on, such as those of a benchmark, and which prompts give them away.

A message leaks if half of its n-grams of words are found in held-out prompts, or if it holds four fifths of those of
one held-out prompt. Of a text shorter than an n-gram, all of it counts as one.

Legend: N messages, W n-grams of them, H held-out prompts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geartrain.errors import UserError
from geartrain.preferences.opening import chunks, kind_of
from geartrain.preferences.ranked import prompt_of
from geartrain.preferences.reading import read_rows
from geartrain.preferences.records import DefectError
from geartrain.preferences.words import Hashes, Places, Words, ngrams, words_of

GRAM = 8
"""Words; two texts that share so many in a row rarely do by chance."""
OF_THE_MESSAGE, OF_THE_HELD_OUT = 0.5, 0.8


@dataclass(frozen=True)
class HeldOut:
    """Held-out prompts as n-grams."""

    gram_W: Hashes
    """Sorted, each once."""
    owner_W: NDArray[np.int32]
    """The first held-out prompt that has it."""
    size_H: Places
    """How many n-grams each prompt is the first to have."""

    def leaks(self, words: Words) -> NDArray[np.bool_]:
        """Return [N]: whether each message gives a held-out prompt away."""
        grams = ngrams(words, GRAM, short=True)
        count = len(grams.ends_N1) - 1
        found_N = np.zeros(count, dtype=bool)
        if not len(grams.hash_T) or not len(self.gram_W):
            return found_N
        place_W = np.minimum(np.searchsorted(self.gram_W, grams.hash_T), len(self.gram_W) - 1)
        hit_W = np.flatnonzero(self.gram_W[place_W] == grams.hash_T)
        if not len(hit_W):
            return found_N
        text_W = np.searchsorted(grams.ends_N1, hit_W, side="right") - 1
        hits_N = np.bincount(text_W, minlength=count)
        found_N = (hits_N > 0) & (hits_N >= OF_THE_MESSAGE * np.diff(grams.ends_N1))
        different = np.unique(np.stack([text_W, self.owner_W[place_W[hit_W]], place_W[hit_W]]), axis=1)
        both, hits = np.unique(different[:2], axis=1, return_counts=True)
        found_N[both[0][hits >= OF_THE_HELD_OUT * self.size_H[both[1]]]] = True
        return found_N


def hold_out(prompts: Sequence[str]) -> HeldOut:
    """Return held-out prompts, ready to be compared with."""
    grams = ngrams(words_of(pa.array(list(prompts), pa.string())), GRAM, short=True)
    owner_W = np.repeat(np.arange(len(prompts), dtype=np.int32), np.diff(grams.ends_N1))
    gram_W, first = np.unique(grams.hash_T, return_index=True)
    owner_W = owner_W[first]
    return HeldOut(gram_W, owner_W, np.bincount(owner_W, minlength=len(prompts)))


def read_prompts(paths: Iterable[Path]) -> list[str]:
    """Return the prompts of files: of any form that has a prompt, or of texts (.txt) with one a line.

    Raises:
        UserError: a file has none.
    """
    prompts: list[str] = []
    for path in paths:
        before = len(prompts)
        prompts += _lines(path) if path.suffix == ".txt" else _records(path)
        if len(prompts) == before:
            raise UserError(f"{path}: holds no prompt. Give records with a prompt, or a .txt file with one a line.")
    return prompts


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    text = b"".join(chunks(path, "")).decode("utf-8", errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _records(path: Path) -> list[str]:
    found = []
    for rows in read_rows(path, kind_of(path)):
        for value in rows.values:
            try:
                found += [content for role, content in prompt_of(value, required=True) if role == "user"]
            except (DefectError, AttributeError):
                continue
    return found
