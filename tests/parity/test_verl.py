"""Our loss and our KL estimators are those of verl's `core_algos`, in value and in the gradient of every log-prob.

Called are `compute_policy_loss_vanilla`, `compute_policy_loss`, `agg_loss` and `kl_penalty` of verl 0.9.1;
`test_verl_advantages.py` has the advantages.

Deviations, each with its test below; verl's value and the exact one are both asserted:

- a fully masked row: left out of the mean over rows, unless verl is told the batch's size; ours always counts it;
- seq-mean-token-sum-norm divides by the padded width, unless it is told a constant; ours is always told;
- dual clip: with a negative advantage the ratio stops at 3; ours follows it to e^20;
- k3 is cut at 10, without gradient beyond;
- "k1+" takes k2's gradient: ours is larger by the score of the token, whose mean is 0;
- seq-mean-token-mean adds 1e-8 to a row's length: smaller than rtol here;
- masks multiply: a NaN at a masked position is in the loss of every mode but the token mean.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from geartrain.algorithms.divergence import k1, k2, k3, with_score
from geartrain.algorithms.masked import row_share
from geartrain.algorithms.recipe import by_constant, by_rows, by_tokens
from geartrain.algorithms.surrogate import clipped_surrogate, kl_penalty

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
LIMIT = 16
DENOMINATORS = {
    "token-mean": by_tokens,
    "seq-mean-token-sum": by_rows,
    "seq-mean-token-mean": by_rows,
    "seq-mean-token-sum-norm": by_constant,
}
EVERY_MODE = pytest.mark.parametrize("mode", DENOMINATORS)
Measured = tuple[Tensor, Tensor]


def _weight(mode: str, batch: Any) -> Tensor:
    share_BT = row_share(batch.mask, dtype=torch.float64)
    return share_BT if mode == "seq-mean-token-mean" else torch.ones_like(share_BT)


def _denominator(mode: str, batch: Any, rows: int | None = None) -> float:
    return DENOMINATORS[mode](batch.tokens, len(batch.advantage_B) if rows is None else rows, LIMIT)


def _ours(mode: str, batch: Any, *, rows: int | None = None) -> Callable[[Tensor], Tensor]:
    advantage_BT, denominator = batch.advantage * _weight(mode, batch), _denominator(mode, batch, rows)

    def loss(logprob_BT: Tensor) -> Tensor:
        return clipped_surrogate(
            logprob_BT, batch.behaviour_BT, advantage_BT, batch.mask, denominator=denominator, **CLIP
        )

    return loss


def _global(batch: Any) -> dict[str, Any]:
    """What verl wants to know of the whole step."""
    return {
        "batch_num_tokens": batch.tokens,
        "global_batch_size": len(batch.advantage_B),
        "loss_scale_factor": LIMIT,
    }


def _peer(core_algos: Any, mode: str, batch: Any, **known: Any) -> Callable[[Tensor], Tensor]:
    """verl's loss as a function of the log-probs; `known` is its `global_batch_info`."""
    config = core_algos.ActorConfig(
        strategy="fsdp",
        rollout_n=3,
        ppo_micro_batch_size_per_gpu=6,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        global_batch_info=known,
    )

    def loss(logprob_BT: Tensor) -> Tensor:
        value, _ = core_algos.compute_policy_loss_vanilla(
            batch.behaviour_BT, logprob_BT, batch.advantage, batch.mask.long(), mode, config
        )
        return value

    return loss


def _assert_equal(found: Measured, expected: Measured) -> None:
    assert found[1].abs().max() > 1e-3  # the test is not about zeros
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-12)


@EVERY_MODE
def test_surrogate(mode, batch, core_algos, value_and_gradient):
    peer = value_and_gradient(_peer(core_algos, mode, batch, **_global(batch)), batch.logprob_BT)
    _assert_equal(value_and_gradient(_ours(mode, batch), batch.logprob_BT), peer)


