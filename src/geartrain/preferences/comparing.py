"""Blocks of records made into the numbers by which they are compared with all others; those go to disk at once."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geartrain.errors import UserError
from geartrain.preferences.columns import Block, digest_of
from geartrain.preferences.deciding import PROMPTS, RECORDS
from geartrain.preferences.held_out import HeldOut
from geartrain.preferences.minhash import Signatures, merge, prompt_bands, record_bands, signatures
from geartrain.preferences.near import Spill
from geartrain.preferences.pairs import SPLITS
from geartrain.preferences.words import Words, words_of

_LAST = np.iinfo(np.uint32).max


class Compared:
    """What is known of all records so far, as columns of a `Spill`; see `deciding.decide`."""

    def __init__(self, spill: Spill, held_out: HeldOut | None, *, near: bool) -> None:
        self.records = 0
        self._spill, self._held_out, self._near = spill, held_out, near

    def add(self, block: Block) -> None:
        """Take in a block of records."""
        count, asked = block.batch.num_rows, int(block.prompt_ends_N1[-1])
        leaks_N = np.zeros(count, dtype=np.uint8)
        words = None
        if self._near:
            words = words_of(block.texts)
        elif self._held_out is not None:
            words = words_of(block.texts.slice(0, asked))
        if self._held_out is not None and words is not None:
            leaks = self._held_out.leaks(Words(words.hash_T, words.ends_N1[: asked + 1]))
            leaks_N = np.maximum.reduceat(leaks, block.prompt_ends_N1[:-1]).astype(np.uint8)
        if self._near and words is not None:
            signature_MK = _signatures(words, block.texts)
            answers_NK = merge(signature_MK, block.answer_ends_N1[:-1])
            signature_MK[block.aside] = _LAST
            prompt_NK = merge(signature_MK[:asked], block.prompt_ends_N1[:-1])
            self._append(PROMPTS, prompt_bands(prompt_NK))
            self._append(RECORDS, record_bands(prompt_NK, answers_NK))
        else:
            self._append(PROMPTS, [block.prompt_N])
        spill = self._spill
        spill.append("prompt", block.prompt_N)
        spill.append("record", block.record_N)
        spill.append("id", block.id_N)
        spill.append("leaks", leaks_N)
        spill.append("pair", block.pair_P)
        spill.append("pair_first", block.first_P.astype(np.uint8))
        spill.append("pair_row", (block.row_P + self.records).astype(np.int32))
        self.records += count

    def recall(self, path: Path) -> NDArray[np.uint8]:
        """Take in the prompts of an earlier build, before any record; return their splits, places in `SPLITS`.

        Raises:
            UserError: it is no such file.
        """
        splits = []
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=4096, columns=["prompt", "split"]):
                    splits.append(_places(batch.column("split")))
                    self._recall(batch.column("prompt"))
        except (pa.ArrowException, OSError, KeyError) as error:
            raise UserError(f"{path}: not the records of an earlier build ({error!s:.120})") from error
        return np.concatenate(splits) if splits else np.empty(0, dtype=np.uint8)

    def _recall(self, prompts: pa.ListArray) -> None:
        messages = prompts.flatten()
        roles, texts = messages.field("role"), messages.field("content")
        lengths = np.asarray(pc.list_value_length(prompts))
        ends = np.concatenate([[0], np.cumsum(lengths)])
        if not self._near:
            digests = [digest_of([(m["role"], m["content"]) for m in prompt]) for prompt in prompts.to_pylist()]
            self._append(PROMPTS, [np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)])
            return
        signature_MK = _signatures(words_of(texts), texts)
        aside = np.asarray(pc.equal(roles, "system").to_numpy(zero_copy_only=False))
        aside[ends[1:] - 1] = False
        signature_MK[aside] = _LAST
        self._append(PROMPTS, prompt_bands(merge(signature_MK, ends[:-1])))

    def _append(self, prefix: str, columns: list[NDArray[np.uint64]]) -> None:
        for number, column in enumerate(columns):
            self._spill.append(f"{prefix}{number}", column)


def _signatures(words: Words, texts: pa.Array) -> Signatures:
    def wordless(place: int) -> int:
        digest = hashlib.blake2b(texts[place].as_py().encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    return signatures(words, wordless)


def _places(splits: pa.Array) -> NDArray[np.uint8]:
    return np.asarray(pc.index_in(splits, pa.array(SPLITS)).to_numpy(zero_copy_only=False), dtype=np.uint8)
