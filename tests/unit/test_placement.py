"""Which device a process takes, what of a checkpoint knows it, and that a stage puts its models there."""

import random

import numpy as np
import pytest
import torch

from geartrain.errors import UserError
from geartrain.placement import CPU, VARIABLE, collectives, hands, on_cpu, own_device, seeded
from geartrain.training.checkpoint import load_checkpoint, restore_rng_state, rng_state, save_checkpoint
from tests.fakes.standin import DEVICE, KIND, standin


@pytest.fixture
def gpus(monkeypatch):
    """A machine of so many GPUs, as torch tells of them."""

    def have(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return have


@pytest.mark.parametrize(
    ("count", "environment", "device"),
    [
        (0, {}, "cpu"),
        (0, {"LOCAL_RANK": "3"}, "cpu"),
        (2, {}, "cuda:0"),
        (2, {"LOCAL_RANK": "1"}, "cuda:1"),
        (2, {"LOCAL_RANK": "1", VARIABLE: "cuda"}, "cuda:1"),
        (2, {"LOCAL_RANK": "7", VARIABLE: "cpu"}, "cpu"),
    ],
)
def test_a_process_takes_the_gpu_of_its_local_rank_or_the_cpu(count, environment, device, gpus):
    gpus(count)
    assert own_device(environment) == torch.device(device)


@pytest.mark.parametrize(
    ("count", "environment", "reason"),
    [
        (0, {VARIABLE: "cuda"}, "process 0 of this node wants a GPU of its own, and torch finds 0 of kind cuda"),
        (2, {"LOCAL_RANK": "2"}, "process 2 of this node .* finds 2 .* set GEARTRAIN_DEVICE=cpu"),
        (0, {VARIABLE: "gpu"}, "GEARTRAIN_DEVICE: 'gpu' is no kind of device; take cpu or cuda"),
        (1, {VARIABLE: "cuda:0"}, "GEARTRAIN_DEVICE: 'cuda:0' is no kind of device"),
    ],
)
def test_a_gpu_that_is_not_there_is_not_replaced_in_silence(count, environment, reason, gpus):
    gpus(count)
    with pytest.raises(UserError, match=reason):
        own_device(environment)


def test_a_gpu_is_fed_by_one_process_and_told_of_by_nccl():
    assert [hands(8, torch.device(kind)) for kind in ("cpu", "cuda")] == [8, 1]
    assert [collectives(torch.device(kind)) for kind in ("cpu", "cuda")] == ["gloo", "cpu:gloo,cuda:nccl"]


def test_a_checkpoint_is_of_no_device(tmp_path):
    with standin():
        state = {"model": {"weight": torch.ones(2).to(DEVICE)}, "parts": [(torch.zeros(1).to(DEVICE), 3)], "name": "x"}
        save_checkpoint(tmp_path, state, step=1)
        assert on_cpu(state)["parts"][0][0].device == CPU
    (path,) = tmp_path.glob("*.pt")
    assert torch.load(path)["model"]["weight"].tolist() == [1.0, 1.0]  # without map_location, and without the device
    assert load_checkpoint(tmp_path)["parts"] == [(torch.zeros(1), 3)]


def test_the_generator_of_the_device_goes_on_where_it_was():
    def draw():
        own = getattr(torch, KIND).generator
        return torch.rand(1, generator=own).item(), torch.rand(1).item(), np.random.rand(), random.random()

    with standin():
        state = rng_state(DEVICE)
        drawn = draw()
        restore_rng_state(state, DEVICE)
        assert draw() == drawn
    restore_rng_state(state)  # on the CPU: what is the device's is left alone
    assert torch.rand(1).item() == drawn[1]
    assert "device" not in rng_state()


def test_what_is_seeded_leaves_no_trace():
    before = torch.get_rng_state()
    with seeded(7):
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(7):
        assert torch.equal(torch.rand(3), first)
