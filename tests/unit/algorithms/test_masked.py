import math

import pytest
import torch

from geartrain.algorithms.masked import keep, masked_mean, masked_sum, row_share, standardise_by_group

NAN = math.nan


def test_nan_at_a_masked_position_reaches_neither_value_nor_gradient():
    value = torch.tensor([[1.0, NAN, 3.0], [NAN, NAN, NAN]], requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert masked_mean(value, mask, dim=1).tolist() == [2.0, 0.0]
    (masked_sum(value, mask) + masked_mean(value, mask)).backward()
    assert value.grad is not None
    assert value.grad.tolist() == [[1.5, 0.0, 1.5], [0.0, 0.0, 0.0]]


def test_shares_of_a_row_turn_a_sum_into_the_sum_of_row_means():
    value = torch.tensor([[1.0, NAN, 4.0], [7.0, NAN, NAN], [NAN, NAN, NAN]], dtype=torch.float64)
    mask = ~value.isnan()
    share = row_share(mask, dtype=torch.float64)
    assert share.tolist() == [[0.5, 0.0, 0.5], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert masked_sum(value * share, mask).item() == 2.5 + 7.0
    assert row_share(mask).dtype == torch.float32


def test_standardising_pools_the_rows_of_a_group_and_no_others():
    value = torch.tensor([[1.0, NAN], [3.0, 5.0], [100.0, 200.0]])
    mask = torch.tensor([[True, False], [True, True], [True, True]])
    result = standardise_by_group(value, mask, torch.tensor([0, 0, 1]))
    group = torch.tensor([1.0, 3.0, 5.0])
    expected = (group - 3.0) / group.std(correction=0)
    assert result[0].tolist() == pytest.approx([expected[0].item(), 0.0], rel=1e-5)
    assert result[1].tolist() == pytest.approx(expected[1:].tolist(), rel=1e-5, abs=1e-6)
    assert result[2].tolist() == pytest.approx([-1.0, 1.0], rel=1e-5)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5)])  # a square batch hides a wrong axis
def test_standardised_groups_have_mean_zero_and_deviation_one(shape):
    value = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    result = standardise_by_group(value, torch.ones(shape, dtype=torch.bool), torch.arange(shape[0]))
    assert result.mean(1).tolist() == pytest.approx([0.0] * shape[0], abs=1e-6)
    assert result.std(1, correction=0).tolist() == pytest.approx([1.0] * shape[0], rel=1e-4)


def test_a_constant_group_becomes_zero_and_not_amplified_rounding():
    value = torch.full((2, 7), 0.1) * torch.tensor([[1.0], [1.0]])
    assert standardise_by_group(value, torch.ones(2, 7, dtype=torch.bool), torch.tensor([0, 0])).abs().max() == 0


def test_empty_and_fully_masked_input():
    empty = torch.zeros(0, 4)
    assert standardise_by_group(empty, empty.bool(), torch.zeros(0, dtype=torch.int64)).shape == (0, 4)
    masked = standardise_by_group(torch.full((1, 3), NAN), torch.zeros(1, 3, dtype=torch.bool), torch.tensor([0]))
    assert masked.tolist() == [[0.0, 0.0, 0.0]]


def test_keep_leaves_integers_integers():
    assert keep(torch.tensor([3, 4]), torch.tensor([True, False])).tolist() == [3, 0]
