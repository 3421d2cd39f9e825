"""The float32 Muon against torch's own, which orthogonalises in bfloat16."""

import copy

import pytest
import torch

from geartrain.training.muon import Muon, orthogonalized

SHAPES = [(24, 24), (24, 24), (40, 16), (16, 40)]


def matrices(seed: int) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def test_moves_like_torchs_own_up_to_its_half_precision() -> None:
    ours = matrices(0)
    theirs = copy.deepcopy(ours)
    mine = Muon(ours, lr=0.02, weight_decay=0.1)
    reference = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1)
    for step in range(4):
        for left, right, gradient in zip(ours, theirs, matrices(step + 1), strict=True):
            left.grad, right.grad = gradient.detach().clone(), gradient.detach().clone()
        mine.step()
        reference.step()
    for start, left, right in zip(matrices(0), ours, theirs, strict=True):
        moved = (right - start).norm()
        assert (left - right).norm() < 0.02 * moved
        assert moved > 0.1


@pytest.mark.parametrize("shape", [(3, 12, 30), (3, 30, 12), (3, 16, 16)])
def test_singular_values_end_near_one_and_directions_stay(shape: tuple[int, int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    result = orthogonalized(matrix)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    core = left.mT @ result @ right.mT
    values = core.diagonal(dim1=1, dim2=2)
    # the smallest value of a square matrix may be so small that five iterations do not lift it
    assert 0.6 < float(values.median()) < 1.3
    assert float(values.max()) < 1.3
    assert (core - torch.diag_embed(values)).abs().max() < 1e-4


def test_does_not_depend_on_what_is_stacked_with_it() -> None:
    stack = torch.randn((4, 20, 20), generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(orthogonalized(stack)[2], orthogonalized(stack[2:3])[0], atol=1e-5, rtol=1e-4)


def test_a_matrix_without_gradient_stays_and_state_survives_a_reload() -> None:
    first, second = matrices(0)[:2]
    before = second.detach().clone()
    optimizer = Muon([first, second], lr=0.1)
    first.grad = torch.ones_like(first)
    optimizer.step()
    assert torch.equal(second, before)
    restored = Muon([first, second], lr=0.1)
    restored.load_state_dict(optimizer.state_dict())
    assert torch.equal(restored.state[first]["momentum"], optimizer.state[first]["momentum"])


def test_refuses_what_is_no_matrix() -> None:
    with pytest.raises(AssertionError, match="matrices"):
        Muon([torch.nn.Parameter(torch.zeros(3))], lr=0.1)
