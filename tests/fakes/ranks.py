"""Two processes that share optimiser steps over gloo on the loopback device: what a rank does, and who starts it.

Both are given all sequences, and deal them out.
"""

import multiprocessing
import os

import torch

from geartrain.ranks import Group
from tests.fakes.synthetic import step_gradient

SECONDS = 240
"""Far more than it takes: a busy machine is no fault."""


def gradients_of_two(folder, model, reference, jobs):
    """Return one gradient per job.

    Args:
        folder: an empty one, for what the processes tell each other.
        model: the same for both.
        reference: that too.
        jobs: (recipe, section, sequences).
    """
    torch.save((model, reference, jobs), folder / "jobs.pt")
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
    model, reference, jobs = torch.load(folder / "jobs.pt", weights_only=False)
    ranks = Group({"RANK": str(rank), "WORLD_SIZE": "2"}, f"file://{folder}/meeting")
    options = {"reference": reference, "ranks": ranks}
    gradients = [step_gradient(model, name, section, rows, **options)[0] for name, section, rows in jobs]
    if ranks.leads:
        torch.save(gradients, folder / "gradients.pt")
    ranks.gather(None)
    ranks.close()
