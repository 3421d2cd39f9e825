"""Temperature sampling for many episodes at once over one persistent cache.

Every token takes one uniform of its own trajectory's generator and inverts the
cumulative distribution, so what a trajectory draws does not depend on the batch
it is in. No token is banned and no filter is applied: the recorded log-prob is
that of the distribution the token was drawn from, at the sampling temperature
(also when decoding greedily).

Legend: R rows, S fed rows, M longest message, V vocabulary, U uniforms of a row.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geartrain.models.backbone import Policy, check_context
from geartrain.rollouts.cache import PagedCache, RaggedCache, Snapshot
from geartrain.rollouts.padded import PaddedCache

_NONE = -1
_LOG = logging.getLogger(__name__)


def trajectory_uniforms(seed: int, group_id: str, task_id: str, sibling: int, count: int) -> np.ndarray:
    """Return `count` uniforms in [0, 1) that depend on nothing but these names."""
    name = json.dumps([seed, group_id, task_id, sibling]).encode()
    key = int.from_bytes(hashlib.sha256(name).digest()[:16], "big")
    return np.random.Generator(np.random.Philox(key=key)).random(count)


@torch.no_grad()
def draw(
    logit_SV: Tensor, uniform_S: Tensor, temperature: float, greedy_S: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw one id per row by inverting the cumulative distribution; return ids, log-probs and entropies, [S] each.

    An id of probability 0 is never drawn. Where `greedy_S` is True, the likeliest is taken.
    """
    logprob_SV = (logit_SV.float() / temperature).log_softmax(-1)
    probability_SV = logprob_SV.exp()
    entropy_S = -torch.where(probability_SV > 0, probability_SV * logprob_SV, 0.0).sum(-1)
    sampled_S = torch.ones_like(uniform_S, dtype=torch.bool) if greedy_S is None else ~greedy_S
    id_S = logprob_SV.argmax(-1)
    if sampled_S.any():
        mass_SV = probability_SV[sampled_S].cumsum(-1, dtype=torch.float64)
        target_S1 = (uniform_S[sampled_S] * mass_SV[:, -1])[:, None]
        drawn_S = torch.searchsorted(mass_SV, target_S1, right=True)[:, 0]
        id_S[sampled_S] = drawn_S.clamp_(max=logit_SV.shape[-1] - 1)
    return id_S, logprob_SV.gather(-1, id_S[:, None])[:, 0], entropy_S


