"""Estimators against exact values, by enumeration of a 3-token policy."""

import math

import pytest
import torch

from geartrain.algorithms.divergence import categorical_divergence, entropy, k1, k2, k3, sampled_kl, with_score
from geartrain.algorithms.surrogate import full_kl_penalty, kl_as_reward, kl_penalty

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


def full(logprob, reference):
    """The divergence itself: every token of a position has the same."""
    return categorical_divergence(logprob, reference, "reverse").expand(3)


@pytest.mark.parametrize(
    ("estimate", "scored", "value_is_exact", "gradient_is"),
    [
        (k1, False, True, "zero"),
        (k1, True, True, "exact"),
        (k2, False, False, "exact"),
        (k2, True, False, "wrong"),
        (k3, False, True, "wrong"),
        (k3, True, True, "exact"),
        (full, False, True, "exact"),
        (full, True, True, "exact"),
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
    for name, estimate in (("k1", k1), ("k2", k2), ("k3", k3)):
        assert sampled_kl(logprob, reference, name) == estimate(logprob, reference)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_penalty_has_the_gradient_of_the_divergence_whatever_the_estimator(estimator):
    logits = _logits()
    logprob = torch.log_softmax(logits, -1)
    penalty = kl_penalty(
        logprob[None],
        REFERENCE[None],
        torch.ones(1, 3, dtype=torch.bool),
        denominator=1.0,
        weight_BT=logprob.exp()[None],  # each token as often as it is drawn; detached there
        estimator=estimator,
    )
    gradient = _gradient(penalty, logits)
    assert torch.allclose(gradient, _gradient(_exact(logits), logits), rtol=1e-9)
    assert gradient.abs().max() > 0.1


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_one_step_on_the_penalty_lowers_the_exact_divergence(estimator):
    logits = _logits()
    logprob = torch.log_softmax(logits, -1)
    # every token once, weighted by its probability through repetition
    counts = (logprob.exp() * 1000).round().long()
    tokens = torch.arange(3).repeat_interleave(counts)
    loss = kl_penalty(
        logprob[tokens][None],
        REFERENCE[tokens][None],
        torch.ones(1, len(tokens), dtype=torch.bool),
        denominator=1000,
        estimator=estimator,
    )
    stepped = logits - 0.1 * _gradient(loss, logits)
    assert _exact(stepped) < _exact(logits)


@pytest.mark.parametrize("weighed", [True, False])
def test_on_samples_of_another_policy_the_penalty_is_exact_with_the_ratio_as_weight(weighed):
    logits = _logits()
    logprob = torch.log_softmax(logits, -1)
    sampler = torch.log(torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64))
    ratio = (logprob - sampler).exp() if weighed else torch.ones(3, dtype=torch.float64)
    penalty = kl_penalty(  # each token once, as often as the sampler draws it
        logprob[None],
        REFERENCE[None],
        torch.ones(1, 3, dtype=torch.bool),
        denominator=1.0,
        weight_BT=(sampler.exp() * ratio)[None],
    )
    gradient, exact = _gradient(penalty, logits), _gradient(_exact(logits), logits)
    assert (penalty.item() == pytest.approx(_exact(logits).item(), rel=1e-9)) is weighed
    assert torch.allclose(gradient, exact, rtol=1e-9) is weighed


SAMPLED = ("k1", "k2", "k3")
EVERY = (*SAMPLED, "full")


class TwoTokens:
    """Every episode of two tokens once, weighed by how often it is played; the second token's state is the first."""

    def __init__(self, shift=1.0):
        generator = torch.Generator().manual_seed(4)
        reference, move = (torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(2))
        self.logits = (reference + shift * move).requires_grad_()  # of the first token, and after each first token
        first, second = torch.cartesian_prod(torch.arange(3), torch.arange(3)).unbind(1)
        self.mask = torch.ones(9, 2, dtype=torch.bool)

        def of_tokens(logits):
            table = torch.log_softmax(logits, -1)
            return table, torch.stack([table[0, first], table[1 + first, second]], 1)

        table, self.logprob = of_tokens(self.logits)
        other, self.reference = of_tokens(reference)
        self.played = self.logprob.sum(1, keepdim=True).exp()
        kl = categorical_divergence(table, other, "reverse")
        self.full = torch.stack([kl[0].expand(9), kl[1 + first]], 1)
        forward = categorical_divergence(table, other, "forward")
        self.forward = torch.stack([forward[0].expand(9), forward[1 + first]], 1)

    def expected(self, value):
        """Of an episode's sum, with the gradient that the play's own distribution adds."""
        return (self.played * value).sum()

    def estimate(self, name):
        return self.full if name == "full" else sampled_kl(self.logprob, self.reference, name)

    def as_loss(self, name):
        options = {"denominator": 1.0, "weight_BT": self.played.expand(9, 2)}
        if name == "full":
            return self.gradient(full_kl_penalty(self.full, self.mask, **options))
        return self.gradient(kl_penalty(self.logprob, self.reference, self.mask, estimator=name, **options))

    def as_reward(self, name):
        """What the policy gradient makes of it, with the sign of a loss."""
        paid = kl_as_reward(self.estimate(name), self.mask).sum(1, keepdim=True)
        return self.gradient(-(self.played.detach() * paid * self.logprob).sum())

    def gradient(self, scalar):
        return torch.autograd.grad(scalar, self.logits, retain_graph=True)[0]

    def exact(self):
        """Of the divergence of whole episodes."""
        return self.gradient(self.expected(self.full))


def _equal(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_a_loss_has_the_divergences_gradient_in_the_states_that_were_played(name):
    two = TwoTokens()
    _equal(two.as_loss(name), two.gradient((two.played.detach() * two.full).sum()))
    assert (two.as_loss(name) - two.exact()).abs().max() > 0.01  # not that of the states an action leads to


def test_a_reward_has_the_gradient_of_whole_episodes_with_k1_alone():
    two = TwoTokens()
    _equal(two.as_reward("k1"), two.exact())
    for name in ("k2", "k3", "full"):
        assert (two.as_reward(name) - two.exact()).abs().max() > 0.01, name


def test_what_other_rewards_miss():
    two = TwoTokens()
    _equal(two.as_reward("full"), two.exact() - two.as_loss("full"))
    assert two.as_reward("full")[1:].abs().max() < 1e-12  # the last token pays for nothing
    _equal(two.as_reward("k3"), two.exact() - two.gradient((two.played.detach() * two.forward).sum()))
    whole = two.gradient(two.expected(two.estimate("k2")))
    _equal(two.as_reward("k2"), whole - two.as_loss("k2"))


@pytest.mark.parametrize(("name", "order"), [("k1", 1), ("k2", 2), ("k3", 2), ("full", 2)])
def test_near_the_reference_only_k1_holds_as_a_reward(name, order):
    sizes = [float(TwoTokens(shift).as_reward(name).norm()) for shift in (1e-2, 1e-3)]
    assert math.log10(sizes[0] / sizes[1]) == pytest.approx(order, abs=0.05)


def test_entropy():
    assert entropy(torch.zeros(2, 4)).tolist() == pytest.approx([1.3862944, 1.3862944])


def test_the_directions_of_a_divergence_on_two_tokens():
    student, teacher = (torch.log(torch.tensor(p, dtype=torch.float64)) for p in ([0.5, 0.5], [0.9, 0.1]))
    reverse = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    forward = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    middle = [0.7, 0.3]
    jsd = 0.5 * sum(
        a * math.log(a / m) + b * math.log(b / m) for a, b, m in zip([0.5, 0.5], [0.9, 0.1], middle, strict=True)
    )
    for direction, expected in (("reverse", reverse), ("forward", forward), ("jsd", jsd)):
        assert float(categorical_divergence(student, teacher, direction)) == pytest.approx(expected)
    # the article calls this student || teacher; torch's kl_div(input, target) is target || input
    assert float(torch.nn.functional.kl_div(student, teacher.exp(), reduction="sum")) == pytest.approx(forward)


@pytest.mark.parametrize("direction", ["reverse", "forward", "jsd"])
def test_a_divergence_has_the_gradient_of_finite_differences(direction):
    def value(logits):
        return categorical_divergence(torch.log_softmax(logits, -1), REFERENCE, direction)

    logits, step = _logits(), 1e-6
    gradient = _gradient(value(logits), logits)
    for index in range(3):
        shift = torch.zeros(3, dtype=torch.float64)
        shift[index] = step
        slope = (value(logits.detach() + shift) - value(logits.detach() - shift)) / (2 * step)
        assert gradient[index].item() == pytest.approx(float(slope), abs=1e-8)


@pytest.mark.parametrize("direction", ["reverse", "forward", "jsd"])
def test_what_neither_can_say_counts_nothing_and_gives_no_nan(direction):
    impossible = torch.tensor([-torch.inf], dtype=torch.float64)
    logits = _logits()
    student = torch.cat([torch.log_softmax(logits, -1), impossible])
    found = categorical_divergence(student, torch.cat([REFERENCE, impossible]), direction)
    expected = categorical_divergence(student[:3], REFERENCE, direction)
    assert found.item() == pytest.approx(expected.item())
    assert torch.isfinite(_gradient(found, logits)).all()
