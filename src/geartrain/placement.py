"""Where the models of this process lie: on its own GPU, or with the CPU.

Loaders are told a device and put there what they load. A pass sends its inputs after its model, and what it returns
for records, files, other ranks or another pass comes back to the CPU. So credit, checkpoints and what ranks tell each
other know no device, and a run that began on a GPU can go on without one.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from geartrain.errors import UserError

CPU = torch.device("cpu")
VARIABLE = "GEARTRAIN_DEVICE"
"""Environment variable: "cpu", or "cuda" to fail where there is no GPU; unset takes a GPU where there is one."""


def own_device(environment: Mapping[str, str] = os.environ) -> torch.device:
    """Return the device of this process: of its node's GPUs the one of its LOCAL_RANK, or the CPU.

    Raises:
        UserError: a GPU is asked for and not there, or fewer than processes.
    """
    kind = environment.get(VARIABLE) or ("cuda" if torch.cuda.is_available() else CPU.type)
    if kind == CPU.type:
        return CPU
    try:
        module = torch.get_device_module(torch.device(kind, 0))
    except RuntimeError as error:
        raise UserError(f"{VARIABLE}: {kind!r} is no kind of device; take cpu or cuda.") from error
    place, found = int(environment.get("LOCAL_RANK", "0")), module.device_count() if module.is_available() else 0
    if place >= found:
        raise UserError(
            f"process {place} of this node wants a GPU of its own, and torch finds {found} of kind {kind}. Start as "
            f"many processes as there are GPUs, in an image with CUDA; or set {VARIABLE}=cpu."
        )
    return torch.device(kind, place)


def device_of(model: torch.nn.Module) -> torch.device:
    """Return where a model's weights lie."""
    return next(model.parameters()).device


def on_cpu(state: Any) -> Any:
    """Return nested dicts, lists and tuples with their tensors on the CPU; a tensor that is there is not copied."""
    if isinstance(state, torch.Tensor):
        return state.cpu()
    if isinstance(state, Mapping):
        return {name: on_cpu(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(on_cpu(value) for value in state)
    return state


def hands(threads: int, device: torch.device) -> int:
    """Return how many processes share out the play of one model: the threads of a CPU; a GPU is fed by one."""
    return threads if device.type == CPU.type else 1


def collectives(device: torch.device) -> str:
    """Return the backend of torch.distributed: gloo, and for tensors on a GPU NCCL."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def half_precision(device: torch.device, *, enabled: bool) -> AbstractContextManager[Any]:
    """Return what runs the passes of models on `device` in bfloat16, where that is enabled."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the CPU's generator for a while: a model that is built within is the same wherever it lies afterwards."""
    with torch.random.fork_rng(devices=[]):  # by default of every GPU of the machine
        torch.default_generator.manual_seed(seed)
        yield
