import pytest
import torch

from geartrain.algorithms.divergence import sampled_kl
from geartrain.algorithms.granularity import teacher_explanation_loss
from geartrain.algorithms.masked import row_share
from geartrain.algorithms.recipe import by_constant, by_rows, by_tokens
from geartrain.algorithms.surrogate import (
    LossTally,
    clipped_surrogate,
    distillation,
    entropy_bonus,
    full_kl_penalty,
    kl_as_reward,
    kl_penalty,
    mismatch,
)

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def _batch(rows=8, length=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logprob = -torch.rand(rows, length, generator=generator, dtype=torch.float64) * 3
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    mask = torch.arange(length) < lengths[:, None]
    mask &= torch.rand(rows, length, generator=generator) > 0.3
    mask[:, 0] = True
    return {
        "logprob": logprob,
        "behaviour": logprob + 0.3 * torch.randn(rows, length, generator=generator, dtype=torch.float64),
        "reference": logprob + 0.3 * torch.randn(rows, length, generator=generator, dtype=torch.float64),
        "advantage": torch.randn(rows, length, generator=generator, dtype=torch.float64),
        "mask": mask,
    }


def _surrogate(logprob, part, denominator):
    return clipped_surrogate(
        logprob, part["behaviour"], part["advantage"], part["mask"], denominator=denominator, **CLIP
    )


def _penalty(logprob, part, denominator):
    return kl_penalty(logprob, part["reference"], part["mask"], denominator=denominator)


def _surrogate_by_rows(logprob, part, denominator):
    weighted = {**part, "advantage": part["advantage"] * row_share(part["mask"])}
    return _surrogate(logprob, weighted, denominator)


def _penalty_by_rows(logprob, part, denominator):
    share = row_share(part["mask"])
    return kl_penalty(logprob, part["reference"], part["mask"], denominator=denominator, weight_BT=share)


def _surrogate_of_sequences(logprob, part, denominator):
    return clipped_surrogate(
        logprob,
        part["behaviour"],
        part["advantage"],
        part["mask"],
        denominator=denominator,
        whole_sequence=True,
        **CLIP,
    )


def _distillation(logprob, part, denominator):
    student, teacher = (torch.stack([p, p - 1.0], -1) for p in (logprob, part["reference"]))
    return distillation(
        student, teacher, part["advantage"].abs(), part["mask"], denominator=denominator, direction="jsd"
    )


def _full(logprob, part, denominator):
    return full_kl_penalty(-2.0 * logprob, part["mask"], denominator=denominator, weight_BT=part["advantage"])


def _entropy(logprob, part, denominator):
    return entropy_bonus(-3.0 * logprob, part["mask"], denominator=denominator)


HEADS = [
    _surrogate, _penalty, _surrogate_by_rows, _penalty_by_rows, _surrogate_of_sequences, _distillation, _entropy,
    _full,
]  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("size", [1, 2, 8])
def test_the_split_into_micro_batches_changes_no_gradient(head, size):
    batch = _batch()
    denominator = int(batch["mask"].sum())
    whole = batch["logprob"].clone().requires_grad_()
    head(whole, batch, denominator).backward()
    parts = batch["logprob"].clone().requires_grad_()
    for start in range(0, 8, size):
        rows = slice(start, start + size)
        head(parts[rows], {name: value[rows] for name, value in batch.items()}, denominator).backward()
    assert torch.allclose(parts.grad, whole.grad, rtol=1e-12, atol=0)


@pytest.mark.parametrize("head", HEADS)
def test_the_denominator_is_the_one_that_is_passed(head):
    batch = _batch()
    assert head(batch["logprob"], batch, 20.0).item() == pytest.approx(head(batch["logprob"], batch, 10.0).item() / 2)


@pytest.mark.parametrize("head", HEADS)
def test_masked_tokens_change_neither_loss_nor_gradient(head):
    batch = _batch()
    denominator = int(batch["mask"].sum())
    clean = batch["logprob"].clone().requires_grad_()
    loss = head(clean, batch, denominator)
    loss.backward()
    # NaN in every input at masked positions, and fifty masked tokens appended
    dirty = {
        name: torch.cat([torch.where(batch["mask"], value, torch.nan), torch.full((8, 50), torch.nan)], 1)
        for name, value in batch.items()
        if name != "mask"
    }
    dirty["mask"] = torch.cat([batch["mask"], torch.zeros(8, 50, dtype=torch.bool)], 1)
    perturbed = dirty["logprob"].clone().requires_grad_()
    again = head(perturbed, dirty, denominator)
    again.backward()
    assert again.item() == pytest.approx(loss.item(), rel=1e-12)  # the sum runs in another order
    assert torch.allclose(perturbed.grad[:, :9], clean.grad, rtol=1e-12, atol=0)
    assert perturbed.grad[:, 9:].abs().max() == 0


@pytest.mark.parametrize("head", HEADS)
def test_a_trained_token_does_change_the_loss(head):
    batch = _batch()
    moved = {**batch, "logprob": batch["logprob"].clone()}
    moved["logprob"][0, 0] += 0.5
    assert head(moved["logprob"], moved, 1) != head(batch["logprob"], batch, 1)


def test_rows_of_one_and_of_nine_tokens_weigh_alike_by_rows_and_one_to_nine_by_tokens():
    mask = torch.arange(9) < torch.tensor([[1], [9]])
    logprob = torch.zeros(2, 9, dtype=torch.float64)
    part = {
        "behaviour": logprob,
        "reference": logprob + torch.tensor([[1.0], [0.0]]),
        "advantage": torch.tensor([[-1.0], [0.0]], dtype=torch.float64).expand(2, 9),
        "mask": mask,
    }
    # one token of ten, or one row of two: its surrogate is 1 and its divergence e - 2
    assert _surrogate(logprob, part, 10).item() == pytest.approx(1 / 10)
    assert _penalty(logprob, part, 10).item() == pytest.approx((torch.e - 2) / 10)
    assert _surrogate_by_rows(logprob, part, 2).item() == pytest.approx(1 / 2)
    assert _penalty_by_rows(logprob, part, 2).item() == pytest.approx((torch.e - 2) / 2)
    other = {**part, "advantage": part["advantage"].flip(0), "reference": part["reference"].flip(0)}
    assert _surrogate_by_rows(logprob, other, 2).item() == pytest.approx(1 / 2)
    assert _penalty_by_rows(logprob, other, 2).item() == pytest.approx((torch.e - 2) / 2)


def test_the_explanation_loss_does_not_depend_on_padding():
    grains = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(2))
    gap, mixture = grains[..., 1], torch.full((4, 6, 3), 1 / 3)
    mask, group = torch.ones(4, 6, dtype=torch.bool), torch.tensor([0, 0, 1, 1])
    first = teacher_explanation_loss(mixture, grains, gap, mask, group, entropy=0.1)
    pad = torch.nn.functional.pad
    padded = teacher_explanation_loss(
        pad(mixture, (0, 0, 0, 5)), pad(grains, (0, 0, 0, 5)), pad(gap, (0, 5)), pad(mask, (0, 5)), group, entropy=0.1
    )
    assert padded.item() == pytest.approx(first.item(), rel=1e-6)


