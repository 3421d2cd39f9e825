"""The ragged cache: reuse equals a full forward pass, whatever was in the row before and whoever sits beside it."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from geartrain.errors import UserError
from geartrain.rollouts.attention import attend_rows
from geartrain.rollouts.cache import PagedCache
from geartrain.rollouts.sampler import Sampler

CONTEXT = 400


def sampler_of(policy, packed: bool, rows: int = 6, **options) -> Sampler:
    settings = {"temperature": 1.0, "max_new_tokens": 8, "rows": rows, "context": CONTEXT} | options
    return Sampler(policy, packed=packed, **settings)


def some_ids(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 300, count).tolist()


@torch.inference_mode()
def expected(policy, ids: list[int]) -> torch.Tensor:
    return policy.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("packed", [True, False])
def test_ragged_chunks_and_single_tokens_equal_full_passes(policy, packed):
    sampler = sampler_of(policy, packed)
    history = {row: [] for row in range(6)}
    script = [
        [(0, 5), (1, 1), (2, 17), (3, 3), (4, 9), (5, 2)],
        [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)],
        [(1, 1), (2, 1), (4, 1)],  # a gap: rows 0, 3 and 5 wait
        [(5, 4), (0, 30), (3, 1)],  # out of order
        [(0, 1), (3, 1)],
    ]
    for step, chunks in enumerate(script):
        fed = [(row, some_ids(count, 100 * step + row)) for row, count in chunks]
        logits = sampler.prefill(fed)
        for (row, ids), logit in zip(fed, logits, strict=True):
            history[row] += ids
            close(logit, expected(policy, history[row]))


def test_shared_prefix_equals_a_prefix_of_ones_own(policy):
    sampler = sampler_of(policy, True)
    prefix = some_ids(40, 1)
    sampler.share(prefix)
    fed = [(row, some_ids(3 + row, row)) for row in range(6)]
    for (_, ids), logit in zip(fed, sampler.prefill(fed), strict=True):
        close(logit, expected(policy, prefix + ids))
    logits = sampler.prefill([(row, [9]) for row in range(6)])
    for (_, ids), logit in zip(fed, logits, strict=True):
        close(logit, expected(policy, [*prefix, *ids, 9]))
    sampler.share([])
    close(sampler.prefill([(2, prefix)])[0], expected(policy, prefix))


@pytest.mark.parametrize("packed", [True, False])
def test_siblings_start_from_a_copy_and_then_go_their_own_way(policy, packed):
    sampler = sampler_of(policy, packed)
    opening = some_ids(20, 0)
    sampler.prefill([(1, opening)])
    sampler.restore([0, 3, 4], sampler.snapshot(1))
    logits = sampler.prefill([(row, [20 + row]) for row in (0, 1, 3, 4)])
    for row, logit in zip((0, 1, 3, 4), logits, strict=True):
        close(logit, expected(policy, [*opening, 20 + row]))


@pytest.mark.parametrize("packed", [True, False])
def test_a_freed_row_leaks_nothing_into_the_next_episode(policy, packed):
    sampler = sampler_of(policy, packed)
    sampler.prefill([(row, some_ids(50, row)) for row in range(6)])
    for keys, values in sampler.cache.layers:
        place = (slice(None), sampler.cache.place[2]) if packed else 2
        keys[place], values[place] = 1e4, -1e4  # what leaks shows
    sampler.free(2)
    close(sampler.prefill([(2, [5, 6, 7])])[0], expected(policy, [5, 6, 7]))
    logits = sampler.prefill([(row, [8]) for row in range(6)])
    close(logits[2], expected(policy, [5, 6, 7, 8]))
    close(logits[3], expected(policy, [*some_ids(50, 3), 8]))


@pytest.mark.parametrize("packed", [True, False])
def test_buffers_grow_in_place_of_the_longest_row(policy, packed):
    sampler = sampler_of(policy, packed, rows=2)
    long = some_ids(250, 0)
    sampler.prefill([(0, long), (1, [4, 5])])
    small = sampler.cache.layers[0][0].numel()
    more = some_ids(140, 1)
    close(sampler.prefill([(0, more)])[0], expected(policy, long + more))
    assert small < sampler.cache.layers[0][0].numel()
    close(sampler.prefill([(1, [6])])[0], expected(policy, [4, 5, 6]))


@pytest.mark.parametrize("seed", range(3))
def test_random_lives_of_rows_equal_full_passes(policy, monkeypatch, seed):
    for module in ("attention", "cache"):
        monkeypatch.setattr(f"geartrain.rollouts.{module}.PAGE", 8)
    monkeypatch.setattr("geartrain.rollouts.cache._PATIENCE", 0.3)
    moved = []
    tidy = PagedCache.tidy
    monkeypatch.setattr(PagedCache, "tidy", lambda cache: (moved.append(cache.place.copy()), tidy(cache)))
    rng = np.random.default_rng(seed)
    sampler = sampler_of(policy, True, rows=9)
    prefix = some_ids(int(rng.integers(0, 20)), seed)
    sampler.share(prefix)
    history: dict[int, list[int]] = {row: [] for row in range(9)}
    for step in range(40):
        fed_rows = rng.permutation(9)[: rng.integers(1, 10)].tolist()
        single = rng.random() < 0.6
        fed = [(row, some_ids(1 if single else int(rng.integers(1, 20)), 100 * step + row)) for row in fed_rows]
        for (row, ids), logit in zip(fed, sampler.prefill(fed), strict=True):
            history[row] += ids
            close(logit, expected(policy, prefix + history[row]))
        for row in rng.permutation(9)[: rng.integers(0, 3)].tolist():
            sampler.free(row)
            history[row] = []
        source, target = rng.permutation(9)[:2].tolist()
        if history[source] and not history[target] and rng.random() < 0.5:
            sampler.restore([target], sampler.snapshot(source))
            history[target] = list(history[source])
    assert len(moved) > 2
    assert sampler.cache.lengths.tolist() == [len(history[row]) for row in range(9)]


def test_rows_are_put_in_order_once_reading_in_vain_outweighs_moving(llama):
    sampler = sampler_of(llama, True, rows=32)
    sampler.prefill([(row, some_ids(40 if row % 4 else 150, row)) for row in range(32)])
    for row in range(0, 32, 2):
        sampler.free(row)
    while sampler.cache.place.max() > 15:
        sampler.prefill([(row, [5]) for row in range(1, 32, 2)])
        assert sampler.cache.lengths.max() < 150
    lengths = sampler.cache.lengths[np.argsort(sampler.cache.place)][16:]
    assert (np.diff(lengths) <= 0).all()


def test_long_chunks_are_attended_to_in_parts(policy, monkeypatch):
    monkeypatch.setattr("geartrain.rollouts.attention.SEGMENT", 7)
    sampler = sampler_of(policy, True)
    sampler.share(some_ids(23, 5))
    fed = [(row, some_ids(count, row)) for row, count in enumerate((7, 8, 30, 1, 15, 6))]
    for (_, ids), logit in zip(fed, sampler.prefill(fed), strict=True):
        close(logit, expected(policy, some_ids(23, 5) + ids))


def test_half_precision_is_packed_too(policy):
    half = replace(policy, model=copy.deepcopy(policy.model).bfloat16())
    sampler = Sampler(half, temperature=1.0, max_new_tokens=4, rows=2, context=64)
    assert sampler.packed
    ids = some_ids(9, 0)
    found = sampler.prefill([(1, ids)])[0].float()
    assert (found - expected(policy, ids)).abs().max() < 0.1 * expected(policy, ids).abs().max()


def test_a_context_that_the_model_cannot_read_is_a_user_error(policy):
    with pytest.raises(UserError, match="at most"):
        Sampler(policy, temperature=1.0, max_new_tokens=4, rows=2, context=10**7)


def test_changed_weights_change_what_a_new_sampler_says(policy):
    ids = some_ids(12, 0)
    before = sampler_of(policy, True).prefill([(0, ids)])[0].clone()
    weight = policy.model.get_input_embeddings().weight
    kept = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.add_(torch.randn_like(weight) * 0.1)
        after = sampler_of(policy, True).prefill([(0, ids)])[0]
        assert (after - before).abs().max() > 1e-3
        close(after, expected(policy, ids))
    finally:
        with torch.no_grad():
            weight.copy_(kept)


def test_packing_is_chosen_by_trying_it(policy, monkeypatch):
    assert Sampler(policy, temperature=1.0, max_new_tokens=4, rows=2, context=64).packed
    wrong = lambda *args, **kwargs: (attend_rows(*args, **kwargs)[0] * 1.5, None)  # noqa: E731
    wrong.__name__ = "wrong"
    monkeypatch.setattr("geartrain.rollouts.cache.attend_rows", wrong)
    assert not Sampler(policy, temperature=1.0, max_new_tokens=4, rows=2, context=64).packed


@pytest.mark.parametrize("extra", ["softcap", "s_aux", "position_bias"])
def test_attention_that_is_not_plain_is_refused(extra):
    with pytest.raises(NotImplementedError, match=extra):
        attend_rows(SimpleNamespace(), torch.zeros(1, 2, 3, 4), None, None, None, **{extra: 30.0})
