"""Estimators against exact values, by enumeration of a 3-token policy."""

import pytest
import torch

from geartrain.algorithms.divergence import entropy, k1, k2, k3, with_score
from geartrain.algorithms.surrogate import kl_penalty

REFERENCE = torch.log(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64))


def _logits():
    return torch.tensor([0.9, 0.1, -0.4], dtype=torch.float64, requires_grad=True)


def _exact(logits):
    logprob = torch.log_softmax(logits, -1)
    return (logprob.exp() * (logprob - REFERENCE)).sum()


def _gradient(scalar, logits):
    (gradient,) = torch.autograd.grad(scalar, logits)
    return gradient


def _expected(estimate, logits, *, scored):
    """Value and gradient that sampled tokens give on average: the sampling weights are constants."""
    logprob = torch.log_softmax(logits, -1)
    value = estimate(logprob, REFERENCE)
    value = with_score(value, logprob) if scored else value
    mean = (logprob.exp().detach() * value).sum()
    return mean.item(), _gradient(mean, logits)


@pytest.mark.parametrize(
    ("estimate", "scored", "value_is_exact", "gradient_is"),
    [
        (k1, False, True, "zero"),
        (k1, True, True, "exact"),
        (k2, False, False, "exact"),
        (k2, True, False, "wrong"),
        (k3, False, True, "wrong"),
        (k3, True, True, "exact"),
    ],
)
def test_estimators_in_value_and_gradient(estimate, scored, value_is_exact, gradient_is):
    logits = _logits()
    value, gradient = _expected(estimate, logits, scored=scored)
    exact, exact_gradient = _exact(logits).item(), _gradient(_exact(logits), logits)
    assert (value == pytest.approx(exact, rel=1e-9)) is value_is_exact
    if gradient_is == "zero":
        assert gradient.abs().max() < 1e-12
    else:
        assert torch.allclose(gradient, exact_gradient, rtol=1e-9) is (gradient_is == "exact")


def test_k3_is_never_negative_and_all_vanish_where_the_policies_agree():
    logprob = torch.linspace(-4, 0, 50)
    assert (k3(logprob, torch.flip(logprob, (0,))) >= 0).all()
    for estimate in (k1, k2, k3):
        assert estimate(logprob, logprob).abs().max() == 0


def test_values_on_two_log_probs():
    logprob, reference = torch.tensor(-1.0), torch.tensor(-1.5)
    assert k1(logprob, reference).item() == pytest.approx(0.5)
    assert k2(logprob, reference).item() == pytest.approx(0.125)
    assert k3(logprob, reference).item() == pytest.approx(0.6065307 - 1 + 0.5, rel=1e-5)


def test_one_step_on_the_penalty_lowers_the_exact_divergence():
    logits = _logits()
    logprob = torch.log_softmax(logits, -1)
    # every token once, weighted by its probability through repetition
    counts = (logprob.exp() * 1000).round().long()
    tokens = torch.arange(3).repeat_interleave(counts)
    loss = kl_penalty(
        logprob[tokens][None], REFERENCE[tokens][None], torch.ones(1, len(tokens), dtype=torch.bool), denominator=1000
    )
    stepped = logits - 0.1 * _gradient(loss, logits)
    assert _exact(stepped) < _exact(logits)


def test_entropy():
    assert entropy(torch.zeros(2, 4)).tolist() == pytest.approx([1.3862944, 1.3862944])