@EVERY_MODE
def test_the_ratio_of_whole_sequences(mode, batch, core_algos, value_and_gradient):
    """GSPO, its token form; bounds as narrow as the paper's, so that rows are clipped on both sides."""
    clip, advantage_BT = {"clip_low": 3e-4, "clip_high": 4e-4}, batch.advantage * _weight(mode, batch)
    config = core_algos.ActorConfig(
        strategy="fsdp",
        rollout_n=3,
        ppo_micro_batch_size_per_gpu=6,
        clip_ratio_low=3e-4,
        clip_ratio_high=4e-4,
        global_batch_info=_global(batch),
    )

    def ours(logprob_BT: Tensor) -> Tensor:
        options = {"denominator": _denominator(mode, batch), "whole_sequence": True, **clip}
        return clipped_surrogate(logprob_BT, batch.behaviour_BT, advantage_BT, batch.mask, **options)

    def peer(logprob_BT: Tensor) -> Tensor:
        arguments = (batch.behaviour_BT, logprob_BT, batch.advantage, batch.mask.long(), mode, config)
        return core_algos.compute_policy_loss_gspo(*arguments)[0]

    _assert_equal(value_and_gradient(ours, batch.logprob_BT), value_and_gradient(peer, batch.logprob_BT))


def test_the_modes_differ_on_this_batch(full_batch, core_algos):
    losses = [
        _peer(core_algos, mode, full_batch, **_global(full_batch))(full_batch.logprob_BT).item()
        for mode in DENOMINATORS
    ]
    assert len({round(loss, 6) for loss in losses}) == 4


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_the_older_function_is_the_same(mode, full_batch, core_algos, value_and_gradient):
    def peer(logprob_BT: Tensor) -> Tensor:
        with pytest.warns(FutureWarning, match="deprecated"):
            return core_algos.compute_policy_loss(
                full_batch.behaviour_BT,
                logprob_BT,
                full_batch.advantage,
                full_batch.mask.long(),
                cliprange_low=0.2,
                cliprange_high=0.28,
                loss_agg_mode=mode,
            )[0]

    ours = value_and_gradient(_ours(mode, full_batch), full_batch.logprob_BT)
    _assert_equal(ours, value_and_gradient(peer, full_batch.logprob_BT))


@EVERY_MODE
def test_two_micro_batches_are_the_whole_if_told_of_it(mode, batch, core_algos, value_and_gradient):
    halves = (slice(0, 3), slice(3, 6))
    known = _global(batch)
    parts = [
        value_and_gradient(_peer(core_algos, mode, batch.rows(part), **known), batch.logprob_BT[part])
        for part in halves
    ]
    peer = parts[0][0] + parts[1][0], torch.cat([parts[0][1], parts[1][1]])
    _assert_equal(value_and_gradient(_ours(mode, batch), batch.logprob_BT), peer)


@pytest.mark.parametrize("mode", ["seq-mean-token-sum", "seq-mean-token-mean"])
def test_a_fully_masked_row_is_one_of_six_only_if_verl_is_told(
    mode, batch_with_masked_row, core_algos, value_and_gradient
):
    """Left to itself verl divides by 5 rows, told of the step by 6: two values for one batch. Ours counts 6."""
    batch = batch_with_masked_row
    local = value_and_gradient(_peer(core_algos, mode, batch), batch.logprob_BT)
    told = value_and_gradient(_peer(core_algos, mode, batch, **_global(batch)), batch.logprob_BT)
    _assert_equal(value_and_gradient(_ours(mode, batch), batch.logprob_BT), told)
    _assert_equal(value_and_gradient(_ours(mode, batch, rows=5), batch.logprob_BT), local)
    assert local[0].item() == pytest.approx(told[0].item() * 6 / 5, rel=1e-9)


