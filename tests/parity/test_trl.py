"""Our loss is that of TRL's GRPOTrainer, in value and in the gradient of every token's log-prob.

The trainer is TRL's own, constructed on a random model and never run; `compute_loss` is called on it. One thing is
replaced: the forward pass, so that the log-probs are a leaf (`test_trl_rollout.py` keeps it). TRL 1.16.0.

Deviations, each with its test below; where one side is not exact, both values are asserted:

- the KL term: TRL weighs k3 by the ratio, exact off policy too; ours does so if it is given the ratio as weight;
- without TRL's `use_bias_correction_kl` its gradient is plain k3's, which is not the KL's;
- bnpo: the mean of the micro-batches' means, which depends on the split;
- masks multiply: a NaN at a masked position is in the loss;
- the log ratio has no bound: 100 nats overflow in float32; ours stop at 20.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from geartrain.algorithms.divergence import k3
from geartrain.algorithms.masked import masked_sum, row_share
from geartrain.algorithms.recipe import by_constant, by_rows, by_tokens
from geartrain.algorithms.surrogate import clipped_surrogate, kl_penalty

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
BETA, LIMIT = 0.04, 16
DENOMINATORS = {"grpo": by_rows, "bnpo": by_tokens, "dapo": by_tokens, "dr_grpo": by_constant}
EVERY_LOSS = pytest.mark.parametrize("kind", DENOMINATORS)


def _weight(kind: str, batch: Any) -> Tensor:
    """Weight of each token: its share of its row where rows count alike, else 1."""
    share_BT = row_share(batch.mask, dtype=torch.float64)
    return share_BT if kind == "grpo" else torch.ones_like(share_BT)


def _denominator(kind: str, batch: Any) -> float:
    return DENOMINATORS[kind](batch.tokens, len(batch.advantage_B), LIMIT)


def _ours(kind: str, batch: Any, denominator: float | None = None) -> Callable[[Tensor], Tensor]:
    denominator = _denominator(kind, batch) if denominator is None else denominator
    advantage_BT = batch.advantage * _weight(kind, batch)

    def loss(logprob_BT: Tensor) -> Tensor:
        return clipped_surrogate(
            logprob_BT, batch.behaviour_BT, advantage_BT, batch.mask, denominator=denominator, **CLIP
        )

    return loss


def _penalty(kind: str, batch: Any, *, ratio_BT: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Our KL penalty, whose gradient is that of the KL; for samples of another policy, weighed by their ratio."""
    weight_BT, denominator = _weight(kind, batch), _denominator(kind, batch)
    if ratio_BT is not None:
        weight_BT = weight_BT * ratio_BT

    def loss(logprob_BT: Tensor) -> Tensor:
        return kl_penalty(logprob_BT, batch.reference_BT, batch.mask, denominator=denominator, weight_BT=weight_BT)

    return loss


def _plain_penalty(kind: str, batch: Any) -> Callable[[Tensor], Tensor]:
    """The same value, with what automatic differentiation alone sees of its gradient."""
    weight_BT, denominator = _weight(kind, batch), _denominator(kind, batch)

    def loss(logprob_BT: Tensor) -> Tensor:
        return masked_sum(weight_BT * k3(logprob_BT, batch.reference_BT), batch.mask) / denominator

    return loss


def _peer(trainer: Any, batch: Any, *, tokens: int | None = None) -> Callable[[Tensor], Tensor]:
    """TRL's loss as a function of the log-probs.

    Args:
        trainer: a GRPOTrainer.
        batch: what it is given, in its own names.
        tokens: trained tokens of the whole step, if the batch is a micro-batch.
    """
    inputs = {
        "prompt_ids": torch.full((len(batch.advantage_B), 2), 2),
        "prompt_mask": torch.ones(len(batch.advantage_B), 2, dtype=torch.int64),
        "completion_ids": torch.full(batch.completion_BT.shape, 3),
        "completion_mask": batch.completion_BT,
        "tool_mask": batch.tool_BT,
        "advantages": batch.advantage_B,
        "old_per_token_logps": batch.behaviour_BT,
        "ref_per_token_logps": batch.reference_BT,
        "num_items_in_batch": torch.tensor(batch.tokens if tokens is None else tokens),
    }

    def loss(logprob_BT: Tensor) -> Tensor:
        forward = (logprob_BT, torch.zeros_like(logprob_BT).detach(), None)
        trainer._get_per_token_logps_and_entropies = lambda *positional, **named: forward
        return trainer.compute_loss(trainer.model, inputs)

    return loss


