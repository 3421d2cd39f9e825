import math

import pytest
import torch

from geartrain.algorithms.preference import (
    bradley_terry_loss,
    calibration_error,
    fit_temperature,
    pair_accuracy,
)


def test_loss_of_known_differences() -> None:
    loss_P = bradley_terry_loss(torch.tensor([0.0, 2.0, -2.0]), torch.zeros(3))
    expected = [math.log(2), math.log(1 + math.exp(-2)), math.log(1 + math.exp(2))]
    assert loss_P.tolist() == pytest.approx(expected)


def test_gradient_by_hand() -> None:
    chosen_P = torch.tensor([0.5, -1.0], requires_grad=True)
    rejected_P = torch.tensor([0.2, 1.0], requires_grad=True)
    bradley_terry_loss(chosen_P, rejected_P, torch.tensor([0.0, 0.5])).sum().backward()
    expected = [-1 / (1 + math.exp(0.3)), -1 / (1 + math.exp(-2.5))]
    assert chosen_P.grad is not None
    assert rejected_P.grad is not None
    assert chosen_P.grad.tolist() == pytest.approx(expected)
    assert rejected_P.grad.tolist() == pytest.approx([-x for x in expected])


def test_a_constant_added_to_every_score_changes_nothing() -> None:
    chosen_P, rejected_P = torch.tensor([0.5, -1.0, 3.0]), torch.tensor([0.25, 1.0, -4.0])
    torch.testing.assert_close(
        bradley_terry_loss(chosen_P + 8, rejected_P + 8), bradley_terry_loss(chosen_P, rejected_P)
    )


def test_a_margin_asks_for_more() -> None:
    zero_1, margin_1 = torch.zeros(1), torch.ones(1)
    assert bradley_terry_loss(margin_1, zero_1, margin_1).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_huge_differences_stay_finite_in_value_and_gradient(size: float) -> None:
    chosen_P = torch.tensor([size, -size], requires_grad=True)
    loss_P = bradley_terry_loss(chosen_P, torch.zeros(2))
    loss_P.sum().backward()
    assert loss_P.tolist() == pytest.approx([0.0, size])
    assert chosen_P.grad is not None
    assert chosen_P.grad.tolist() == [0.0, -1.0]


def test_accuracy_counts_a_tie_as_half() -> None:
    assert pair_accuracy(torch.tensor([1.0, -1.0, 0.0, 2.0])) == 0.625
    assert math.isnan(pair_accuracy(torch.tensor([])))


def test_calibration_error_by_hand() -> None:
    nine_in_ten = math.log(0.9 / 0.1)
    right, wrong = [nine_in_ten] * 9, [-nine_in_ten]
    assert calibration_error(torch.tensor(right + wrong)) == pytest.approx(0.0, abs=1e-6)
    assert calibration_error(torch.tensor(wrong * 10)) == pytest.approx(0.9, abs=1e-6)
    assert calibration_error(torch.zeros(4)) == 0.0
    # half sure at 0.9 and right, half sure at 0.6 and wrong: (0.1 + 0.6) / 2
    assert calibration_error(torch.tensor([nine_in_ten, -math.log(1.5)])) == pytest.approx(0.35, abs=1e-6)
    assert math.isnan(calibration_error(torch.tensor([])))


def test_temperature_undoes_a_known_scale() -> None:
    generator = torch.Generator().manual_seed(0)
    true_P = 2 * torch.randn(20_000, generator=generator, dtype=torch.double)
    right_P = torch.rand(20_000, generator=generator, dtype=torch.double) < torch.sigmoid(true_P.abs())
    difference_P = 5 * true_P.abs() * torch.where(right_P, 1.0, -1.0)
    temperature = fit_temperature(difference_P)
    assert temperature == pytest.approx(5.0, rel=0.05)
    assert calibration_error(difference_P / temperature) < 0.01 < calibration_error(difference_P)


def test_temperature_of_few_pairs_all_right_is_not_certainty() -> None:
    sure_P = torch.full((3,), 1.0) / fit_temperature(torch.full((3,), 1.0))
    assert torch.sigmoid(sure_P).tolist() == pytest.approx([0.8] * 3)  # (3 + 1) / (3 + 2)


@pytest.mark.parametrize(("differences", "expected"), [([], 1.0), ([-1.0, -2.0], 20.0), ([0.0, 0.0], 20.0)])
def test_temperature_without_evidence(differences: list[float], expected: float) -> None:
    assert fit_temperature(torch.tensor(differences)) == expected
