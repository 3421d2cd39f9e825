"""What a rank takes of its machine, for whoever watches; no part of the history, which is the same on any machine."""

import os
import resource
from typing import Any

import torch

from geartrain.ranks import Ranks


def rank_numbers(ranks: Ranks, *, trained_tokens: int) -> dict[str, Any]:
    """Return memory and CPU seconds of this process, memory of its GPU in bytes if it uses one, and where it runs."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    numbers = {
        "rank": ranks.rank,
        "node": os.uname().nodename,
        "memory_bytes": _resident_bytes(),
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "trained_tokens": trained_tokens,
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        numbers |= {
            "gpu_allocated_bytes": torch.cuda.memory_allocated(),
            "gpu_reserved_bytes": torch.cuda.memory_reserved(),
            "gpu_peak_bytes": torch.cuda.max_memory_allocated(),
        }
    return numbers


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError):  # not Linux
        return None