def _assert_equal(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    assert found[1].abs().max() > 1e-3  # the test is not about zeros
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-12)


def test_the_batch_is_clipped_on_both_sides_for_both_signs(batch):
    ratio_BT = (batch.logprob_BT - batch.behaviour_BT).exp()
    for sign in (1, -1):
        of_sign_BT = batch.mask & (batch.advantage.sign() == sign)
        assert (ratio_BT[of_sign_BT] > 1.28).any()
        assert (ratio_BT[of_sign_BT] < 0.8).any()
        assert ((ratio_BT[of_sign_BT] - 1).abs() < 0.2).any()


@EVERY_LOSS
def test_surrogate(kind, batch, make_trainer, value_and_gradient):
    peer = _peer(make_trainer(loss_type=kind), batch)
    _assert_equal(value_and_gradient(_ours(kind, batch), batch.logprob_BT), value_and_gradient(peer, batch.logprob_BT))


def test_the_four_losses_differ_on_this_batch(full_batch, make_trainer):
    losses = [_peer(make_trainer(loss_type=kind), full_batch)(full_batch.logprob_BT).item() for kind in DENOMINATORS]
    assert losses[1] == pytest.approx(losses[2])  # bnpo is dapo while there is one micro-batch
    assert len({round(loss, 6) for loss in losses}) == 3


@EVERY_LOSS
def test_surrogate_on_policy(kind, batch, make_trainer, value_and_gradient):
    """Before the first update the ratio is 1, nothing is clipped, and the gradient is not 0."""
    same = replace(batch, behaviour_BT=batch.logprob_BT)
    peer = _peer(make_trainer(loss_type=kind), same)
    _assert_equal(value_and_gradient(_ours(kind, same), same.logprob_BT), value_and_gradient(peer, same.logprob_BT))


@EVERY_LOSS
def test_with_kl(kind, batch, make_trainer, value_and_gradient):
    """TRL weighs k3 by the ratio, and differentiates the ratio too: our score term, weighed by the ratio."""
    ratio_BT = (batch.logprob_BT - batch.behaviour_BT).exp()
    surrogate = value_and_gradient(_ours(kind, batch), batch.logprob_BT)
    penalty = value_and_gradient(_penalty(kind, batch, ratio_BT=ratio_BT), batch.logprob_BT)
    peer = value_and_gradient(_peer(make_trainer(loss_type=kind, beta=BETA), batch), batch.logprob_BT)
    _assert_equal((surrogate[0] + BETA * penalty[0], surrogate[1] + BETA * penalty[1]), peer)
    assert BETA * penalty[1].abs().max() > 1e-4  # the KL is no rounding of the surrogate


@EVERY_LOSS
def test_with_kl_on_policy_the_ratio_is_no_weight(kind, batch, make_trainer, value_and_gradient):
    """With minibatches of one iteration the first is on policy: there our loop's penalty is TRL's as it is."""
    same = replace(batch, behaviour_BT=batch.logprob_BT)
    surrogate = value_and_gradient(_ours(kind, same), same.logprob_BT)
    penalty = value_and_gradient(_penalty(kind, same), same.logprob_BT)
    peer = value_and_gradient(_peer(make_trainer(loss_type=kind, beta=BETA), same), same.logprob_BT)
    _assert_equal((surrogate[0] + BETA * penalty[0], surrogate[1] + BETA * penalty[1]), peer)