def test_without_a_constant_the_norm_depends_on_padding(full_batch, core_algos):
    """Five columns of padding: verl's loss shrinks to 11/16. Exact is no change, as ours has it."""
    wide = replace(
        full_batch,
        **{
            name: torch.nn.functional.pad(value, (0, 5))
            for name, value in vars(full_batch).items()
            if name[-2:] == "BT"
        },
    )
    mode = "seq-mean-token-sum-norm"
    narrow_peer, wide_peer = (_peer(core_algos, mode, batch)(batch.logprob_BT).item() for batch in (full_batch, wide))
    narrow, widened = (_ours(mode, batch)(batch.logprob_BT).item() for batch in (full_batch, wide))
    assert wide_peer == pytest.approx(narrow_peer * 11 / 16, rel=1e-9)
    assert widened == pytest.approx(narrow, rel=1e-9)
    assert wide_peer == pytest.approx(widened, rel=1e-9)  # 16 is our limit, too


def test_dual_clip_stops_where_ours_goes_on(full_batch, core_algos, value_and_gradient):
    """Ratio e^2 on a negative advantage of 0.7: verl's token costs 0.7 * 3 and moves nothing, exact is 0.7 * e^2."""
    batch = replace(full_batch, behaviour_BT=full_batch.behaviour_BT.clone())
    batch.behaviour_BT[1, 0] = batch.logprob_BT[1, 0] - 2.0
    rest = replace(batch, completion_BT=batch.completion_BT.clone())
    rest.completion_BT[1, 0] = 0
    without = _ours("seq-mean-token-sum", rest)(batch.logprob_BT).item()
    peer = value_and_gradient(_peer(core_algos, "seq-mean-token-sum", batch), batch.logprob_BT)
    ours = value_and_gradient(_ours("seq-mean-token-sum", batch), batch.logprob_BT)
    assert peer[0].item() - without == pytest.approx(0.7 * 3.0 / 6, rel=1e-6)
    assert ours[0].item() - without == pytest.approx(0.7 * math.exp(2) / 6, rel=1e-6)
    assert peer[1][1, 0].item() == 0.0
    assert ours[1][1, 0].item() == pytest.approx(0.7 * math.exp(2) / 6, rel=1e-6)


def test_a_log_ratio_of_100_is_cut_at_20_by_both(full_batch, core_algos):
    """With a positive advantage and a ratio that vanishes; the other side is verl's dual clip."""
    batch = replace(full_batch, behaviour_BT=full_batch.behaviour_BT.clone())
    batch.behaviour_BT[0, 0] = batch.logprob_BT[0, 0] + 100.0
    rest = replace(batch, completion_BT=batch.completion_BT.clone())
    rest.completion_BT[0, 0] = 0
    for make in (_ours, lambda mode, chosen: _peer(core_algos, mode, chosen)):
        loss, without = (make("seq-mean-token-sum", chosen)(batch.logprob_BT).item() for chosen in (batch, rest))
        assert without - loss == pytest.approx(1.3 * math.exp(-20) / 6, rel=1e-4)


@EVERY_MODE
def test_a_nan_at_a_masked_position(mode, batch, core_algos, value_and_gradient):
    """verl's token mean selects, as ours does; its other modes multiply, and NaN * 0 is NaN."""
    clean = value_and_gradient(_ours(mode, batch), batch.logprob_BT)
    dirty_BT = torch.where(batch.mask, batch.logprob_BT, torch.nan)
    ours = value_and_gradient(_ours(mode, batch), dirty_BT)
    assert torch.equal(ours[0], clean[0])
    assert torch.equal(ours[1], clean[1])
    peer = value_and_gradient(_peer(core_algos, mode, batch, **_global(batch)), dirty_BT)
    if mode == "token-mean":
        _assert_equal(ours, peer)
    else:
        assert math.isnan(peer[0].item())


ESTIMATORS = {"kl": k1, "k1": k1, "mse": k2, "k2": k2, "low_var_kl": k3, "k3": k3, "k2+": k2}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name, full_batch, core_algos, value_and_gradient):
    reference_BT = full_batch.reference_BT

    def ours(logprob_BT: Tensor) -> Tensor:
        return (ESTIMATORS[name](logprob_BT, reference_BT) * full_batch.mask).sum()

    def peer(logprob_BT: Tensor) -> Tensor:
        return (core_algos.kl_penalty(logprob_BT, reference_BT, name) * full_batch.mask).sum()

    _assert_equal(value_and_gradient(ours, full_batch.logprob_BT), value_and_gradient(peer, full_batch.logprob_BT))