class Sampler:
    """Rows of episodes in progress. A row is opened, then alternates between a message and what it is shown next.

    ```
    logits = sampler.prefill([(row, ids), ...])      # what the row is shown
    ended = sampler.begin(rows, logits)               # first token of its message
    ended = sampler.step()                            # one token more on every row in mid-message
    ids, logprobs, entropies = sampler.message(row)   # of a row that `begin` or `step` returned
    ```
    """

    def __init__(
        self,
        policy: Policy,
        *,
        temperature: float,
        max_new_tokens: int,
        rows: int,
        context: int,
        packed: bool | None = None,
    ) -> None:
        """Allocate state for `rows` episodes of at most `context` tokens each.

        `packed` chooses packed passes (`PagedCache`) or padded ones (`PaddedCache`); None
        takes packed ones if they give this model's own logits on a probe.

        Raises UserError if the model cannot read `context` tokens.
        """
        check_context(policy.model, context)
        self.model = policy.model
        self.end_id = policy.chat.end_id
        self.temperature = temperature
        self.context = context
        self.packed = _packing_works(self.model) if packed is None else packed
        kind: type[RaggedCache] = PagedCache if self.packed else PaddedCache
        self.cache = kind(rows, context, device=self.model.device)
        self.active = np.zeros(rows, dtype=bool)
        """Rows in mid-message, [R]."""
        self._ids = np.zeros((rows, max_new_tokens), dtype=np.int64)
        self._logprobs = np.zeros((rows, max_new_tokens), dtype=np.float32)
        self._entropies = np.zeros((rows, max_new_tokens), dtype=np.float32)
        self._count = np.zeros(rows, dtype=np.int64)
        self._pending = np.full(rows, _NONE, dtype=np.int64)
        self._uniforms = np.zeros((rows, context), dtype=np.float64)
        self._drawn = np.zeros(rows, dtype=np.int64)
        self._greedy = np.zeros(rows, dtype=bool)

    def seat(self, row: int, uniforms: np.ndarray, *, greedy: bool = False) -> None:
        """Give a free row to a new episode that draws from `uniforms` [context], or takes the likeliest tokens."""
        self.free(row)
        self._uniforms[row] = uniforms
        self._drawn[row] = 0
        self._greedy[row] = greedy

    def free(self, row: int) -> None:
        """Forget the episode of a row."""
        self.active[row] = False
        self._pending[row] = _NONE
        self.cache.free(row)

    def total(self, row: int) -> int:
        """Return the tokens of a row's episode so far."""
        return self.cache.prefix_length + int(self.cache.lengths[row]) + int(self._pending[row] != _NONE)

    def share(self, ids: Sequence[int]) -> None:
        """Make `ids` the start of every episode from now on: openings are given without it. Empties all rows."""
        assert isinstance(self.cache, PagedCache), "a padded pass has no shared prefix"
        assert not self.active.any(), "episodes in progress keep the prefix they began with"
        self.cache.clear()
        if ids:
            self.prefill([(0, ids)])
            self.cache.share_row(0)

    def prefill(self, chunks: Sequence[tuple[int, Sequence[int]]]) -> Tensor:
        """Show each row its next prompt ids; return the logits after them, [S, V], in the order given."""
        order = sorted(range(len(chunks)), key=lambda index: chunks[index][0])
        fed = []
        for index in order:
            row, ids = chunks[index]
            fed.append([*([int(self._pending[row])] if self._pending[row] != _NONE else []), *ids])
        rows = np.array([chunks[index][0] for index in order])
        self._pending[rows] = _NONE
        counts = np.array([len(ids) for ids in fed])
        logit_SV = self.cache.run(self.model, rows, counts, np.concatenate([np.asarray(ids) for ids in fed]))
        back = np.argsort(order)
        return (
            logit_SV if (back == np.arange(len(back))).all() else logit_SV[torch.from_numpy(back).to(logit_SV.device)]
        )

    def begin(self, rows: Sequence[int], logit_SV: Tensor) -> np.ndarray:
        """Draw the first token of a message on each of `rows`; return the rows whose message ended with it."""
        chosen = np.asarray(rows)
        self._count[chosen] = 0
        self.active[chosen] = True
        return self._advance(chosen, logit_SV)

    def step(self) -> np.ndarray:
        """Draw one token on every active row; return the rows whose message ended."""
        rows = np.flatnonzero(self.active)
        return self._advance(rows, self.cache.run(self.model, rows, np.ones_like(rows), self._pending[rows]))

    def message(self, row: int) -> tuple[list[int], list[float], list[float]]:
        """Return the ids of a row's message, exactly as sampled, their log-probs, and the entropies they left."""
        kept = slice(0, self._count[row])
        return tuple(values[row, kept].tolist() for values in (self._ids, self._logprobs, self._entropies))

    def snapshot(self, row: int) -> Snapshot:
        """Copy what a row's cache holds, for siblings that start later."""
        return self.cache.snapshot(row)

    def restore(self, rows: Sequence[int], snapshot: Snapshot) -> None:
        """Start rows from a snapshot."""
        self.cache.restore(rows, snapshot)

    def _advance(self, rows: np.ndarray, logit_SV: Tensor) -> np.ndarray:
        uniform_S = torch.from_numpy(self._uniforms[rows, self._drawn[rows]]).to(logit_SV.device)
        greedy_S = torch.from_numpy(self._greedy[rows]).to(logit_SV.device)
        id_S, logprob_S, entropy_S = draw(logit_SV, uniform_S, self.temperature, greedy_S)
        ids, count = id_S.cpu().numpy(), self._count[rows]
        self._ids[rows, count], self._logprobs[rows, count] = ids, logprob_S.cpu().numpy()
        self._entropies[rows, count] = entropy_S.cpu().numpy()
        self._pending[rows] = ids
        self._drawn[rows] += 1
        self._count[rows] = count + 1
        total = self.cache.prefix_length + self.cache.lengths[rows] + 1
        ended = (ids == self.end_id) | (count + 1 == self._ids.shape[1]) | (total >= self.context)
        done: np.ndarray = rows[ended]
        self.active[done] = False
        return done


@torch.no_grad()
def _packing_works(model: Any) -> bool:
    """Whether a packed pass gives the model's own logits: two rows, a chunk and then one token each."""
    vocabulary = model.config.get_text_config().vocab_size
    ids = np.arange(2, 12) % vocabulary
    cache, both = PagedCache(2, 16, device=model.device), np.array([0, 1])
    try:
        cache.run(model, both, np.array([4, 2]), ids[[0, 1, 2, 3, 5, 6]])
        found_SV = cache.run(model, both, np.array([1, 1]), ids[[4, 7]])
    except (NotImplementedError, AttributeError, TypeError, KeyError, RuntimeError) as error:
        _LOG.info("%s: no packed passes, padded ones instead: %s", type(model).__name__, error)
        return False
    rows = [ids[[0, 1, 2, 3, 4]], ids[[5, 6, 7]]]
    own_SV = torch.stack(
        [model(input_ids=torch.from_numpy(row)[None].to(model.device), use_cache=False).logits[0, -1] for row in rows]
    )
    tolerance = 1e-4 if model.dtype == torch.float32 else 0.1
    return bool(torch.allclose(found_SV.float(), own_SV.float(), atol=tolerance, rtol=tolerance))


@contextmanager
def sampling_mode(model: Any) -> Iterator[None]:
    """Run the model in evaluation mode (no dropout), and give it back as it was."""
    was = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was)
