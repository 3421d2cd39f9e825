"""A new model that can copy before it has seen a token: an induction circuit as its initial weights.

Large models form induction heads (arXiv 2209.11895) in pretraining, and so copy
a name from a prompt or a tool's answer without being taught. A small model
built from nothing spends most of a laptop's budget on that one skill. Here the
circuit is written into the initial weights, as mimetic initialisation (arXiv
2305.09828) does for attention in general, and training goes on from there.
The construction is ours; it changes no architecture: what results is a Llama.

The residual stream's H dimensions start as three parts: dimension 0 is a
constant that all tokens share, the last C are empty in every embedding, the
rest tells tokens apart. Head 0 of layer 0 finds the previous token by position
alone and writes a C-dimensional code of it into the empty part. Head 0 of layer
1 looks for a place whose previous token is the current one, and adds the token
that stands there to the prediction.
"""

import math
from typing import Any

import torch
from torch import Tensor

CONSTANT = 0.9
"""Share of a token's embedding that all tokens have in common; the output layer does not notice it."""
SHARPNESS = 90.0
"""Attention score (before its scale) of each frequency of the previous-token head."""
MATCH = 2.2
"""Gain of the induction head's queries and keys: two equal tokens meet at about ten nats above two others."""
WRITE = 0.3
"""Size of the code of the previous token, relative to a normalised embedding."""
COPY = 0.5
"""Size of what the induction head adds; at 0.25 a tied output layer repeats the current token instead."""


def code_width(*, hidden: int, heads: int) -> int:
    """Return C, the dimensions that hold the previous token: even, at most half a head and a quarter of the width."""
    return min(32, hidden // heads // 2, hidden // 4) // 2 * 2


@torch.no_grad()
def plant_induction(model: Any, *, embedding_std: float, theta: float, seed: int) -> None:
    """Write the circuit into a fresh Llama-architecture model with two layers or more and tied embeddings.

    Arguments:
        model: a transformers `LlamaForCausalLM` with as many key heads as heads.
        embedding_std: spread of its token embeddings.
        theta: base of its rotary frequencies. The larger, the further back a copy may lie.
        seed: of the random projections; the same seed gives the same weights.
    """
    config = model.config
    width, heads = config.hidden_size, config.num_attention_heads
    head = width // heads
    code = code_width(hidden=width, heads=heads)
    free = width - 1 - code
    generator = torch.Generator().manual_seed(seed)
    embedding_VH = model.get_input_embeddings().weight
    stretch = math.sqrt(width / free)  # the same norm in fewer dimensions
    embedding_VH[:, 1:-code] *= stretch
    embedding_VH[:, 0] = CONSTANT
    embedding_VH[:, -code:] = 0.0
    size = math.sqrt((CONSTANT**2 + (embedding_std * stretch) ** 2 * free) / width)
    frequency = theta ** (-torch.arange(head // 2) / (head // 2))
    token_CF = _orthogonal(code, free, generator)
    first, second = model.model.layers[0].self_attn, model.model.layers[1].self_attn
    for attention in (first, second):
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            projection.weight[:head] = 0.0
        attention.o_proj.weight[:, :head] = 0.0
    _look_one_back(first, frequency, constant=CONSTANT / size)
    first.v_proj.weight[:code, 1:-code] = token_CF
    first.o_proj.weight[-code:, :code] = WRITE * torch.eye(code)
    # the slowest rotations hardly turn over a whole context: there two tokens can be compared wherever they stand
    slowest = torch.arange(head // 2 - code // 2, head // 2)
    still = torch.cat([slowest, slowest + head // 2])
    second.q_proj.weight[still, 1:-code] = MATCH * token_CF
    second.k_proj.weight[still, -code:] = MATCH * torch.eye(code)
    copied_DF = _orthogonal(min(head, free), free, generator)
    second.v_proj.weight[: len(copied_DF), 1:-code] = copied_DF
    second.o_proj.weight[1:-code, : len(copied_DF)] = COPY * copied_DF.T


def _look_one_back(attention: Any, frequency: Tensor, *, constant: float) -> None:
    """Make head 0 attend to position t - 1: its score is a sum of cos(frequency * (distance - 1))."""
    half = len(frequency)
    fast = torch.nonzero(frequency > 0.1)[:, 0]
    scale = math.sqrt(SHARPNESS) / constant
    attention.k_proj.weight[fast, 0] = scale
    attention.q_proj.weight[fast, 0] = scale * torch.cos(frequency[fast])
    attention.q_proj.weight[fast + half, 0] = -scale * torch.sin(frequency[fast])


def _orthogonal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Return [rows, columns] with orthonormal rows (rows <= columns)."""
    basis: Tensor = torch.linalg.qr(torch.randn(columns, rows, generator=generator)).Q
    return basis.T