def test_the_gradient_on_policy_is_the_policy_gradient_by_enumeration():
    logits = torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    reward = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    logprob = torch.log_softmax(logits, -1)
    (exact,) = torch.autograd.grad((logprob.exp() * reward).sum(), logits, retain_graph=True)
    # tokens as rows of one token, in proportion to their probability: the advantage carries the proportion
    estimate = clipped_surrogate(
        logprob[:, None],
        logprob.detach()[:, None],
        (logprob.exp().detach() * reward)[:, None],
        torch.ones(3, 1, dtype=torch.bool),
        denominator=1.0,
        **CLIP,
    )
    (found,) = torch.autograd.grad(-estimate, logits)
    assert torch.allclose(found, exact, rtol=1e-12)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "value", "slope"),
    [
        (0.5, 1.0, -1.28, 0.0),  # already 1.65 times as likely: no more push up
        (0.5, -1.0, 1.6487213, 1.6487213),
        (-0.5, 1.0, -0.6065307, -0.6065307),
        (-0.5, -1.0, 0.8, 0.0),
        (0.0, 1.0, -1.0, -1.0),
        (30.0, -1.0, 4.851652e8, 0.0),  # cut at e^20, with no gradient
    ],
)
def test_clipping_on_single_tokens(log_ratio, advantage, value, slope):
    logprob = torch.tensor([[log_ratio]], dtype=torch.float64, requires_grad=True)
    loss = clipped_surrogate(
        logprob,
        torch.zeros(1, 1, dtype=torch.float64),
        torch.tensor([[advantage]], dtype=torch.float64),
        torch.ones(1, 1, dtype=torch.bool),
        denominator=1.0,
        **CLIP,
    )
    loss.backward()
    assert loss.item() == pytest.approx(value, rel=1e-6)
    assert logprob.grad.item() == pytest.approx(slope, rel=1e-6)


