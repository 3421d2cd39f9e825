import pytest
import torch

from geartrain.algorithms.privileged import privileged_weight, rescaled_gap

ALL = torch.ones(1, 4, dtype=torch.bool)


def test_the_papers_weight():
    gap = torch.tensor([[0.0, 0.25, 1.0]])
    success, failure, tie = (privileged_weight(gap, a * torch.ones(1, 3), alpha=0.2)[0].tolist() for a in (2, -1, 0))
    assert success == pytest.approx([1.1, 1.05, 0.9])  # 0.2 (1 - rKL) + 0.9
    assert failure == pytest.approx([0.9, 0.95, 1.1])  # 0.2 rKL + 0.9
    assert tie == pytest.approx([1.0, 1.0, 1.0])


def test_the_papers_affine_form_moves_the_mean_when_the_gap_is_sparse():
    # 95 % of the tokens at 0.02, 5 % at 0.5: successes gain, failures lose 9 % of their step
    gap = torch.tensor([[0.02] * 95 + [0.5] * 5])
    for sign, expected in ((1.0, 1.0912), (-1.0, 0.9088)):
        assert privileged_weight(gap, sign * torch.ones_like(gap), alpha=0.2).mean().item() == pytest.approx(expected)


def test_the_gap_is_clipped_at_zero_and_scaled_by_the_batch():
    policy = torch.tensor([[-1.0, -1.0, -1.0, -1.0]])
    teacher = torch.tensor([[-3.0, -2.0, -1.0, 4.0]])
    assert rescaled_gap(policy, teacher, ALL, quantile=1.0)[0].tolist() == [1.0, 0.5, 0.0, 0.0]


def test_a_teacher_that_agrees_opens_nothing_unlike_min_max():
    policy = torch.tensor([[-1.0, -2.0, -1.0, -1.0]])
    teacher = policy - torch.tensor([[1e-5, 0.0, 2e-5, 3e-5]])
    assert rescaled_gap(policy, teacher, ALL, quantile=0.99).abs().max() == 0
    gap = policy - teacher
    assert ((gap - gap.min()) / (gap.max() - gap.min())).max() == 1.0


def test_a_teacher_that_speaks_at_one_token_in_a_thousand_is_heard():
    policy, teacher = torch.zeros(1, 1000), torch.zeros(1, 1000)
    teacher[0, 7] = -2.0
    gap = rescaled_gap(policy, teacher, torch.ones(1, 1000, dtype=torch.bool), quantile=0.99)
    assert (gap[0, 7].item(), gap.sum().item()) == (1.0, 1.0)


def test_observations_do_not_set_the_scale():
    mask = torch.tensor([[True, True, True, False]])
    policy, teacher = torch.zeros(1, 4), torch.tensor([[-1.0, -2.0, 0.0, -500.0]])
    assert rescaled_gap(policy, teacher, mask, quantile=1.0)[0].tolist() == [0.5, 1.0, 0.0, 0.0]
    assert rescaled_gap(policy, teacher, torch.zeros_like(mask), quantile=1.0)[0].tolist() == [0.0] * 4
