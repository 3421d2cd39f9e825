"""The cache for models whose attention is not the plain one: padded passes, the model's own attention kernel.

Slower than `PagedCache` and without a shared prefix, but any transformers model
that takes an explicit 4D mask and position ids runs on it unchanged.

Legend: R rows, C capacity, B fed rows, T longest chunk, G key-value heads,
D head width, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain.rollouts.cache import RaggedCache, Snapshot

_GROWTH = 256


class PaddedCache(RaggedCache):
    """Keys and values [R, G, C, D] by layer; a pass is `[B, T]`, right-padded, with a mask of its own."""

    def __init__(self, rows: int, limit: int, *, device: torch.device) -> None:
        super().__init__(rows, limit, device=device)
        self._capacity = 0
        self._span = 0
        self._fed: slice | Tensor = slice(0, 0)
        self._valid_BT = self._rows = self._slots = torch.empty(0, dtype=torch.int64)

    @torch.no_grad()
    def run(self, model: Any, rows: np.ndarray, counts: np.ndarray, ids: np.ndarray) -> Tensor:
        """See `RaggedCache.run`."""
        before = self.lengths[rows]
        self.lengths[rows] += counts
        self._span = int(self.lengths[rows].max())
        self._reserve(self._span)
        steps_T = np.arange(int(counts.max()))
        slot_BT = before[:, None] + np.minimum(steps_T, counts[:, None] - 1)
        valid_BT = steps_T < counts[:, None]
        id_BT = np.zeros(valid_BT.shape, dtype=np.int64)
        id_BT[valid_BT] = ids
        self._valid_BT = self._send(valid_BT)
        self._rows = self._send(np.broadcast_to(rows[:, None], valid_BT.shape)[valid_BT])
        self._slots = self._send(slot_BT[valid_BT])
        neighbours = int(rows[-1] - rows[0]) == len(rows) - 1
        self._fed = slice(int(rows[0]), int(rows[-1]) + 1) if neighbours else self._send(rows)
        position_BT = self._send(slot_BT)
        hidden = torch.arange(self._span, device=self.device) > position_BT[..., None]
        mask = torch.zeros(hidden.shape, dtype=model.dtype, device=self.device)
        output = model(
            input_ids=self._send(id_BT),
            attention_mask=mask.masked_fill_(hidden, torch.finfo(model.dtype).min)[:, None],
            position_ids=position_BT,
            cache=self,
            use_cache=True,
            logits_to_keep=self._send(counts - 1)[:, None],
        )
        logit_BV: Tensor = output.logits[:, 0]
        return logit_BV

    def update(self, key: Tensor, value: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write new keys and values [B, G, T, D] of a layer; return those of the fed rows, [B, G, longest, D]."""
        if layer_idx == len(self.layers):
            shape = (len(self.lengths), key.shape[1], self._capacity)
            self.layers.append((key.new_zeros((*shape, key.shape[3])), value.new_zeros((*shape, value.shape[3]))))
        keys, values = self.layers[layer_idx]
        keys[self._rows, :, self._slots] = key.transpose(1, 2)[self._valid_BT]
        values[self._rows, :, self._slots] = value.transpose(1, 2)[self._valid_BT]
        return keys[:, :, : self._span][self._fed], values[:, :, : self._span][self._fed]

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """See `RaggedCache.get_mask_sizes`."""
        return self._span, 0

    @torch.no_grad()
    def snapshot(self, row: int) -> Snapshot:
        """Copy what a row holds."""
        length = int(self.lengths[row])
        return length, [
            (keys[row, :, :length].clone(), values[row, :, :length].clone()) for keys, values in self.layers
        ]

    @torch.no_grad()
    def restore(self, rows: Sequence[int], snapshot: Snapshot) -> None:
        """Give each of `rows` the contents of `snapshot`."""
        length, layers = snapshot
        self.lengths[list(rows)] = length
        for (keys, values), (key, value) in zip(self.layers, layers, strict=True):
            keys[list(rows), :, :length] = key
            values[list(rows), :, :length] = value

    def _reserve(self, tokens: int) -> None:
        """Grow the buffers, in steps, so that a row can hold `tokens`."""
        assert tokens <= self.limit, f"a row of {tokens} tokens in a cache of {self.limit}"
        if tokens > self._capacity:
            self._capacity = -(-tokens // _GROWTH) * _GROWTH
            for index, (keys, values) in enumerate(self.layers):  # one by one: never two copies of all layers
                self.layers[index] = (self._grown(keys), self._grown(values))

    def _grown(self, old: Tensor) -> Tensor:
        grown = old.new_zeros((*old.shape[:2], self._capacity, old.shape[3]))
        grown[:, :, : old.shape[2]] = old
        return grown