def test_nothing_flows_into_advantages_behaviour_or_reference():
    batch = {name: value.clone().requires_grad_() for name, value in _batch().items() if name != "mask"}
    batch["mask"] = _batch()["mask"]
    (_surrogate(batch["logprob"], batch, 1) + _penalty(batch["logprob"], batch, 1)).backward()
    assert batch["logprob"].grad is not None
    assert all(batch[name].grad is None for name in ("behaviour", "reference", "advantage"))


def test_the_divergence_that_is_counted_is_the_one_that_is_known():
    tally, mask = LossTally(), torch.tensor([[True, True, False]])
    known, logprob = torch.tensor([[0.2, 0.4, torch.nan]]), torch.zeros(1, 3)
    tally.add(logprob, logprob, logprob, mask, kl_BT=known, **CLIP)
    assert tally.summary()["kl"] == pytest.approx(0.3)


def test_metrics_are_pooled_over_tokens_not_over_micro_batches():
    long, short = torch.zeros(1, 9), torch.zeros(1, 1)
    tally = LossTally()
    for logprob, kl in ((long, 0.0), (short, 1.0)):
        mask = torch.ones_like(logprob, dtype=torch.bool)
        tally.add(logprob, logprob, logprob, mask, reference_BT=logprob + kl, entropy_BT=logprob + kl, **CLIP)
    summary = tally.summary()
    assert summary["entropy"] == pytest.approx(0.1)
    assert summary["kl"] == pytest.approx((torch.e - 2) / 10)
    assert summary["ratio_mean"] == summary["ratio_max"] == 1.0
    assert summary["clip_fraction"] == 0.0


def test_metrics_of_ranks_are_pooled_over_tokens_not_over_ranks():
    whole = LossTally()
    for tokens, kl in ((9, 0.0), (1, 1.0)):
        rank, logprob = LossTally(), torch.zeros(1, tokens)
        mask = torch.ones_like(logprob, dtype=torch.bool)
        rank.add(logprob, logprob + kl, logprob, mask, reference_BT=logprob + kl, entropy_BT=logprob + kl, **CLIP)
        whole.merge(rank)
    summary = whole.summary()
    assert whole.tokens == 10
    assert summary["entropy"] == pytest.approx(0.1)
    assert summary["kl"] == pytest.approx((torch.e - 2) / 10)
    assert summary["ratio_max"] == 1.0


