"""The workers of one node: torchrun is started, told of SIGTERM, and what its workers died of is found out."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from geartrain import logs
from geartrain.cluster.patience import Clock
from geartrain.cluster.worker import NOTES, Note, read_notes
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_USER, UserError
from geartrain.preemption import PreemptedError

GRACE_SECONDS = 90
"""From SIGTERM until torchrun kills workers that have found no safe point; a pod has 120 s in all."""
KILL_SECONDS = 15.0
"""What torchrun itself is given beyond that."""
OTHERS_SECONDS = 10.0
"""How long notes of other nodes are waited for: one that met a user error breaks the connections of all."""
_LOOK_SECONDS = 0.25
_MOST_WORDS = 3


@dataclass(frozen=True)
class Nodes:
    """This node and the others, as Trainer's torch policy says it to every pod."""

    rank: int = 0
    """Of this node."""
    nodes: int = 1
    processes: int = 1
    """Ranks on each node."""
    meeting: str = "alone"
    """Where they meet; names the job, and is another one for each attempt."""

    @property
    def ranks(self) -> range:
        """The ranks of this node."""
        return range(self.rank * self.processes, (self.rank + 1) * self.processes)


@dataclass(frozen=True)
class Ended:
    """How the workers ended."""

    exit_code: int
    """0; 2: a person has to mend something; 75: anything else."""
    reason: str = ""


def read_nodes(environment: Mapping[str, str]) -> Nodes:
    """Read what Trainer sets: PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT.

    Raises:
        UserError: a variable is missing or no number.
    """
    names = ("PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE")
    try:
        rank, nodes, processes = (int(environment.get(name, usual)) for name, usual in zip(names, "011", strict=True))
    except ValueError as error:
        raise UserError(f"{', '.join(names)}: expected numbers, as Trainer sets them ({error})") from error
    if not 0 <= rank < nodes or processes < 1:
        raise UserError(f"PET_NODE_RANK={rank}: with PET_NNODES={nodes}, nodes count from 0 to {nodes - 1}")
    if nodes > 1 and "PET_MASTER_ADDR" not in environment:
        raise UserError("PET_MASTER_ADDR is not set: several nodes need to know where to meet")
    meeting = f"{environment.get('PET_MASTER_ADDR', 'alone')}-{environment.get('PET_MASTER_PORT', '')}"
    return Nodes(rank, nodes, processes, meeting)


def torchrun(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs `geartrain` with these arguments on every rank; PET_… say how many there are."""
    run = [sys.executable, "-m", "geartrain.cluster.tied", "torch.distributed.run"]
    return [*run, "--shutdown-timeout", str(GRACE_SECONDS), "-m", "geartrain.cluster.worker", *arguments]


def run_workers(
    command: Sequence[str], environment: Mapping[str, str], notes: Path, nodes: Nodes, clock: Clock
) -> Ended:
    """Run a command to its end, and say how it ended; SIGTERM, of which the clock knows, is passed on.

    Args:
        command: starts the workers; see `torchrun`.
        environment: theirs.
        notes: folder of the workers' notes; best one that all nodes share.
        nodes: this one and the others.
        clock: `patience.until_terminated()` outside of tests.
    """
    notes.mkdir(parents=True, exist_ok=True)
    for rank in nodes.ranks:
        (notes / f"{rank}.json").unlink(missing_ok=True)
    variables = {**environment, NOTES: str(notes)}
    piped = subprocess.PIPE if logs.says_json() else None  # what torchrun says is no JSON
    with (
        subprocess.Popen(command, env=variables, start_new_session=True, stderr=piped) as process,  # noqa: S603
        logs.relaying(process.stderr),
    ):
        try:
            code = _wait(process, clock)
        except BaseException:  # leaving the block would wait for its end
            _kill(process)
            raise
    return Ended(0) if code == 0 else _why(notes, nodes, clock)


def _wait(process: "subprocess.Popen[bytes]", clock: Clock) -> int:
    told: float | None = None
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_SECONDS)
        if told is None and clock.stopping():
            told = clock.monotonic()
            process.send_signal(signal.SIGTERM)
        if told is not None and clock.monotonic() - told > GRACE_SECONDS + KILL_SECONDS:
            _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _why(folder: Path, nodes: Nodes, clock: Clock) -> Ended:
    """Return the first user error of this node, or of another whose end broke the connections of this one."""
    until = clock.monotonic() + (OTHERS_SECONDS if nodes.nodes > 1 else 0.0)
    while True:
        notes = read_notes(folder)
        mistaken = [rank for rank, note in notes.items() if note.code == EXIT_USER]
        if mistaken:
            rank = min(mistaken, key=lambda rank: (rank not in nodes.ranks, rank))
            return Ended(EXIT_USER, f"rank {rank}: {notes[rank].reason}")
        if clock.stopping() or clock.monotonic() >= until:
            return Ended(EXIT_INFRASTRUCTURE, _words(notes, nodes, told=clock.stopping()))
        clock.sleep(_LOOK_SECONDS)


def _words(notes: Mapping[int, Note], nodes: Nodes, *, told: bool) -> str:
    """Return how the ranks of this node ended: first who knows most of the cause."""
    lines: dict[int, list[str]] = {1: [], 2: [], 3: []}
    for rank in nodes.ranks:
        note = notes.get(rank)
        if note is None:
            lines[2].append(f"rank {rank} ended without a word (killed, or out of memory?)")
        elif note.kind == PreemptedError.__name__ and not told:
            continue  # torchrun ends the others when one fails
        else:
            knows = note.code == EXIT_INFRASTRUCTURE
            lines[1 if knows else 3].append(f"rank {rank} ended with {note.code}: {note.kind}: {note.reason}")
    words = [*lines[1], *lines[2], *lines[3]] or ["torchrun failed"]
    more = [f"{len(words) - _MOST_WORDS} more"] if len(words) > _MOST_WORDS else []
    return "; ".join([*words[:_MOST_WORDS], *more])
