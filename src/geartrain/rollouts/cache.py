"""Keys and values of many episodes, one persistent row each, every row with its own length.

A `RowCache` is handed to a transformers model as its cache. New keys and values
are written in place at each row's own next slots, whatever the other rows hold:
no left padding, no concatenation, and a row keeps its state over all turns of
its episode. A prefix that every episode starts with (system prompt, tools) is
stored once and attended to by all.

Two ways to run a forward pass over it:
- packed: all new tokens in one line `[1, N]`, attention by `geartrain.rollouts.attention`;
- padded: `[B, T]` with an explicit 4D mask, attention by the model's own kernel
  (no shared prefix). It is for models whose attention is not the plain one.

Legend: R rows, C capacity, B fed rows, T longest chunk, N packed tokens,
G key-value heads, D head width, P tokens of the shared prefix.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain.rollouts.attention import LayerView, Piece, decode_pieces, segment_pieces

_GROWTH = 256

Snapshot = list[tuple[Tensor, Tensor]]
"""Keys and values [G, t, D] of the first t own slots of a row, by layer."""


class RowCache:
    """Cache of `rows` episodes of at most `limit` tokens. Implements transformers' cache interface by duck type."""

    is_compileable = False

    def __init__(self, rows: int, limit: int, *, device: torch.device, packed: bool) -> None:
        self.limit = limit
        self.packed = packed
        self.device = device
        self.lengths = np.zeros(rows, dtype=np.int64)
        """Own tokens cached in each row, [R]; the shared prefix is not counted."""
        self.prefix_length = 0
        self.prefix: Snapshot = []
        self.layers: list[tuple[Tensor, Tensor]] = []
        """Keys and values [R, G, C, D] by layer; allocated when the model first writes."""
        self.pieces: list[Piece] = []
        self._capacity = 0
        self._decoding = False
        self._write_rows = self._write_slots = torch.empty(0, dtype=torch.int64)
        self._fed = slice(0, 0)
        self._fed_index: Tensor | None = None
        self._valid_BT: Tensor | None = None
        self._span = 0

    def feed_packed(self, rows: np.ndarray, counts: np.ndarray) -> Tensor:
        """Announce a packed pass: `counts[i]` new tokens of `rows[i]`, in order; return position ids [1, N].

        Rows are distinct and ascending.
        """
        before = self.lengths[rows]
        self.lengths[rows] += counts
        self._reserve(int(self.lengths[rows].max()))
        starts = np.cumsum(counts) - counts
        row_N = np.repeat(rows, counts)
        slot_N = np.arange(len(row_N)) - np.repeat(starts - before, counts)
        self._write_rows, self._write_slots = self._send(row_N), self._send(slot_N)
        self._decoding = len(row_N) == len(rows)
        if self._decoding:
            self.pieces = decode_pieces(rows, self.lengths, self.device)
        else:
            self.pieces = segment_pieces(rows, before, counts, self.device)
        return self._write_slots[None] + self.prefix_length

    def feed_padded(self, rows: np.ndarray, counts: np.ndarray, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Announce a padded pass: row i brings `counts[i]` tokens, right-padded.

        Returns position ids [B, T] and the additive mask [B, 1, T, longest length].
        """
        before = self.lengths[rows]
        self.lengths[rows] += counts
        self._span = int(self.lengths[rows].max())
        self._reserve(self._span)
        steps_T = np.arange(int(counts.max()))
        slot_BT = before[:, None] + np.minimum(steps_T, counts[:, None] - 1)
        valid_BT = steps_T < counts[:, None]
        self._valid_BT = self._send(valid_BT)
        self._write_rows = self._send(np.broadcast_to(rows[:, None], valid_BT.shape)[valid_BT])
        self._write_slots = self._send(slot_BT[valid_BT])
        contiguous = int(rows[-1] - rows[0]) == len(rows) - 1
        self._fed, self._fed_index = slice(int(rows[0]), int(rows[-1]) + 1), None if contiguous else self._send(rows)
        position_BT = self._send(slot_BT)
        seen = torch.arange(self._span, device=self.device) <= position_BT[..., None]
        mask = torch.zeros(seen.shape, dtype=dtype, device=self.device).masked_fill_(~seen, torch.finfo(dtype).min)
        return position_BT, mask[:, None]

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Write new keys and values [B, G, T, D] of a layer; return what its attention reads."""
        if layer_idx == len(self.layers):
            shape = (len(self.lengths), key.shape[1], self._capacity, key.shape[3])
            self.layers.append((key.new_zeros(shape), value.new_zeros((*shape[:3], value.shape[3]))))
        keys, values = self.layers[layer_idx]
        if self.packed:
            keys[self._write_rows, :, self._write_slots] = key[0].transpose(0, 1)
            values[self._write_rows, :, self._write_slots] = value[0].transpose(0, 1)
            view = LayerView(keys, values, self.prefix[layer_idx] if self.prefix else None, self.pieces, self._decoding)
            return view, view
        assert self._valid_BT is not None
        keys[self._write_rows, :, self._write_slots] = key.transpose(1, 2)[self._valid_BT]
        values[self._write_rows, :, self._write_slots] = value.transpose(1, 2)[self._valid_BT]
        if self._fed_index is None:
            return keys[self._fed, :, : self._span], values[self._fed, :, : self._span]
        return keys[:, :, : self._span][self._fed_index], values[:, :, : self._span][self._fed_index]

    def share_row(self, row: int) -> None:
        """Make what `row` holds the prefix of every row, and empty all rows."""
        length = int(self.lengths[row])
        self.prefix, self.prefix_length = self.snapshot(row), length
        self.lengths[:] = 0

    @torch.no_grad()
    def snapshot(self, row: int) -> Snapshot:
        """Copy a row's own keys and values."""
        length = int(self.lengths[row])
        return [(keys[row, :, :length].clone(), values[row, :, :length].clone()) for keys, values in self.layers]

    @torch.no_grad()
    def restore(self, rows: Sequence[int], snapshot: Snapshot) -> None:
        """Give each of `rows` the contents of `snapshot`."""
        length = snapshot[0][0].shape[1]
        for (keys, values), (key, value) in zip(self.layers, snapshot, strict=True):
            keys[rows, :, :length] = key
            values[rows, :, :length] = value
        self.lengths[rows] = length

    def free(self, row: int) -> None:
        """Forget a row. What it held is never attended to again: attention stops at a row's length."""
        self.lengths[row] = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the longest cached length (transformers' interface; positions are always given explicitly)."""
        return int(self.lengths.max()) + self.prefix_length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return (key length, offset) of a mask (transformers' interface; masks are always given explicitly)."""
        return self._span, 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Return the offset of the first query (transformers' interface)."""
        return self.get_seq_length(layer_idx)

    def __len__(self) -> int:
        return len(self.layers)

    def _send(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)

    def _reserve(self, tokens: int) -> None:
        """Grow the buffers, in steps, so that a row can hold `tokens`."""
        if tokens <= self._capacity:
            return
        assert tokens <= self.limit, f"a row of {tokens} tokens in a cache of {self.limit}"
        self._capacity = min(self.limit, -(-tokens // _GROWTH) * _GROWTH)
        for index, (keys, values) in enumerate(self.layers):  # one by one: never two copies of all layers
            self.layers[index] = (self._grown(keys), self._grown(values))

    def _grown(self, old: Tensor) -> Tensor:
        grown = old.new_zeros((*old.shape[:2], self._capacity, old.shape[3]))
        grown[:, :, : old.shape[2]] = old
        return grown
