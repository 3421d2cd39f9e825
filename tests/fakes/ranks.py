"""Two processes that share optimiser steps over gloo on the loopback device: what a rank does, and who starts it.

Each has a share of the sequences; the counts and the gradients are summed over both. Nothing else is exchanged.
"""

import multiprocessing
import os
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.fakes.synthetic import step_gradient

SECONDS = 240
"""Far more than it takes: a busy machine is no fault."""


def gradients_of_two(folder, model, jobs):
    """Return one gradient per job.

    Args:
        folder: an empty one, for what the processes tell each other.
        model: the same for both.
        jobs: (recipe, section, sequences of rank 0, sequences of rank 1).
    """
    torch.save((model, jobs), folder / "jobs.pt")
    context = multiprocessing.get_context("spawn")  # forking a process that runs threads deadlocks
    ranks = [context.Process(target=_work, args=(folder, rank)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(SECONDS)
    assert [process.exitcode for process in ranks] == [0, 0], "a rank failed, or waits for the other"
    return torch.load(folder / "gradients.pt")


def _work(folder, rank):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    model, jobs = torch.load(folder / "jobs.pt", weights_only=False)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=SECONDS / 2),
    )
    gradients = []
    for name, section, *shares in jobs:
        gradient, _ = step_gradient(model, name, section, shares[rank], total=_total, add_up=dist.all_reduce)
        gradients.append(gradient)
    if rank == 0:
        torch.save(gradients, folder / "gradients.pt")
    dist.barrier()
    dist.destroy_process_group()


def _total(tokens, rows):
    counts = torch.tensor([tokens, rows])
    dist.all_reduce(counts)
    return tuple(counts.tolist())
