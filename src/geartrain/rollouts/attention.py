"""Attention of packed tokens over paged, ragged rows, with a prefix that all rows share.

Decoding (one token per row): all queries meet the shared prefix in one matrix
product, then page after page those rows that reach into it; one softmax over
both. Chunks (several tokens per row) go row by row. No keys are padded.

Legend: N packed tokens, A query heads, G key-value heads, Q = A / G query heads
per key-value head, D head width, P tokens of the prefix, n places, L slots that
are looked at (of prefix and pages), t tokens of a segment.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

PAGE = 64
"""Slots of a page: high reads more in vain at the end of a row, low costs dispatch."""
SEGMENT = 512
"""Queries of one row at a time: bounds the memory of scores, and spares long prompts half of them."""

_FOREIGN = ("softcap", "s_aux", "position_bias", "cu_seq_lens_q")


@dataclass(frozen=True)
class Segment:
    """Packed tokens `tokens`, all of the row at `place`, which see up to `pages` of its pages."""

    tokens: slice
    place: int
    pages: int
    bias_tL: Tensor
    """0 where seen, -inf elsewhere."""


@dataclass(frozen=True)
class Plan:
    """Who attends to what in one pass: segments if there are any, else decoding."""

    prefix: int
    """P."""
    pages: list[tuple[int, int]] = field(default_factory=list)
    """Decoding: places [first, last) that each page is read for."""
    places: Tensor | None = None
    """Decoding: place of each token [N], None if they are 0, 1, 2 …"""
    bias_n11L: Tensor | None = None
    """Decoding: 0 where a slot is seen, -inf elsewhere."""
    segments: list[Segment] = field(default_factory=list)


@dataclass(frozen=True)
class LayerView:
    """What attention reads of one layer: stands in for the key and value tensors."""

    keys: Tensor
    """[pages, places, G, PAGE, D]."""
    values: Tensor
    prefix: tuple[Tensor, Tensor] | None
    """Keys and values [G, P, D]."""
    plan: Plan


def plan_decoding(places: np.ndarray, lengths: np.ndarray, prefix: int, device: torch.device) -> tuple[Plan, int]:
    """Plan one new token for each of `places`. `lengths` count it. Returns the plan and the slots that are read."""
    count = int(places.max()) + 1
    length_n = np.zeros(count, dtype=np.int64)
    length_n[places] = lengths
    pages = []
    for page in range(-(-int(lengths.max()) // PAGE)):
        reaching = np.flatnonzero(length_n > page * PAGE)
        pages.append((int(reaching[0]), int(reaching[-1]) + 1))
    bias_nL = np.zeros((count, prefix + len(pages) * PAGE), dtype=np.float32)
    bias_nL[:, prefix:][np.arange(len(pages) * PAGE) >= length_n[:, None]] = -np.inf
    in_order = len(places) == count and bool((np.diff(places) > 0).all())
    plan = Plan(
        prefix,
        pages=pages,
        places=None if in_order else torch.from_numpy(places).to(device),
        bias_n11L=torch.from_numpy(bias_nL).to(device)[:, None, None],
    )
    return plan, sum(last - first for first, last in pages) * PAGE


def plan_segments(
    places: np.ndarray, before: np.ndarray, counts: np.ndarray, prefix: int, device: torch.device
) -> Plan:
    """Plan `counts` new tokens for each of `places`, after `before` old ones."""
    segments, start = [], 0
    for place, old, count in zip(places.tolist(), before.tolist(), counts.tolist(), strict=True):
        for first in range(0, count, SEGMENT):
            last = min(count, first + SEGMENT)
            pages = -(-(old + last) // PAGE)
            bias_tL = torch.full((last - first, prefix + pages * PAGE), -torch.inf, device=device)
            bias_tL.triu_(prefix + old + first + 1)
            segments.append(Segment(slice(start + first, start + last), place, pages, bias_tL))
        start += count
    return Plan(prefix, segments=segments)


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
    groups = key.keys.shape[2]
    query_NGQD = (query[0] * scale).transpose(0, 1).reshape(tokens, groups, heads // groups, width)
    output_NGQD = _segments(query_NGQD, key) if key.plan.segments else _decode(query_NGQD, key)
    return output_NGQD.flatten(1, 2)[None], None


def _decode(query_NGQD: Tensor, view: LayerView) -> Tensor:
    plan, prefix = view.plan, view.plan.prefix
    assert plan.bias_n11L is not None
    query_nGQD = query_NGQD
    if plan.places is not None:
        shape = (plan.bias_n11L.shape[0], *query_NGQD.shape[1:])
        query_nGQD = query_NGQD.new_zeros(shape).index_copy_(0, plan.places, query_NGQD)
    # not `new_empty`: what no page writes is hidden by adding -inf, and must not be NaN
    score_nGQL = query_nGQD.new_zeros((*query_nGQD.shape[:3], plan.bias_n11L.shape[-1]))
    if view.prefix is not None:
        score_nGQL[..., :prefix] = _meet(query_nGQD, view.prefix[0].mT)
    spans = [(slice(first, last), slice(prefix + page * PAGE, prefix + (page + 1) * PAGE), page)
             for page, (first, last) in enumerate(plan.pages)]  # fmt: skip
    for rows, slots, page in spans:
        score_nGQL[rows, :, :, slots] = query_nGQD[rows] @ view.keys[page, rows].mT
    weight_nGQL = (score_nGQL + plan.bias_n11L).softmax(-1, dtype=torch.float32).to(view.values.dtype)
    if view.prefix is not None:
        output_nGQD = _meet(weight_nGQL[..., :prefix], view.prefix[1]).contiguous()
    else:
        output_nGQD = query_nGQD.new_zeros((*query_nGQD.shape[:3], view.values.shape[-1]))
    for rows, slots, page in spans:
        output_nGQD[rows] += weight_nGQL[rows, :, :, slots] @ view.values[page, rows]
    return output_nGQD if plan.places is None else output_nGQD[plan.places]


def _segments(query_NGQD: Tensor, view: LayerView) -> Tensor:
    outputs = []
    for segment in view.plan.segments:
        query_GQtD = query_NGQD[segment.tokens].permute(1, 2, 0, 3)
        groups, heads, tokens, width = query_GQtD.shape
        key_GLD, value_GLD = (
            torch.cat(
                (
                    *(() if view.prefix is None else (view.prefix[part],)),
                    paged[: segment.pages, segment.place].transpose(0, 1).flatten(1, 2),
                ),
                dim=1,
            )
            for part, paged in enumerate((view.keys, view.values))
        )
        score_GQtL = (query_GQtD.reshape(groups, heads * tokens, width) @ key_GLD.mT).view(groups, heads, tokens, -1)
        weight_GQtL = (score_GQtL + segment.bias_tL).softmax(-1, dtype=torch.float32).to(view.values.dtype)
        output = (weight_GQtL.flatten(1, 2) @ value_GLD).view(groups, heads, tokens, -1)
        outputs.append(output.permute(2, 0, 1, 3))
    return torch.cat(outputs)


def _meet(left_nGQX: Tensor, right_GXY: Tensor) -> Tensor:
    """Multiply every token's heads with one matrix per key-value head, in one product; return [n, G, Q, Y]."""
    tokens, groups, heads, _ = left_nGQX.shape
    flat = left_nGQX.transpose(0, 1).reshape(groups, tokens * heads, -1)
    return (flat @ right_GXY).view(groups, tokens, heads, -1).transpose(0, 1)
