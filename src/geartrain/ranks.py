"""The processes that train one policy together: who this one is, and what they tell each other.

All run the same loop on the same data. Dear work (playing, scoring, passes of
frozen models, the gradient) is dealt out; its results are told to all, in the
order that one process alone would have had. So every rank takes the same
decisions, and what a run becomes does not depend on their number, up to the
last bits of sums over batches of another shape.

torchrun starts them and sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
MASTER_PORT. Without these there is one process, and nothing here imports torch.
"""

import atexit
import os
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any, NoReturn, TypeVar

from geartrain.errors import UserError

T = TypeVar("T")
PATIENCE = timedelta(minutes=30)
"""How long a rank waits for the others; playing takes minutes, and ends at different times."""


class Ranks:
    """One process alone; also what several are asked for."""

    rank = 0
    size = 1
    local_rank = 0
    """Place among the ranks of this node; also the number of its GPU."""

    @property
    def leads(self) -> bool:
        """Whether this is the rank that writes what is written once."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, in the order of ranks, on every rank; values are pickled."""
        return [value]

    def first(self, value: T) -> T:
        """Return rank 0's value on every rank."""
        return value

    def add(self, tensor: Any) -> None:
        """Replace a tensor by its sum over ranks."""

    def apart(self, costs: Sequence[float], work: Callable[[list[int]], Sequence[T]]) -> list[T]:
        """Do a share of indexed work on each rank; return all results, in order, on every rank.

        Args:
            costs: of each piece, any unit; shares are balanced by it.
            work: given indices in ascending order (maybe none), returns one result for each.
        """
        shares = deal(costs, self.size)
        return in_place(shares, self.gather(work(shares[self.rank])))

    def close(self) -> None:
        """Leave the group."""


ALONE = Ranks()


class Group(Ranks):
    """Several processes, met through torch.distributed: NCCL where each has a GPU, else gloo."""

    joined = False
    """Whether this process has ever been in a group."""

    def __init__(self, environment: Mapping[str, str], meeting: str = "env://") -> None:
        """Meet the others at `meeting`, an init method of torch.distributed; waits until all are there."""
        import torch
        import torch.distributed as dist

        from geartrain.placement import collectives, own_device

        self._dist = dist
        self.rank, self.size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        self.local_rank = int(environment.get("LOCAL_RANK", "0"))
        device = own_device(environment)
        if device.type == "cuda":
            torch.cuda.set_device(device)  # NCCL's
        dist.init_process_group(collectives(device), meeting, timeout=PATIENCE, rank=self.rank, world_size=self.size)
        Group.joined = True

    def gather(self, value: T) -> list[T]:
        """See `Ranks`."""
        found: list[Any] = [None] * self.size
        self._dist.all_gather_object(found, value)
        return found

    def first(self, value: T) -> T:
        """See `Ranks`."""
        box = [value]
        self._dist.broadcast_object_list(box, src=0)
        return box[0]

    def add(self, tensor: Any) -> None:
        """See `Ranks`."""
        self._dist.all_reduce(tensor)

    def close(self) -> None:
        """See `Ranks`."""
        self._dist.destroy_process_group()


def leave(code: int) -> NoReturn:
    """End the process with an exit code; one that was in a group ends at once, without taking its interpreter down.

    A thread of gloo drops the tensors of the last exchange when it is next scheduled. In an interpreter that is being
    taken down it cannot, and the process dies of SIGABRT (134) with all its work done. DeepSpeed holds groups that
    `close` does not reach, and their threads with them.
    """
    if not Group.joined:
        raise SystemExit(code)
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)


def join_ranks(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Return the group that torchrun's environment names, or `ALONE`.

    Raises:
        UserError: a part of the environment is missing or impossible.
    """
    if "WORLD_SIZE" not in environment:
        return ALONE
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in environment]
    if missing:
        raise UserError(f"WORLD_SIZE is set and {', '.join(missing)} is not: start the processes with torchrun.")
    if not 0 <= int(environment["RANK"]) < int(environment["WORLD_SIZE"]):
        raise UserError(f"rank {environment['RANK']} of {environment['WORLD_SIZE']}: ranks count from 0.")
    return Group(environment) if int(environment["WORLD_SIZE"]) > 1 else ALONE


def in_place(shares: Sequence[Sequence[int]], results: Sequence[Sequence[T]]) -> list[T]:
    """Put the results of dealt indices back in order; one result per index."""
    found = dict(zip(chain.from_iterable(shares), chain.from_iterable(results), strict=True))
    return [found[index] for index in range(len(found))]


def deal_whole(groups: Sequence[Hashable], costs: Sequence[float], hands: int) -> list[list[int]]:
    """Share out indices as `deal` does, all that have one group to one hand."""
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    together = list(members.values())
    shares = deal([sum(costs[index] for index in group) for group in together], hands)
    return [sorted(index for group in share for index in together[group]) for share in shares]


def deal(costs: Sequence[float], hands: int) -> list[list[int]]:
    """Share out indices so that all hands have about the same cost; each share ascends and may be empty.

    The dearest first, each to who has least: within 4/3 of the best (Graham, 1969). Equal costs go in order, so every
    rank deals alike.
    """
    shares: list[list[int]] = [[] for _ in range(hands)]
    load = [0.0] * hands
    for index in sorted(range(len(costs)), key=lambda index: (-costs[index], index)):
        hand = load.index(min(load))
        shares[hand].append(index)
        load[hand] += costs[index]
    return [sorted(share) for share in shares]