@pytest.mark.parametrize("denominator", [by_tokens, by_rows, by_constant])
@pytest.mark.parametrize("masked_rows", [0, 1])
def test_golden_losses_with_and_without_a_fully_masked_row(denominator, masked_rows):
    # losses of 1 per token in rows of 1 and 3; a fully masked row has no token, but is a row of the batch
    mask = torch.arange(4) < torch.tensor([[1], [3], [0]])[: 2 + masked_rows]
    zero, advantage = torch.zeros(mask.shape), -torch.ones(mask.shape)
    advantage = advantage * row_share(mask) if denominator is by_rows else advantage
    total = denominator(int(mask.sum()), len(mask), 10)
    loss = clipped_surrogate(zero, zero, advantage, mask, denominator=total, **CLIP)
    golden = {by_tokens: (1.0, 1.0), by_rows: (1.0, 2 / 3), by_constant: (4 / 20, 4 / 30)}
    assert loss.item() == pytest.approx(golden[denominator][masked_rows])


@pytest.mark.parametrize("denominator", [by_tokens, by_rows])
def test_rows_of_twice_the_length_leave_a_constant_loss_alone(denominator):
    losses = []
    for length in (3, 6):
        mask = torch.ones(2, length, dtype=torch.bool)
        share = row_share(mask) if denominator is by_rows else 1.0
        advantage = -torch.ones(2, length) * share
        zero = torch.zeros(2, length)
        total = denominator(2 * length, 2, 100)
        losses.append(clipped_surrogate(zero, zero, advantage, mask, denominator=total, **CLIP).item())
    assert losses == pytest.approx([1.0, 1.0])


def test_a_divergence_paid_as_reward_is_masked_before_it_is_summed():
    behaviour = torch.tensor([[-1.0, -700.0, -2.0, torch.nan]], requires_grad=True)
    reference = torch.tensor([[-1.5, 0.0, -1.0, 0.0]])
    kept = torch.tensor([[True, False, True, False]])
    reward = kl_as_reward(sampled_kl(behaviour, reference, "k1"), kept)
    assert reward.tolist() == [[-0.5, 0.0, 1.0, 0.0]]
    assert not reward.requires_grad


def test_what_lies_at_masked_positions_is_in_no_metric():
    batch = _batch()
    clean, dirty = LossTally(), LossTally()
    poisoned = {name: torch.where(batch["mask"], value, torch.nan) for name, value in batch.items()}
    for tally, part in ((clean, batch), (dirty, poisoned)):
        tally.add(
            part["logprob"], part["behaviour"], part["advantage"], batch["mask"],
            reference_BT=part["reference"], entropy_BT=part["behaviour"], **CLIP,
        )  # fmt: skip
    nothing = torch.full((1, 3), torch.nan)
    dirty.add(nothing, nothing, nothing, torch.zeros(1, 3, dtype=torch.bool), entropy_BT=nothing, **CLIP)
    assert dirty.summary() == clean.summary()


def test_the_clip_fraction_of_sequences_is_that_of_their_ratio():
    # the mean log ratio is 0: no sequence is clipped, although every token alone would be
    log_ratio, advantage = torch.tensor([[0.5, -0.5]]), torch.tensor([[1.0, 1.0]])
    found = []
    for whole in (False, True):
        tally = LossTally()
        mask = torch.ones(1, 2, dtype=torch.bool)
        tally.add(log_ratio, torch.zeros(1, 2), advantage, mask, whole_sequence=whole, **CLIP)
        found.append((tally.summary()["clip_fraction"], tally.summary()["ratio_max"]))
    assert found == [(0.5, pytest.approx(1.6487213)), (0.0, 1.0)]


def test_the_clip_fraction_counts_what_the_clip_stopped():
    log_ratio = torch.tensor([[0.5, 0.5, -0.5, -0.5]])
    advantage = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    tally = LossTally()
    tally.add(log_ratio, torch.zeros(1, 4), advantage, torch.ones(1, 4, dtype=torch.bool), **CLIP)
    assert tally.summary()["clip_fraction"] == 0.5


def test_the_mismatch_is_the_worst_trained_token():
    logprob = torch.tensor([[-1.0, -2.0, torch.nan]])
    sampler = torch.tensor([[-1.0, -2.25, 0.0]])
    assert mismatch(logprob, sampler, torch.tensor([[True, True, False]])) == 0.25
