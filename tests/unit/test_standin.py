"""The stand-in refuses what CUDA refuses, and lets pass what CUDA lets pass: else it would prove nothing."""

import copy

import pytest
import torch
from torch import nn

from tests.fakes.standin import CPU, DEVICE, KIND, standin


@pytest.fixture(autouse=True)
def rules():
    with standin() as found:
        yield found


REFUSED = {
    "sum": lambda here, there: here + there,
    "product of matrices": lambda here, there: here @ there,
    "choice": lambda here, there: torch.where(there > 0, here, 0.0),
    "concatenation": lambda here, there: torch.cat([here, there]),
    "look-up": lambda here, there: nn.functional.embedding(there.long(), here),
    "index of a tensor of the CPU": lambda here, there: there[here.long()],
    "mask that fills": lambda here, there: here.masked_fill(there > 0, 1.0),
    "assignment through a mask": lambda here, there: here.__setitem__(here > 0, there[there > 0]),
    "sum in place": lambda here, there: there.add_(here),
    "scalar of the CPU, in place": lambda here, there: there.sum().add_(here.sum()),
    "tensor of the CPU, scalar here": lambda here, there: there * here.sum(),
    "many at once": lambda here, there: torch._foreach_add([here], [there]),
    "search": lambda here, there: torch.searchsorted(here, there),
}
ALLOWED = {
    "scalar of the CPU": lambda here, there: here * there.sum(),
    "number": lambda here, there: here * 2.0,
    "index of the CPU": lambda here, there: here[torch.tensor([1, 0])],
    "list as index": lambda here, there: here[[1, 0]],
    "copy into": lambda here, there: here.copy_(there),
    "assignment to a slice": lambda here, there: here.__setitem__((slice(0, 2), slice(0, 2)), there),
    "assignment to a slice of the CPU": lambda here, there: there.__setitem__((slice(0, 2), slice(0, 2)), here),
}


def _pair():
    return torch.eye(2).to(DEVICE), torch.eye(2)


@pytest.mark.parametrize("name", REFUSED)
def test_tensors_of_two_devices_do_not_meet(name):
    with pytest.raises(RuntimeError, match="found at least two devices"):
        REFUSED[name](*_pair())


@pytest.mark.parametrize("name", ALLOWED)
def test_what_cuda_lets_pass_passes(name):
    ALLOWED[name](*_pair())


@pytest.mark.parametrize("read", [torch.Tensor.numpy, lambda tensor: __import__("numpy").asarray(tensor)])
def test_numpy_does_not_read_it(read):
    here, there = _pair()
    with pytest.raises(TypeError, match="to numpy"):
        read(here)
    assert read(there).shape == (2, 2)
    assert read(here.cpu()).shape == (2, 2)


def test_what_is_made_of_it_is_there_too_and_what_is_brought_back_is_not():
    here, there = _pair()
    made = [here.T, here[0], here + 1, here.sum(), torch.zeros_like(here), here.new_zeros(3), here.clone()]
    made += [
        nn.utils.rnn.pad_sequence([here[0], here[0][:1]]),
        here.to(torch.float64),
        copy.deepcopy(here),
        here.detach(),
    ]
    made += [torch.ones(2, device=DEVICE), torch.zeros_like(there, device=DEVICE), there.to(here), *here.split(1)]
    assert [tensor.device for tensor in made] == [DEVICE] * len(made)
    back = [
        here.cpu(),
        here.to("cpu"),
        here.to(CPU, copy=True),
        here.new_zeros(2, device="cpu"),
        there.clone(),
        there + 0,
    ]
    assert [tensor.device for tensor in back] == [CPU] * len(back)
    assert here.cpu() is not here
    assert here.to(DEVICE) is here


def test_a_module_moves_with_its_ties_its_gradients_and_its_optimiser(rules):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    model.to(DEVICE)
    assert model[0].weight is model[1].weight
    assert copy.deepcopy(model)[1].weight.device == DEVICE
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = model[0].weight.detach().clone()
    rules.done.clear()
    told = model(torch.ones(2, 3).to(DEVICE)).cpu()
    (told * torch.ones(2, 3)).sum().backward()  # a loss on the CPU: its gradient finds the way back
    assert model[0].weight.grad.device == DEVICE
    optimizer.step()
    assert not torch.equal(before.cpu(), model[0].weight.detach().cpu())
    assert rules.done[KIND] > 0
    assert rules.done["cpu"] == 0


def test_a_file_written_there_is_not_read_without_a_word_where_to(tmp_path):
    here, there = _pair()
    torch.save({"weight": here}, tmp_path / "there.pt")
    with pytest.raises(RuntimeError, match="stand-in"):
        torch.load(tmp_path / "there.pt")
    torch.testing.assert_close(torch.load(tmp_path / "there.pt", map_location="cpu")["weight"], there)