@EVERY_LOSS
def test_with_kl_uncorrected_the_value_is_ours_and_the_gradient_plain_k3(kind, batch, make_trainer, value_and_gradient):
    """`use_bias_correction_kl=False`: TRL differentiates k3 alone, which is not the gradient of the KL."""
    trainer = make_trainer(loss_type=kind, beta=BETA, use_bias_correction_kl=False)
    surrogate = value_and_gradient(_ours(kind, batch), batch.logprob_BT)
    plain = value_and_gradient(_plain_penalty(kind, batch), batch.logprob_BT)
    ours = value_and_gradient(_penalty(kind, batch), batch.logprob_BT)
    peer = value_and_gradient(_peer(trainer, batch), batch.logprob_BT)
    _assert_equal((surrogate[0] + BETA * plain[0], surrogate[1] + BETA * plain[1]), peer)
    assert ours[0].item() == pytest.approx(plain[0].item(), rel=1e-12)
    assert (ours[1] - plain[1]).abs().max() > 0.1 * ours[1].abs().max()


REFERENCE = torch.log(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64))
LOGITS = torch.tensor([0.9, 0.1, -0.4], dtype=torch.float64)
POLICY = torch.log_softmax(LOGITS, -1)
OTHER = torch.log(torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64))
"""A sampler that is not the policy: what the policy was, some minibatches ago."""
EXACT_KL = 0.40067074352627835
EXACT_GRADIENT = [0.38642011238621476, -0.14094295171279675, -0.2454771606734182]


