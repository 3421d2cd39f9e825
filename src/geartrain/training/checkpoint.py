"""Checkpoints of a run in progress: written whole or not at all, verified before the old one goes.

A checkpoint is one file whose name carries its step and the first half of its
sha256, so that a torn or altered file is seen and the one before it is used.
"""

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geartrain.artifacts import file_sha256
from geartrain.errors import InfrastructureError
from geartrain.placement import CPU, on_cpu

State = dict[str, Any]
_DIGITS = 32


def save_checkpoint(folder: Path, state: Mapping[str, Any], *, step: int) -> Path:
    """Write `state` as the checkpoint of `step`; drop the older ones once this one verifies.

    Args:
        folder: where checkpoints lie; made if missing.
        state: nested dicts and lists of tensors, numbers, strings, booleans and
            None (what `torch.load(weights_only=True)` accepts). Tensors are written as of the CPU.
        step: number that orders the checkpoints.

    Raises:
        InfrastructureError: the disk is full, refuses, or returns other bytes than were written.
    """
    temporary = folder / f".{step:09d}.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            torch.save(on_cpu(state), file)
            file.flush()
            os.fsync(file.fileno())
        path = folder / f"{step:09d}-{file_sha256(temporary)[:_DIGITS]}.pt"
        temporary.replace(path)
    except OSError as error:
        raise InfrastructureError(
            f"{folder}: could not write a checkpoint ({error}). Free space, run again."
        ) from error
    if not _intact(path):
        raise InfrastructureError(f"{path}: reads back other bytes than were written. Check the disk, run again.")
    for old in folder.iterdir():
        if old != path and old.suffix in {".pt", ".tmp"}:
            old.unlink()
    return path


def load_checkpoint(folder: Path) -> State | None:
    """Return the newest intact checkpoint's state (tensors on the CPU), or None if there is none."""
    for path in sorted(folder.glob("*.pt"), reverse=True) if folder.is_dir() else []:
        if _intact(path):
            state: State = torch.load(path, map_location="cpu", weights_only=True)
            return state
    return None


def rng_state(device: torch.device = CPU) -> State:
    """Return the state of the global generators of torch, numpy and Python, and of `device`."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, internal, gauss = random.getstate()
    state: State = {
        "torch": torch.get_rng_state(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
    }
    if device.type != CPU.type:
        state["device"] = {device.type: torch.get_device_module(device).get_rng_state(device)}
    return state


def restore_rng_state(state: Mapping[str, Any], device: torch.device = CPU) -> None:
    """Put the global generators back to what `rng_state` returned; that of `device` if the state is of its kind."""
    torch.set_rng_state(state["torch"])
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    own = state.get("device", {}).get(device.type)
    if own is not None:
        torch.get_device_module(device).set_rng_state(own, device)


def _intact(path: Path) -> bool:
    try:
        return file_sha256(path)[:_DIGITS] == path.stem.rpartition("-")[2]
    except OSError:
        return False
