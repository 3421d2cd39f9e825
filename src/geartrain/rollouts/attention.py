"""Attention of packed tokens over ragged rows, with a prefix that all rows share.

All queries meet the shared prefix in one matrix product; each then meets the
own part of its row, read in place from the cache. The two parts share one
softmax. Decoding (one token per row) works on blocks of neighbouring rows, cut
to the longest row of the block; chunks (several tokens per row) go row by row.
No padding is computed and no keys are copied.

Legend: N packed tokens, A query heads, G key-value heads, Q = A / G query heads
per key-value head, D head width, P tokens of the prefix, L own tokens, B rows of
a block, t tokens of a segment, R rows and C capacity of the cache.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

BLOCK = 16
"""Rows attended to together when decoding: more waste reads on short rows, fewer cost dispatch."""

SEGMENT = 512
"""Queries of one row at a time: bounds the memory of scores, and spares long prompts half of them."""

_FOREIGN = ("softcap", "s_aux", "position_bias", "cu_seq_lens_q")


@dataclass(frozen=True)
class Piece:
    """Packed tokens `tokens` and the cache rows `rows` that they read, up to `span` own slots."""

    tokens: slice
    rows: slice
    span: int
    bias: Tensor | None
    """Decoding: [B, 1, 1, L], None if all rows are as long. Segment: [t, L]. 0 where seen, -inf elsewhere; float32."""


@dataclass(frozen=True)
class LayerView:
    """What attention reads of one layer: stands in for the key and value tensors."""

    keys: Tensor
    """[R, G, C, D]."""
    values: Tensor
    prefix: tuple[Tensor, Tensor] | None
    """Keys and values [G, P, D]."""
    pieces: list[Piece]
    decoding: bool
    """Whether every piece is a block of rows with one token each; else every piece lies in one row."""


def decode_pieces(rows: np.ndarray, lengths: np.ndarray, device: torch.device) -> list[Piece]:
    """Cut ascending `rows`, one new token each, into blocks of neighbours. `lengths` [R] count the new token."""
    own_N = lengths[rows]
    cuts = np.flatnonzero((np.diff(rows) > 1) | (rows[1:] % BLOCK == 0)) + 1
    edges = [0, *cuts.tolist(), len(rows)]
    seen = torch.arange(int(own_N.max()), device=device) < torch.from_numpy(own_N).to(device)[:, None]
    bias_NL = torch.zeros(seen.shape, device=device).masked_fill_(~seen, -torch.inf)
    pieces = []
    for start, stop in pairwise(edges):
        span, first = int(own_N[start:stop].max()), int(rows[start])
        bias = None if stop == start + 1 else bias_NL[start:stop, None, None, :span]
        pieces.append(Piece(slice(start, stop), slice(first, first + stop - start), span, bias))
    return pieces


def segment_pieces(rows: np.ndarray, before: np.ndarray, counts: np.ndarray, device: torch.device) -> list[Piece]:
    """Return causal pieces of `rows` that bring `counts` new tokens after `before` old ones."""
    pieces, start = [], 0
    for row, old, count in zip(rows.tolist(), before.tolist(), counts.tolist(), strict=True):
        for first in range(0, count, SEGMENT):
            last = min(count, first + SEGMENT)
            bias_tL = torch.full((last - first, old + last), -torch.inf, device=device).triu_(old + first + 1)
            pieces.append(Piece(slice(start + first, start + last), slice(row, row + 1), old + last, bias_tL))
        start += count
    return pieces


def attend_rows(
    module: Any, query: Tensor, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention function for transformers: `query` [1, A, N, D] over a `LayerView`; returns [1, N, A, D].

    Raises NotImplementedError for a model whose attention is more than scaled dot product.
    """
    foreign = [name for name in _FOREIGN if kwargs.get(name) is not None]
    if foreign or not isinstance(key, LayerView):
        raise NotImplementedError(f"attention with {', '.join(foreign) or 'altered keys'}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    _, heads, tokens, width = query.shape
    groups = key.keys.shape[1]
    query_NGQD = (query[0] * scale).transpose(0, 1).reshape(tokens, groups, heads // groups, width)
    output_NGQD = _decode(query_NGQD, key) if key.decoding else _segments(query_NGQD, key)
    return output_NGQD.flatten(1, 2)[None], None


def _decode(query_NGQD: Tensor, view: LayerView) -> Tensor:
    prefix_NGQP = None if view.prefix is None else _meet(query_NGQD, view.prefix[0].mT)
    outputs, weights = [], []
    for piece in view.pieces:
        score = query_NGQD[piece.tokens] @ view.keys[piece.rows, :, : piece.span].mT
        if piece.bias is not None:
            score = score + piece.bias
        if prefix_NGQP is not None:
            score = torch.cat((score, prefix_NGQP[piece.tokens]), -1)
        weight = score.softmax(-1, dtype=torch.float32).to(view.values.dtype)
        outputs.append(weight[..., : piece.span] @ view.values[piece.rows, :, : piece.span])
        weights.append(weight[..., piece.span :])
    output_NGQD = torch.cat(outputs)
    if view.prefix is not None:
        output_NGQD += _meet(torch.cat(weights), view.prefix[1])
    return output_NGQD


def _segments(query_NGQD: Tensor, view: LayerView) -> Tensor:
    outputs = []
    for piece in view.pieces:
        assert piece.bias is not None
        query_GQtD = query_NGQD[piece.tokens].permute(1, 2, 0, 3)
        groups, heads, tokens, width = query_GQtD.shape
        flat = query_GQtD.reshape(groups, heads * tokens, width)
        own, shared = view.keys[piece.rows.start, :, : piece.span].mT, view.prefix
        score_GQtL = (flat @ own).view(groups, heads, tokens, -1) + piece.bias
        if shared is not None:
            score_GQtL = torch.cat((score_GQtL, (flat @ shared[0].mT).view(groups, heads, tokens, -1)), -1)
        weight = score_GQtL.softmax(-1, dtype=torch.float32).to(view.values.dtype).flatten(1, 2)
        output = weight[..., : piece.span] @ view.values[piece.rows.start, :, : piece.span]
        if shared is not None:
            output = output + weight[..., piece.span :] @ shared[1]
        outputs.append(output.view(groups, heads, tokens, -1).permute(2, 0, 1, 3))
    return torch.cat(outputs)


def _meet(left_NGQX: Tensor, right_GXY: Tensor) -> Tensor:
    """Multiply every token's heads with one matrix per key-value head, in one product; return [N, G, Q, Y]."""
    tokens, groups, heads, _ = left_NGQX.shape
    flat = left_NGQX.transpose(0, 1).reshape(groups, tokens * heads, -1)
    return (flat @ right_GXY).view(groups, tokens, heads, -1).transpose(0, 1)
