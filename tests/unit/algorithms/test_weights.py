import pytest
import torch

from geartrain.algorithms.weights import bounded_weight, normalise_within_bounds


def test_normalising_divides_by_the_mean_where_that_stays_within_the_bounds():
    raw = torch.tensor([[1.5, 1.0, 0.5, 1.4]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False, True]])
    weight = normalise_within_bounds(raw, mask, bound=2.0)
    assert weight[0].tolist() == pytest.approx([1.5 / 1.3, 1.0 / 1.3, 1.0, 1.4 / 1.3])


def test_normalising_keeps_bounds_and_mean_where_the_plain_division_breaks_them():
    # plain division: 2 / 0.65 = 3.08, past the bound
    raw = torch.tensor([[0.5] * 9 + [2.0]], dtype=torch.float64)
    weight = normalise_within_bounds(raw, torch.ones_like(raw, dtype=torch.bool), bound=2.0)
    assert weight.mean().item() == pytest.approx(1.0, abs=1e-12)
    assert weight.max() == 2.0
    assert weight[0, 0].item() == pytest.approx(8 / 9)


def test_a_fully_masked_row_keeps_weight_one():
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    weight = bounded_weight(torch.full((1, 3), torch.nan), nothing, low=0.5, high=2.0, normalise=True)
    assert weight.tolist() == [[1.0, 1.0, 1.0]]


def test_weights_that_only_grow_are_normalised_into_wider_bounds():
    raw, mask = torch.tensor([[1.0, 1.0, 1.0, 9.0]]), torch.ones(1, 4, dtype=torch.bool)
    printed = bounded_weight(raw, mask, low=1.0, high=2.0, normalise=False)
    assert printed.tolist() == [[1.0, 1.0, 1.0, 2.0]]
    ours = bounded_weight(raw, mask, low=1.0, high=2.0, normalise=True)
    assert ours[0].tolist() == pytest.approx([0.8, 0.8, 0.8, 1.6])


def test_bounds_must_enclose_one():
    with pytest.raises(AssertionError, match="enclose 1"):
        bounded_weight(torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool), low=1.5, high=2.0, normalise=True)
