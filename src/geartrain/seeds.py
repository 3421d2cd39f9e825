"""Randomness that depends on names, not on order, batch or process."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def seed_of(*parts: int | str) -> int:
    """Return a seed in [0, 2**31) from integers and names, equal on every machine (ours).

    Python's own `hash` of a string differs from process to process.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def pick(items: Sequence[T], count: int, *parts: int | str) -> list[T]:
    """Return `count` different items in a random order fixed by `parts`."""
    order = np.random.default_rng(seed_of(*parts)).permutation(len(items))
    return [items[index] for index in order[:count]]
