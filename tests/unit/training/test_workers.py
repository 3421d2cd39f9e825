"""Micro-batches side by side: in order, with the same bits as one after the other, and no fault lost."""

import threading
from functools import partial

import pytest
import torch

from geartrain.training.engine import Engine
from geartrain.training.workers import SMALL, in_order, workers_for


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_and_run_at_once():
    both = threading.Barrier(2, timeout=20)  # broken, if the two never ran together

    def work(index: int) -> int:
        if index < 2:
            both.wait()
        return index

    assert list(in_order(2, (partial(work, index) for index in range(7)))) == list(range(7))


def test_each_has_one_thread_and_the_caller_keeps_its_own():
    torch.set_num_threads(3)
    assert list(in_order(2, [torch.get_num_threads] * 3)) == [1, 1, 1]
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_what_one_raises_is_raised_and_the_threads_are_given_back(workers: int):
    torch.set_num_threads(2)

    def broken() -> int:
        raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        list(in_order(workers, [lambda: 1, broken, lambda: 3]))
    assert torch.get_num_threads() == 2


def test_no_more_are_prepared_than_are_needed_soon():
    prepared = []

    def functions():
        for index in range(20):
            prepared.append(index)
            yield lambda: None

    results = in_order(2, functions())
    next(results)
    assert len(prepared) <= 4
    results.close()


def gradients(workers: int) -> tuple[list[torch.Tensor], list[int], float]:
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(33, 65), torch.nn.Tanh(), torch.nn.Linear(65, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    engine = Engine(model.parameters(), learning_rate=0.1, total_steps=10)
    batches = torch.randn(9, 17, 33, generator=generator)
    pieces = ((lambda x=x, index=index: (model(x).square().sum(), index)) for index, x in enumerate(batches))
    seen = list(engine.accumulate(pieces, workers=workers))
    found = [parameter.grad.clone() for parameter in model.parameters()]
    return found, seen, engine.step().loss


def test_a_sum_of_gradients_has_the_same_bits_however_many_work_on_it():
    torch.set_num_threads(1)
    alone, order, loss = gradients(1)
    for workers in (2, 3):
        together, seen, total = gradients(workers)
        assert seen == order == list(range(9))
        assert total == loss
        assert all(torch.equal(left, right) for left, right in zip(alone, together, strict=True))


@pytest.mark.parametrize("workers", [1, 2])
def test_one_micro_batch_that_is_not_finite_skips_the_step(workers: int):
    weight = torch.nn.Parameter(torch.ones(3))
    engine = Engine([weight], learning_rate=0.1, total_steps=10)
    pieces = [lambda scale=scale: ((weight * scale).sum(), None) for scale in (1.0, float("nan"), 1.0)]
    assert list(engine.accumulate(pieces, workers=workers)) == [None] * 3
    assert engine.step().skipped
    assert torch.equal(weight.detach(), torch.ones(3))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_weight_that_a_micro_batch_does_not_use_is_allowed(workers: int):
    used, unused = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    engine = Engine([used, unused], learning_rate=0.1, total_steps=10)
    list(engine.accumulate([lambda: (used.sum(), None), lambda: ((used + unused).sum(), None)], workers=workers))
    assert used.grad.tolist() == [2.0, 2.0]
    assert unused.grad.tolist() == [1.0, 1.0]


def test_large_models_share_their_operations_instead():
    torch.set_num_threads(2)
    assert workers_for(torch.nn.Linear(4, 4)) == 2
    assert workers_for(torch.nn.Linear(4096, SMALL // 4096, device="meta")) == 1
