"""Keys and values of many episodes, every row with its own length, in pages.

A cache is handed to a transformers model as its cache. New keys and values are
written in place at each row's own next slots, whatever the other rows hold: no
left padding, no concatenation, and a row keeps its state over all turns of its
episode. A prefix that every episode starts with (system prompt, tools) is stored
once and attended to by all.

A page holds the same slots of all rows, one row after the other, so decoding
reads memory in long runs; reading row by row across gaps is 2.5 times slower.
What is read in vain (of short or ended rows that lie between long ones) is
counted, and when it outweighs the work of moving them, the rows are put in
order of length.

Legend: R rows, N packed tokens, S fed rows, V vocabulary, G key-value heads,
D head width, P tokens of the prefix; a page has PAGE slots.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain.models.backbone import plain_attention
from geartrain.rollouts.attention import PAGE, LayerView, Plan, attend_rows, plan_decoding, plan_segments

_GROWTH = 4
"""Pages added at a time."""
_PATIENCE = 4
"""Rows are put in order when what was read in vain is so many times what they hold: about the price of moving them."""
_NOWHERE = -1

Snapshot = tuple[int, list[tuple[Tensor, Tensor]]]
"""Own tokens of a row; its keys and values by layer."""


class RaggedCache:
    """What every cache of rows has: lengths, and transformers' cache interface by duck type."""

    is_compileable = False

    def __init__(self, rows: int, limit: int, *, device: torch.device) -> None:
        self.limit = limit
        self.device = device
        self.lengths = np.zeros(rows, dtype=np.int64)
        """Own tokens cached in each row, [R]; the shared prefix is not counted."""
        self.prefix_length = 0
        self.layers: list[tuple[Tensor, Tensor]] = []
        """Keys and values by layer; allocated when the model first writes."""

    def run(self, model: Any, rows: np.ndarray, counts: np.ndarray, ids: np.ndarray) -> Tensor:
        """Feed `counts[i]` of `ids` to `rows[i]`, in order; return the logits after each row's last one, [S, V]."""
        raise NotImplementedError

    def snapshot(self, row: int) -> Snapshot:
        """Copy what a row holds of its own."""
        raise NotImplementedError

    def restore(self, rows: Sequence[int], snapshot: Snapshot) -> None:
        """Give each of `rows` the contents of `snapshot`."""
        raise NotImplementedError

    def free(self, row: int) -> None:
        """Forget a row. What it held is never attended to again: attention stops at a row's length."""
        self.lengths[row] = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the longest cached length (transformers' interface; positions are always given explicitly)."""
        return int(self.lengths.max()) + self.prefix_length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return (key length, offset) of a mask (transformers' interface; masks are always given explicitly)."""
        return self.get_seq_length(layer_idx), 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Return the offset of the first query (transformers' interface)."""
        return self.get_seq_length(layer_idx)

    def __len__(self) -> int:
        return len(self.layers)

    def _send(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)


class PagedCache(RaggedCache):
    """Packed passes: all new tokens in one line `[1, N]`, attention by `geartrain.rollouts.attention`.

    Keys and values are [pages, places, G, PAGE, D]; a row has the same place in every page.
    """

    def __init__(self, rows: int, limit: int, *, device: torch.device) -> None:
        super().__init__(rows, limit, device=device)
        self.prefix: list[tuple[Tensor, Tensor]] = []
        """Keys and values [G, P, D] by layer."""
        self.place = np.full(rows, _NOWHERE, dtype=np.int64)
        """Place of each row, [R]."""
        self._places = rows + rows // 4 + 1
        self._end = 0
        """Places from here on are free."""
        self._pages = 0
        self._vain = 0
        self._plan = Plan(0)
        self._write: tuple[Tensor, ...] = ()

    @torch.no_grad()
    def run(self, model: Any, rows: np.ndarray, counts: np.ndarray, ids: np.ndarray) -> Tensor:
        """See `RaggedCache.run`."""
        before = self.lengths[rows]
        self.lengths[rows] += counts
        self._seat(rows)
        self._reserve(int(self.lengths[rows].max()))
        slot_N = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts - before, counts)
        places = self.place[rows]
        self._write = tuple(map(self._send, (slot_N // PAGE, np.repeat(places, counts), slot_N % PAGE)))
        decoding = len(ids) == len(rows)
        if decoding:
            self._plan, read = plan_decoding(places, self.lengths[rows], self.prefix_length, self.device)
            self._vain += max(0, read - int(self.lengths.sum()))
        else:
            self._plan = plan_segments(places, before, counts, self.prefix_length, self.device)
        with plain_attention(model, attend_rows):
            output = model(
                input_ids=self._send(ids)[None],
                position_ids=self._send(slot_N + self.prefix_length)[None],
                cache=self,
                use_cache=True,
                logits_to_keep=0 if decoding else self._send(np.cumsum(counts) - 1),
            )
        if self._vain > _PATIENCE * int(self.lengths.sum()):
            self.tidy()
        logit_SV: Tensor = output.logits[0]
        return logit_SV

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Write new keys and values [1, G, N, D] of a layer; return what its attention reads."""
        if layer_idx == len(self.layers):
            shape = (self._pages, self._places, key.shape[1], PAGE)
            self.layers.append((key.new_zeros((*shape, key.shape[3])), value.new_zeros((*shape, value.shape[3]))))
        keys, values = self.layers[layer_idx]
        page_N, place_N, slot_N = self._write
        keys[page_N, place_N, :, slot_N] = key[0].transpose(0, 1)
        values[page_N, place_N, :, slot_N] = value[0].transpose(0, 1)
        view = LayerView(keys, values, self.prefix[layer_idx] if self.prefix else None, self._plan)
        return view, view

    def clear(self) -> None:
        """Empty all rows and forget the prefix."""
        self.prefix, self.prefix_length = [], 0
        self.lengths[:], self.place[:], self._end, self._vain = 0, _NOWHERE, 0, 0

    def share_row(self, row: int) -> None:
        """Make what `row` holds the prefix of every row, and empty all rows."""
        length, layers = self.snapshot(row)
        self.clear()
        self.prefix_length = length
        self.prefix = [(_in_line(key)[:, :length], _in_line(value)[:, :length]) for key, value in layers]

    @torch.no_grad()
    def snapshot(self, row: int) -> Snapshot:
        """Copy what a row holds of its own."""
        length, place = int(self.lengths[row]), self.place[row]
        pages = -(-length // PAGE)
        return length, [(keys[:pages, place].clone(), values[:pages, place].clone()) for keys, values in self.layers]

    @torch.no_grad()
    def restore(self, rows: Sequence[int], snapshot: Snapshot) -> None:
        """Give each of `rows` the contents of `snapshot`."""
        length, layers = snapshot
        self.lengths[list(rows)] = length
        self._seat(np.asarray(rows))
        for (keys, values), (key, value) in zip(self.layers, layers, strict=True):
            for row in rows:
                keys[: len(key), self.place[row]] = key
                values[: len(value), self.place[row]] = value

    def free(self, row: int) -> None:
        """Forget a row; its place is free again when the rows behind it are, or when they are put in order."""
        super().free(row)
        self.place[row] = _NOWHERE
        self._end = int(self.place.max()) + 1

    @torch.no_grad()
    def tidy(self) -> None:
        """Put the rows in order of length, the longest first, without gaps."""
        self._vain = 0
        rows = np.flatnonzero(self.place != _NOWHERE)
        rows = rows[np.argsort(-self.lengths[rows], kind="stable")]
        old = self._send(self.place[rows])
        for page in range(self._pages):
            count = int((self.lengths[rows] > page * PAGE).sum())
            for keys, values in self.layers if count else ():
                keys[page, :count] = keys[page, old[:count]]
                values[page, :count] = values[page, old[:count]]
        self.place[rows] = np.arange(len(rows))
        self._end = len(rows)

    def _seat(self, rows: np.ndarray) -> None:
        """Give a place behind all others to those of `rows` that have none."""
        new = rows[self.place[rows] == _NOWHERE]
        if self._end + len(new) > self._places:
            self.tidy()
        self.place[new] = self._end + np.arange(len(new))
        self._end += len(new)

    def _reserve(self, tokens: int) -> None:
        """Add pages, so that a row can hold `tokens`."""
        assert tokens <= self.limit, f"a row of {tokens} tokens in a cache of {self.limit}"
        if tokens > self._pages * PAGE:
            self._pages = -(-tokens // (PAGE * _GROWTH)) * _GROWTH
            for index, (keys, values) in enumerate(self.layers):  # one by one: never two copies of all layers
                self.layers[index] = (self._grown(keys), self._grown(values))

    def _grown(self, old: Tensor) -> Tensor:
        grown = old.new_zeros((self._pages, *old.shape[1:]))
        grown[: len(old)] = old
        return grown


def _in_line(paged: Tensor) -> Tensor:
    """Return a row's pages [pages, G, PAGE, D] as [G, pages * PAGE, D]."""
    return paged.transpose(0, 1).flatten(1, 2)
