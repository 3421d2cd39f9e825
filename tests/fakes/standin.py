"""A device made of Python: the CPU's memory and kernels, under CUDA's rules about whose tensors may meet.

A tensor that was placed on it says so (`tensor.device`), and refuses what CUDA refuses: to meet a tensor of the CPU in
one operation, to be read by numpy. What CUDA lets pass, passes: scalars and indices of the CPU, and copies. So code
that forgets to move something fails here as it would on a GPU, and its numbers can be compared with the CPU's.

It is memory that is marked: views share it, and modules, optimisers and autograd treat it as any other. A function mode
answers for `device` and for what moves tensors; a dispatch mode watches every operation, those of backward passes too.
Modes are of one thread, as is the stand-in. Half precision is not imitated.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch._C import _storage_id
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

KIND = "privateuseone"
DEVICE = torch.device(KIND, 0)
CPU = torch.device("cpu")
aten = torch.ops.aten
_FREE = {aten.copy_.default, aten.copy.default, aten._to_copy.default, aten._foreach_copy_.default}
_FREE |= {aten.set_.source_Storage_storage_offset}
"""Operations over both sides."""
_INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
_HEAVY = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.embedding.default}
"""What the passes of models are made of."""
_FOR_NUMPY = {torch.Tensor.numpy, torch.Tensor.__array__}
_SWEEP = 20_000


class _Memory:
    """Which storages lie on the stand-in. A weak reference keeps an address from being given away again."""

    def __init__(self) -> None:
        self._known: dict[int, StorageWeakRef] = {}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return _storage_id(tensor) in self._known

    def place(self, tensor: torch.Tensor, placed: bool) -> None:
        if (tensor in self) is placed:
            return
        if not placed:
            del self._known[_storage_id(tensor)]
            return
        with torch._C.DisableTorchFunction():
            self._known[_storage_id(tensor)] = StorageWeakRef(tensor.untyped_storage())
        if len(self._known) % _SWEEP == 0:
            self._known = {key: reference for key, reference in self._known.items() if not reference.expired()}


def _tensors(tree: object) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, list | tuple):
        return []
    return [tensor for part in tree for tensor in _tensors(part)]


class _Moved(torch.autograd.Function):
    """A copy on the other side, whose gradient comes back."""

    @staticmethod
    def forward(ctx, tensor, memory, placed):
        ctx.memory, ctx.back = memory, tensor in memory
        copy = tensor.clone()
        memory.place(copy, placed)
        return copy

    @staticmethod
    def backward(ctx, gradient):
        copy = gradient.clone()
        ctx.memory.place(copy, ctx.back)
        return copy, None, None


class _Answers(TorchFunctionMode):
    """Says where tensors are, moves them, and makes those that are asked for on the stand-in."""

    def __init__(self, memory: _Memory) -> None:
        super().__init__()
        self._memory = memory

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func == torch.Tensor.device.__get__:  # made anew at each look
            return DEVICE if args[0] in self._memory else func(*args)
        if func == torch.Tensor.is_cpu.__get__:
            return args[0] not in self._memory
        if func in _FOR_NUMPY and args[0] in self._memory:
            raise TypeError(f"can't convert {KIND}:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if func is torch.Tensor.cpu:
            return self._move(args[0], CPU)
        if func is torch.Tensor.to:
            return self._to(*args, **kwargs)
        asked = kwargs.get("device")
        if asked is not None and torch.device(asked).type == KIND:
            del kwargs["device"]
        inputs = _tensors((args, kwargs))
        result = func(*args, **kwargs)
        if asked is not None:
            for made in _tensors(result):
                self._memory.place(made, torch.device(asked).type == KIND)
        elif any(tensor in self._memory for tensor in inputs):
            kept = {_storage_id(tensor) for tensor in inputs if tensor not in self._memory}
            for made in _tensors(result):
                if _storage_id(made) not in kept:
                    self._memory.place(made, True)
        return result

    def _to(self, tensor, *args, copy=False, **kwargs):
        if args and isinstance(args[0], torch.Tensor):
            other = args[0]
            args = (DEVICE if other in self._memory else CPU, other.dtype, *args[1:])
        device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
        found = self._move(tensor if dtype is None else tensor.to(dtype), device)
        return found.clone() if copy and found is tensor else found

    def _move(self, tensor, device):
        if device is None or (device.type == KIND) is (tensor in self._memory):
            return tensor
        return _Moved.apply(tensor, self._memory, device.type == KIND)


class _Rules(TorchDispatchMode):
    """Refuses operations over tensors of both sides; counts where the heavy ones are done."""

    def __init__(self, memory: _Memory) -> None:
        super().__init__()
        self._memory = memory
        self.done: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        inputs = _tensors((args, kwargs))
        here = [tensor for tensor in inputs if tensor in self._memory]
        if func in _HEAVY:
            self.done[KIND if here else "cpu"] += 1
        if not here or func in _FREE:
            return self._placed_as_source(func, args, func(*args, **kwargs))
        there = [tensor for tensor in inputs if tensor not in self._memory]
        self._check(func, args, there)
        result = func(*args, **kwargs)
        kept = {_storage_id(tensor) for tensor in there}
        for made in _tensors(result):
            if _storage_id(made) not in kept:
                self._memory.place(made, True)
        return result

    def _placed_as_source(self, func, args, result):
        """What converting makes lies where its source does; other copies are already somewhere."""
        if func is aten._to_copy.default or func is aten.copy.default:
            self._memory.place(result, args[0] in self._memory)
        return result

    def _check(self, func, args, there) -> None:
        if not there:
            return
        allowed = set(map(id, _tensors(args[1]))) if func in _INDEXED and args[0] in self._memory else set()
        changed = {
            id(value)
            for argument, value in zip(func._schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        }
        strangers = [t for t in there if id(t) not in allowed and (t.dim() > 0 or id(t) in changed)]
        if strangers:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in strangers)
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {KIND}:0 and cpu! "
                f"{func} was given {shapes} of the CPU."
            )


def _module() -> SimpleNamespace:
    """What torch asks of a device's own module."""
    generator = torch.Generator()
    return SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        _is_in_bad_fork=lambda: False,
        manual_seed_all=lambda seed: None,
        get_amp_supported_dtype=lambda: [torch.bfloat16],
        get_rng_state=lambda device: generator.get_state(),
        set_rng_state=lambda state, device: generator.set_state(state),
        generator=generator,
    )


MODULE = _module()
"""One for all: torch.get_device_module remembers what it found."""


@contextmanager
def standin() -> Iterator[_Rules]:
    """Have the stand-in for a while, on this thread; yields what has counted its operations."""
    memory = _Memory()
    rules = _Rules(memory)

    def where(storage: torch.UntypedStorage) -> str | None:  # what `torch.save` writes down
        return f"{KIND}:0" if storage._cdata in memory._known else None

    def back(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage | None:
        if not location.startswith(KIND):
            return None
        raise RuntimeError("a file with tensors of the stand-in: who has none cannot read it without map_location")

    torch.serialization.register_package(5, where, back)
    setattr(torch, KIND, MODULE)
    try:
        with _Answers(memory), rules:
            yield rules
    finally:
        delattr(torch, KIND)
        torch.serialization._package_registry[:] = [
            row for row in torch.serialization._package_registry if row[1] is not where
        ]
