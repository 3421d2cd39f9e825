import itertools

import pytest
import torch

from geartrain.algorithms.divergence import categorical_divergence
from geartrain.algorithms.saliency import saliency, with_observed, with_tail


def _logprobs(seed, rows=5, vocabulary=9):
    return (
        torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        .mul(2)
        .log_softmax(-1)
    )


def _support(teacher, observed, top):
    return with_observed(teacher.topk(top, dim=-1).indices, observed)


def _picked(logprob, support):
    return with_tail(logprob.gather(-1, support.clamp(min=0)), support)


def _divergence(student, teacher, observed, top, direction):
    support = _support(teacher, observed, top)
    return categorical_divergence(_picked(student, support), _picked(teacher, support), direction)


def test_the_support_is_the_teachers_top_and_the_observed_once():
    teacher = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert _support(teacher, torch.tensor([3]), 2).tolist() == [[0, 1, 3]]
    assert _support(teacher, torch.tensor([1]), 2).tolist() == [[0, 1, -1]]


def test_buckets_sum_to_one_with_and_without_the_observed_among_the_top():
    teacher, student = _logprobs(0), _logprobs(1)
    observed = torch.tensor([0, 1, 2, 3, 4])
    support = _support(teacher, observed, 3)
    assert (support == -1).any()
    assert (support[:, -1] >= 0).any()
    for logprob in (teacher, student):
        assert _picked(logprob, support).exp().sum(-1).tolist() == pytest.approx([1.0] * 5)


@pytest.mark.parametrize("direction", ["reverse", "forward", "jsd"])
def test_the_divergence_grows_with_the_support_up_to_the_exact_one(direction):
    student, teacher, observed = _logprobs(2), _logprobs(3), torch.tensor([8, 7, 6, 5, 4])
    exact = categorical_divergence(student, teacher, direction)
    found = [_divergence(student, teacher, observed, top, direction) for top in (1, 3, 6, 9)]
    assert all((d >= 0).all() for d in found)
    assert all((a <= b + 1e-9).all() for a, b in itertools.pairwise(found))
    torch.testing.assert_close(found[-1], exact, atol=1e-6, rtol=1e-6)


def test_a_teacher_that_is_the_student_is_not_salient():
    student = _logprobs(4)
    assert _divergence(student, student, torch.arange(5), 3, "reverse").abs().max() < 1e-12


def test_saliency_is_relative_to_the_trajectory_and_silent_where_nothing_diverges():
    mask = torch.tensor([[True, True, True, False], [True] * 4])
    divergence = torch.tensor([[0.2, 0.4, 0.0, 99.0], [1e-5, 2e-5, 0.0, 0.0]])
    assert saliency(divergence, mask)[0].tolist() == pytest.approx([0.5, 1.0, 0.0, 0.0])
    assert saliency(divergence, mask)[1].tolist() == [0.0] * 4
