"""Per-token log-probs of a causal LM, whatever the padding, without a batch's worth of logits.

Everything is float32 at least: in a model of half precision the logits are widened, in one of float64 all stays as
it is.

Legend: B rows, T positions, N chosen positions, H width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import kl_div
from torch.utils.checkpoint import checkpoint

Head = Callable[[Tensor], Tensor]
"""Hidden states [N, H] to logits [N, V]."""

_HEADS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


@dataclass(frozen=True)
class TokenScores:
    """What `token_logprobs` returns."""

    logprob_BT: Tensor
    """0 where there is no prefix (column 0, padding) or nothing was asked."""
    entropy_BT: Tensor | None
    """Nats, of the distribution that position t was drawn from; with gradient where that was asked for."""
    hidden_BTH: Tensor | None
    """Last hidden state, after the final norm."""
    top_BTK: Tensor | None = None
    """int64, the likeliest ids, likeliest first; -1 where nothing was asked."""
    support_BTK: Tensor | None = None
    """Log-probs of the ids that were asked for (of the top, if those were)."""
    kl_BT: Tensor | None = None
    """Nats, KL(model || reference) of the distributions that position t was drawn from; with gradient to the model."""


def token_logprobs(
    model: Any,
    ids_BT: Tensor,
    attention_BT: Tensor,
    *,
    temperature: float,
    position_ids: Tensor | None = None,
    where_BT: Tensor | None = None,
    want_hidden: bool = False,
    want_entropy: bool = False,
    entropy_gradient: bool = False,
    top: int = 0,
    support_BTK: Tensor | None = None,
    reference: Any = None,
    chunk_tokens: int | None = None,
    chunks: int | None = None,
) -> TokenScores:
    """Log-prob of ids[b, t] given ids[b, :t], at `temperature`, the same whatever the padding.

    Rows may be padded on either side, never inside. Log-softmax runs in float32 (float64 for
    such a model) over chunks of positions, recomputed in the backward pass, so the logits of a big batch
    never exist at once.

    Arguments:
        model: a transformers causal LM (unwrapped).
        ids_BT: int64.
        attention_BT: bool or 0/1; True on real tokens.
        temperature: that of the sampler, > 0.
        position_ids: int64 [B, T]; None counts real tokens from 0.
        where_BT: bool; score only these positions (None: all real ones).
        want_hidden: also return the last hidden state, with gradient.
        want_entropy: also return the entropy, without gradient.
        entropy_gradient: return the entropy with its gradient.
        top: also return so many of the likeliest ids, and their log-probs.
        support_BTK: int64; also return the log-probs of these ids (of -1: of no meaning), with gradient.
        reference: a frozen causal LM of the same vocabulary; also return the exact divergence from it. It is run here,
            without gradient: its logits, too, exist chunk by chunk only.
        chunk_tokens: positions per chunk; None keeps a chunk's logits within 64 MiB.
        chunks: their number instead, some maybe empty: ranks that gather the output layer must do so equally often.
    """
    attention_BT = attention_BT.bool()
    hidden_BTH, source, head = _before_logits(model, ids_BT, attention_BT, position_ids)
    scored_BT = torch.zeros_like(attention_BT)
    scored_BT[:, 1:] = attention_BT[:, 1:] & attention_BT[:, :-1]
    if where_BT is not None:
        scored_BT &= where_BT.bool()
    before_NH, target_N = source[:, :-1][scored_BT[:, 1:]], ids_BT[scored_BT]
    other_NH, other_head = None, head
    if reference is not None:
        with torch.no_grad():
            _, other, other_head = _before_logits(reference, ids_BT, attention_BT, position_ids)
            other_NH = other[:, :-1][scored_BT[:, 1:]]
    chunk = chunk_tokens or chunk_of(model)
    entropy = "gradient" if entropy_gradient else "value" if want_entropy else "none"
    support_NK = None if support_BTK is None else support_BTK[scored_BT]
    logprob_N, entropy_N, top_NK, chosen_NK, kl_N = _score_chunks(
        head,
        (before_NH, target_N, support_NK, other_NH),
        _cuts(len(target_N), chunk, chunks),
        other_head=other_head,
        temperature=temperature,
        entropy=entropy,
        top=top,
    )
    zero_BT = torch.zeros(ids_BT.shape, dtype=logprob_N.dtype, device=ids_BT.device)
    return TokenScores(
        zero_BT.masked_scatter(scored_BT, logprob_N),
        zero_BT.masked_scatter(scored_BT, entropy_N) if entropy != "none" else None,
        hidden_BTH if want_hidden else None,
        _scatter(top_NK, scored_BT, -1) if top else None,
        _scatter(chosen_NK, scored_BT, 0.0) if chosen_NK.shape[1] else None,
        None if reference is None else zero_BT.masked_scatter(scored_BT, kl_N),
    )


def chunk_of(model: Any) -> int:
    """Return how many positions' logits are held at once: 64 MiB of float32."""
    return max(1, (2**24) // int(model.config.get_text_config().vocab_size))


def _cuts(count: int, chunk: int, chunks: int | None) -> list[slice]:
    """Cut positions into chunks of a size, or into a number of chunks."""
    if chunks is not None:
        chunk = max(1, -(-count // chunks))
    starts = range(0, max(1, count), chunk) if chunks is None else range(0, chunks * chunk, chunk)
    return [slice(start, start + chunk) for start in starts]


def _scatter(value_NK: Tensor, where_BT: Tensor, elsewhere: float) -> Tensor:
    shape = (*where_BT.shape, value_NK.shape[1])
    filled_BTK = torch.full(shape, elsewhere, dtype=value_NK.dtype, device=value_NK.device)
    return filled_BTK.masked_scatter(where_BT[..., None], value_NK)


def _before_logits(
    model: Any, ids_BT: Tensor, attention_BT: Tensor, position_ids: Tensor | None
) -> tuple[Tensor, Tensor, Head]:
    """Return the last hidden state, what the logits are made of, and what makes them."""
    hidden_BTH, logit_BTV = _hidden(model, ids_BT, attention_BT, position_ids)
    if logit_BTV is None:
        return hidden_BTH, hidden_BTH, model.get_output_embeddings()
    return hidden_BTH, logit_BTV, _same


def _hidden(
    model: Any, ids_BT: Tensor, attention_BT: Tensor, position_ids: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the last hidden state, and the logits where they cannot be had from it chunk by chunk."""
    if position_ids is None and bool(attention_BT[:, 0].all()):
        inputs: dict[str, Tensor] = {}  # right padding is never seen by real tokens of a causal model: no mask at all
    else:
        counted_BT = (attention_BT.long().cumsum(-1) - 1).clamp(min=0)
        inputs = {
            "attention_mask": attention_BT,
            "position_ids": counted_BT if position_ids is None else position_ids,
        }
    if not _head_is_linear(model):
        output = model(input_ids=ids_BT, use_cache=False, output_hidden_states=True, **inputs)
        return output.hidden_states[-1], output.logits
    return model.base_model(input_ids=ids_BT, use_cache=False, **inputs).last_hidden_state, None


def _head_is_linear(model: Any) -> bool:
    """Whether logits are the output layer of the last hidden state and nothing more (no soft cap, no scale)."""
    if model not in _HEADS:
        with torch.no_grad():
            ids_BT = torch.tensor([[1, 2]], device=model.device)
            hidden_BTH = model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
            plain_BTV = model.get_output_embeddings()(hidden_BTH)
            own_BTV = model(input_ids=ids_BT, use_cache=False).logits
        _HEADS[model] = bool(torch.allclose(plain_BTV.float(), own_BTV.float(), atol=1e-2, rtol=1e-2))
    return _HEADS[model]


def _score_chunks(
    head: Head, columns: tuple[Tensor | None, ...], cuts: list[slice], **options: Any
) -> tuple[Tensor, ...]:
    parts = []
    for cut in cuts:
        piece: list[Any] = [None if column is None else column[cut] for column in columns]
        score = partial(_score, head, *piece, **options)
        if torch.is_grad_enabled() and len(cuts) > 1:
            parts.append(checkpoint(score, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(score())
    return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))


def _same(logit_NV: Tensor) -> Tensor:
    return logit_NV


def _score(
    head: Head,
    before_NH: Tensor,
    target_N: Tensor,
    support_NK: Tensor | None,
    other_NH: Tensor | None,
    *,
    other_head: Head,
    temperature: float,
    entropy: str,
    top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return log-prob and entropy [N], the top ids and the chosen ids' log-probs [N, K], and the divergence [N].

    What is not asked is empty, or of no meaning.
    """
    logit_NV = _logits(head, before_NH, temperature)
    norm_N1 = logit_NV.logsumexp(-1, keepdim=True)
    logprob_N = (logit_NV.gather(-1, target_N[:, None]) - norm_N1)[:, 0]
    entropy_N = norm_N1[:, 0].detach()
    if entropy != "none":
        with torch.set_grad_enabled(torch.is_grad_enabled() and entropy == "gradient"):
            entropy_N = (norm_N1 - ((logit_NV - norm_N1).exp() * logit_NV).sum(-1, keepdim=True))[:, 0]
    kl_N = norm_N1[:, 0].detach()
    if other_NH is not None:
        with torch.no_grad():
            other_NV = _logits(other_head, other_NH, temperature).log_softmax(-1)
        # torch's order: of the second argument from the first
        kl_N = kl_div(other_NV, logit_NV - norm_N1, reduction="none", log_target=True).sum(-1)
    top_NK = target_N.new_empty(len(target_N), 0)
    if top:
        top_NK = logit_NV.detach().topk(min(top, logit_NV.shape[-1]), dim=-1).indices
    if support_NK is None and not top:
        return logprob_N, entropy_N, top_NK, logprob_N.new_empty(len(target_N), 0), kl_N
    chosen_NK = top_NK if support_NK is None else support_NK.clamp(min=0)
    return logprob_N, entropy_N, top_NK, logit_NV.gather(-1, chosen_NK) - norm_N1, kl_N


def _logits(head: Head, before_NH: Tensor, temperature: float) -> Tensor:
    logit_NV = head(before_NH)
    logit_NV = logit_NV.to(torch.promote_types(logit_NV.dtype, torch.float32))
    # at 1, a pass over all logits that would change none
    return logit_NV if temperature == 1.0 else logit_NV / temperature
