"""The process that forks one sandbox after the other: a fresh interpreter, warmed, that never runs strange code itself.

`main` is started by `supervisor` with an empty environment and one descriptor, over which it is told what to do:
first {"folder", "extra", "paths"}, then for each run its LIMITS, with two descriptors, and "end". It answers each
"end" with how the fork ENDED. It ends when the descriptor is closed, and takes the fork and the folder with it.
"""

import ctypes
import gc
import json
import os
import random
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from geartrain.sandbox import confinement, imports, program

LIMITS = struct.Struct("=3Q")
"""Of a run: bytes of memory, seconds of CPU, bytes of a file."""
ENDED = struct.Struct("=id?")
"""Its status as `os.wait` has it, its CPU seconds, whether it left processes that still live. No JSON, since every page
that this process touches after a fork is copied."""
_CHANNEL = 3
_MOST_BYTES = 1 << 20


def main(descriptor: int) -> None:
    """Serve the supervisor at the other end of a descriptor until it is gone."""
    control = socket.socket(fileno=descriptor)
    start = json.loads(control.recv(_MOST_BYTES))
    folder = Path(start["folder"])
    try:
        rules = _prepare(folder, start["paths"], start["extra"])
    except (confinement.UnconfinedError, ImportError, OSError) as error:
        control.send(json.dumps({"problem": str(error)}).encode())
        return
    try:
        control.send(json.dumps({"abi": rules.abi}).encode())
        _serve(control, rules)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # most often the supervisor has; but it may have been killed


def _prepare(folder: Path, paths: list[str], extra: list[str]) -> confinement.Confinement:
    sys.path += paths  # after the standard library, which nothing may hide
    imports.warm(extra)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    random.seed(0)  # so every run begins alike
    os.chdir(folder)
    os.umask(0o077)
    os.environ.clear()
    os.environ.update(HOME=str(folder), TMPDIR=str(folder))
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    with suppress(OSError):  # before the trainer, whose memory may be larger
        Path("/proc/self/oom_score_adj").write_text("1000")
    confinement.limit_open_files()
    confinement.become_nobody(folder)
    confinement.adopt_orphans()
    rules = confinement.Confinement(Path())  # by its path it may be out of reach now
    gc.collect()
    gc.freeze()  # a fork's collection would touch, and so copy, all that is here
    return rules


def _serve(control: socket.socket, rules: confinement.Confinement) -> None:
    own = confinement.address_space()
    fork = _fork()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _MOST_BYTES, 2)
        if not message:
            return
        limits = LIMITS.unpack(message)
        child = fork()
        if child == 0:
            _become(rules, own, limits, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        told = control.recv(_MOST_BYTES)  # waits while the fork works
        ended = end(child)
        if not told:
            return
        control.send(ended)


def _fork() -> Callable[[], int]:
    """Return what forks.

    Python's own puts locks and threads in order after, and seeds `random` anew: needless where there is one thread, and
    by the pages that it writes more than half of what a fork costs.
    """
    alone = len(os.listdir("/proc/self/task")) == 1
    return ctypes.PyDLL(None).fork if alone else os.fork


def _become(rules: confinement.Confinement, own: int, limits: tuple[int, ...], descriptors: list[int]) -> None:
    """Turn this fork into a sandbox, and serve; it never returns."""
    try:
        os.setsid()
        channel, output = descriptors
        spare = os.dup(channel)
        for number in (1, 2):
            os.dup2(output, number)
        try:
            memory_bytes, cpu_seconds, file_bytes = limits
            rules.take_on(memory_bytes=own + memory_bytes, cpu_seconds=cpu_seconds, file_bytes=file_bytes)
        except (OSError, ValueError) as error:
            program.Channel(spare).send(str(error))
            return
        os.dup2(spare, _CHANNEL)
        os.closerange(_CHANNEL + 1, confinement.OPEN_FILES)
        gateway = program.Channel(_CHANNEL)
        gateway.send('{"ready": true}')
        program.serve(gateway)
    finally:
        os._exit(1)


def end(child: int) -> bytes:
    """Kill a child and all that it started; return, as ENDED, how it ended, its CPU seconds, and whether `strays`."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):  # it may have had no time to make its own group
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return ENDED.pack(status, used.ru_utime + used.ru_stime, strays())


def strays() -> bool:
    """Return whether this process has children left that live; those that are dead are let go."""
    while True:
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is None:
                return True
        except ChildProcessError:
            return False