@EVERY_MODE
def test_the_penalty_is_k3_plus(mode, batch, core_algos, value_and_gradient):
    """The straight-through gradient of "k3+" is k2's, which is k3's with its score term, token by token."""

    def ours(logprob_BT: Tensor) -> Tensor:
        return kl_penalty(
            logprob_BT,
            batch.reference_BT,
            batch.mask,
            denominator=_denominator(mode, batch),
            weight_BT=_weight(mode, batch),
        )

    def peer(logprob_BT: Tensor) -> Tensor:
        estimate_BT = core_algos.kl_penalty(logprob_BT, batch.reference_BT, "k3+")
        return core_algos.agg_loss(estimate_BT, batch.mask.long(), mode, **_global(batch))

    _assert_equal(value_and_gradient(ours, batch.logprob_BT), value_and_gradient(peer, batch.logprob_BT))


def test_k1_plus_leaves_out_the_score_of_the_token(full_batch, core_algos, value_and_gradient):
    """Exact, both: the score, 1 by the token's log-prob, has mean 0 under the policy (see the enumeration)."""

    def ours(logprob_BT: Tensor) -> Tensor:
        return with_score(k1(logprob_BT, full_batch.reference_BT), logprob_BT).sum()

    def peer(logprob_BT: Tensor) -> Tensor:
        return core_algos.kl_penalty(logprob_BT, full_batch.reference_BT, "k1+").sum()

    mine, other = (value_and_gradient(loss, full_batch.logprob_BT) for loss in (ours, peer))
    assert mine[0].item() == pytest.approx(other[0].item(), rel=1e-9)
    torch.testing.assert_close(mine[1], other[1] + 1.0, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["k1+", "k3+"])
def test_what_verl_claims_of_straight_through_holds_by_enumeration(name, core_algos):
    logits = torch.tensor([0.9, 0.1, -0.4], dtype=torch.float64, requires_grad=True)
    reference = torch.log(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64))
    logprob = torch.log_softmax(logits, -1)
    (exact,) = torch.autograd.grad((logprob.exp() * (logprob - reference)).sum(), logits, retain_graph=True)
    estimates = {
        "theirs": core_algos.kl_penalty(logprob, reference, name),
        "ours": with_score({"k1+": k1, "k3+": k3}[name](logprob, reference), logprob),
    }
    for estimate in estimates.values():
        (found,) = torch.autograd.grad((logprob.exp().detach() * estimate).sum(), logits, retain_graph=True)
        torch.testing.assert_close(found, exact, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("delta", "theirs", "exact"), [(3.0, 10.0, 16.08553692), (25.0, 10.0, 7.200489933e10)])
def test_k3_is_cut_at_10(delta, theirs, exact, core_algos, value_and_gradient):
    """Beyond, verl's plain k3 has no gradient, where the exact one is 1 - e^delta; "k3+" keeps k2's, -delta."""
    logprob, reference = torch.tensor(-delta - 1, dtype=torch.float64), torch.tensor(-1.0, dtype=torch.float64)
    peer = value_and_gradient(lambda value: core_algos.kl_penalty(value, reference, "k3"), logprob)
    straight = value_and_gradient(lambda value: core_algos.kl_penalty(value, reference, "k3+"), logprob)
    plain = value_and_gradient(lambda value: k3(value, reference), logprob)
    scored = value_and_gradient(lambda value: with_score(k3(value, reference), value), logprob)
    assert [part.item() for part in peer] == [theirs, 0.0]
    assert [part.item() for part in straight] == pytest.approx([theirs, -delta])
    assert [part.item() for part in plain] == pytest.approx([exact, 1 - math.exp(delta)], rel=1e-8)
    assert [part.item() for part in scored] == pytest.approx([exact, -delta], rel=1e-4)
