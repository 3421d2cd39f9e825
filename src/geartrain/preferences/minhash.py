"""MinHash: texts whose words overlap much share one of a few numbers, so that near duplicates are found by sorting.

A text is the set of its n-grams of words. Under a random order of all n-grams, two texts have the same first one with
probability J, the share of their n-grams that both have (Jaccard). Orders are cut into bands. Two prompts are near if
the 8 orders of one of 16 bands agree, two records if the 16 of one of 8 bands do, 4 of the prompt, 12 of the answers:

    J of the prompts               0.3   0.5   0.6   0.7   0.8   0.9    prompts near: 1 - (1 - J**8)**16
    found                          0 %   6 %   24 %  61 %  95 %  100 %
    J of the answers, prompt equal 0.5   0.6   0.7   0.8   0.9   0.95   records near: 1 - (1 - Jp**4 * Ja**12)**8
    found                          0 %   2 %   11 %  43 %  93 %  100 %

Whether two are near depends on these two alone, never on what else is there: splits rest on that.

Legend: N texts, W n-grams, K orders, H bands.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from geartrain.preferences.words import Hashes, Places, Words, mix, ngrams

ORDERS = 128
GRAM = 3
"""Words of an n-gram."""
_CHUNK = 1 << 14
"""N-grams that are put in order together; they and their order stay in the processor's cache."""
Signatures = NDArray[np.uint32]


def _orders() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    seeds = mix(np.arange(2 * ORDERS, dtype=np.uint64))
    wide = (seeds >> np.uint64(32)).astype(np.uint32)
    return wide[:ORDERS] | np.uint32(1), wide[ORDERS:]


_FACTORS, _SHIFTS = _orders()
_PLACES = np.arange(ORDERS, dtype=np.uint64)


def signatures(words: Words, wordless: Callable[[int], int] = lambda place: 0) -> Signatures:
    """Return [N, K]: under each order the first n-gram of each text.

    A text without words, such as "???", is near to what `wordless` gives the same number (below 2**64), no other.
    """
    grams = ngrams(words, GRAM, short=True)
    count = len(grams.ends_N1) - 1
    found_NK = np.empty((count, ORDERS), dtype=np.uint32)
    filled = np.flatnonzero(np.diff(grams.ends_N1))
    starts = grams.ends_N1[filled]
    small_W = (grams.hash_T >> np.uint64(32)).astype(np.uint32)
    first = 0
    while first < len(filled):
        low = int(starts[first])
        stop = max(first + 1, int(np.searchsorted(starts, low + _CHUNK)))
        high = int(starts[stop]) if stop < len(filled) else len(small_W)
        found_NK[filled[first:stop]] = _first(small_W[low:high], starts[first:stop] - low)
        first = stop
    for place in np.flatnonzero(np.diff(grams.ends_N1) == 0).tolist():
        found_NK[place] = mix(_PLACES ^ mix(np.full(1, wordless(place), dtype=np.uint64))) >> np.uint64(32)
    return found_NK


def _first(gram_W: NDArray[np.uint32], starts: Places) -> Signatures:
    ordered_W = np.empty_like(gram_W)
    found = np.empty((ORDERS, len(starts)), dtype=np.uint32)
    for order in range(ORDERS):
        np.multiply(gram_W, _FACTORS[order], out=ordered_W)
        ordered_W ^= _SHIFTS[order]
        np.minimum.reduceat(ordered_W, starts, out=found[order])
    return found.T


def merge(signature_MK: Signatures, starts_N: Places) -> Signatures:
    """Return [N, K]: the signatures of texts that are put together from the M ones, each from one or more in a row."""
    return np.asarray(np.minimum.reduceat(signature_MK, starts_N, axis=0))


def prompt_bands(prompt_NK: Signatures) -> list[Hashes]:
    """Return a hash [N] per band: prompts that are near share one."""
    return _bands(prompt_NK.reshape(len(prompt_NK), 16, 8))


def record_bands(prompt_NK: Signatures, answers_NK: Signatures) -> list[Hashes]:
    """Return a hash [N] per band: records whose prompts and answers are near share one."""
    count = len(prompt_NK)
    parts = [prompt_NK[:, :32].reshape(count, 8, 4), answers_NK[:, :96].reshape(count, 8, 12)]
    return _bands(np.concatenate(parts, axis=2))


def _bands(row_NHR: Signatures) -> list[Hashes]:
    wide = np.ascontiguousarray(row_NHR).view(np.uint64)
    found = []
    for band in range(wide.shape[1]):
        total = np.full(len(wide), np.uint64(band + 1))
        for column in range(wide.shape[2]):
            total = mix(total ^ wide[:, band, column])
        found.append(total)
    return found


def similarity(first: Signatures, second: Signatures) -> NDArray[np.float64]:
    """Return [N]: the estimated Jaccard overlap of texts, in [0, 1]; its standard error is at most 0.045."""
    return np.asarray((first == second).mean(axis=-1))