def _expected(estimate: Callable[[Any, Tensor], Tensor], ragged: type, sampler: Tensor) -> tuple[float, list[float]]:
    """A KL term and its gradient by the logits, in expectation over a sampler of three tokens.

    Each token is a row of its own; the rows are weighed by the sampler outside of what is tested. Advantages are 0,
    so that nothing but the KL is left of a loss.
    """
    logits = LOGITS.clone().requires_grad_()
    logprob = torch.log_softmax(logits, -1)
    one, nothing = torch.ones(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for token in range(3):
        at = [log[token].detach().reshape(1, 1) for log in (logprob, sampler, REFERENCE)]
        row = ragged(*at, nothing, one, one)
        total = total + sampler[token].exp() * estimate(row, logprob[token].reshape(1, 1))
    (gradient,) = torch.autograd.grad(total, logits)
    return total.item(), gradient.tolist()


def test_the_exact_divergence():
    logits = LOGITS.clone().requires_grad_()
    logprob = torch.log_softmax(logits, -1)
    value = (logprob.exp() * (logprob - REFERENCE)).sum()
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == pytest.approx(EXACT_KL, rel=1e-12)
    assert gradient.tolist() == pytest.approx(EXACT_GRADIENT, rel=1e-12)


@pytest.mark.parametrize("sampler", [POLICY, OTHER], ids=["on-policy", "off-policy"])
def test_with_the_ratio_both_kl_terms_are_exact_by_enumeration(sampler, full_batch, make_trainer):
    trainer = make_trainer(loss_type="bnpo", beta=1.0)

    def theirs(row: Any, logprob: Tensor) -> Tensor:
        return _peer(trainer, row)(logprob)

    def ours(row: Any, logprob: Tensor) -> Tensor:
        return _penalty("bnpo", row, ratio_BT=(row.logprob_BT - row.behaviour_BT).exp())(logprob)

    for estimate in (theirs, ours):
        value, gradient = _expected(estimate, type(full_batch), sampler)
        assert value == pytest.approx(EXACT_KL, rel=1e-9)
        assert gradient == pytest.approx(EXACT_GRADIENT, rel=1e-9)


def test_without_the_ratio_each_is_wrong_in_its_own_way_by_enumeration(full_batch, make_trainer):
    """Uncorrected TRL: a wrong gradient even on policy. Ours without weight: exact on policy, off policy biased."""
    trainer = make_trainer(loss_type="bnpo", beta=1.0, use_bias_correction_kl=False)

    def theirs(row: Any, logprob: Tensor) -> Tensor:
        return _peer(trainer, row)(logprob)

    def ours(row: Any, logprob: Tensor) -> Tensor:
        return _penalty("bnpo", row)(logprob)

    value, gradient = _expected(theirs, type(full_batch), POLICY)
    assert value == pytest.approx(EXACT_KL, rel=1e-9)
    assert gradient == pytest.approx([0.38076705, -0.03904454, -0.34172251], rel=1e-6)
    value, gradient = _expected(ours, type(full_batch), POLICY)
    assert value == pytest.approx(EXACT_KL, rel=1e-9)
    assert gradient == pytest.approx(EXACT_GRADIENT, rel=1e-9)
    value, gradient = _expected(theirs, type(full_batch), OTHER)
    assert value == pytest.approx(0.52967822, rel=1e-6)
    value, gradient = _expected(ours, type(full_batch), OTHER)
    assert value == pytest.approx(0.52967822, rel=1e-6)
    assert gradient == pytest.approx([0.42558101, 0.00569629, -0.43127730], rel=1e-6)


@pytest.mark.parametrize("kind", ["grpo", "dapo", "dr_grpo"])
def test_two_micro_batches_are_the_whole(kind, batch, make_trainer, value_and_gradient):
    whole = value_and_gradient(_ours(kind, batch), batch.logprob_BT)
    peer = value_and_gradient(_in_two(make_trainer(loss_type=kind, accumulation=2), batch), batch.logprob_BT)
    _assert_equal(whole, peer)


def test_bnpo_depends_on_the_split(full_batch, make_trainer, value_and_gradient):
    """TRL takes the mean of each micro-batch and the mean of these: here of 16 and 20 tokens. Ours is the whole's."""
    batch = full_batch
    peer = value_and_gradient(_in_two(make_trainer(loss_type="bnpo", accumulation=2), batch), batch.logprob_BT)
    whole = value_and_gradient(_ours("bnpo", batch), batch.logprob_BT)
    assert [batch.rows(part).tokens for part in HALVES] == [16, 20]
    assert (peer[0].item(), whole[0].item()) == (pytest.approx(0.0307, abs=5e-5), pytest.approx(0.0720, abs=5e-5))
    means = [
        value_and_gradient(_ours("bnpo", batch.rows(part), 2.0 * batch.rows(part).tokens), batch.logprob_BT[part])
        for part in HALVES
    ]
    _assert_equal((means[0][0] + means[1][0], torch.cat([means[0][1], means[1][1]])), peer)


HALVES = (slice(0, 3), slice(3, 6))


def _in_two(trainer: Any, batch: Any) -> Callable[[Tensor], Tensor]:
    """TRL's loss of both micro-batches of a step."""

    def loss(logprob_BT: Tensor) -> Tensor:
        first, second = (_peer(trainer, batch.rows(part), tokens=batch.tokens)(logprob_BT[part]) for part in HALVES)
        return first + second

    return loss


@EVERY_LOSS
def test_a_nan_at_a_masked_position_is_in_their_loss_and_not_in_ours(kind, batch, make_trainer, value_and_gradient):
    """TRL multiplies by the mask, and NaN * 0 is NaN."""
    clean = value_and_gradient(_ours(kind, batch), batch.logprob_BT)
    dirty_BT = torch.where(batch.mask, batch.logprob_BT, torch.nan)
    ours = value_and_gradient(_ours(kind, batch), dirty_BT)
    assert torch.equal(ours[0], clean[0])
    assert torch.equal(ours[1], clean[1])
    assert math.isnan(_peer(make_trainer(loss_type=kind), batch)(dirty_BT).item())


def test_a_log_ratio_of_100_is_infinite_there_and_e_to_the_20_here(full_batch, make_trainer, value_and_gradient):
    """The exact value is e^100 times the advantage, which float32 cannot hold; ours cuts at 20, without gradient."""
    batch = replace(full_batch, behaviour_BT=full_batch.logprob_BT.clone())
    batch.behaviour_BT[1, 0] -= 100.0
    peer = _peer(make_trainer(loss_type="dapo"), _single(batch))(batch.logprob_BT.float())
    assert peer.item() == math.inf
    ours = value_and_gradient(_ours("dapo", batch), batch.logprob_BT)
    assert ours[0].item() == pytest.approx(0.7 * math.exp(20) / batch.tokens, rel=1e-6)
    assert ours[1][1, 0].item() == 0.0


def _single(batch: Any) -> Any:
    return replace(batch, behaviour_BT=batch.behaviour_BT.float(), advantage_B=batch.advantage_B.float())
