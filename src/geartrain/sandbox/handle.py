"""A zygote as its supervisor has it: started, told to fork, told to end the fork, ended."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import geartrain
from geartrain.errors import UserError
from geartrain.sandbox import zygote
from geartrain.sandbox.exchange import Exchange, OverError
from geartrain.sandbox.outcome import Limits
from geartrain.sandbox.strays import kill_children

_START_SECONDS, _ANSWER_SECONDS = 120.0, 30.0
_MOST_BYTES = 1 << 20
_MOST_WORDS = 2000
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),  # a run has no threads
}
_BOOT = "import sys; sys.path.append(sys.argv[1]); from geartrain.sandbox.zygote import main; main(int(sys.argv[2]))"


@dataclass(frozen=True)
class Ended:
    """How a fork ended."""

    status: int
    """As `os.wait` has it."""
    cpu_seconds: float


class Zygote:
    """One zygote, and its scratch folder; both are gone when this is collected, or this process ends."""

    def __init__(self, imports: Sequence[str]) -> None:
        """Start it, and wait until it can fork.

        Raises:
            UserError: it cannot; the message says why.
        """
        self.owner = os.getpid()
        self.lost = False
        """Whether it is of no more use."""
        self._prepared: list[Exchange] = []  # one at most
        paths = sorted({_home(name) for name in imports})
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="geartrain-sandbox-"))
        except OSError as error:
            raise UserError(
                f"no sandbox: no folder for its files ({error}). Let TMPDIR name one to write to."
            ) from error
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-s", "-P", "-S", "-c", _BOOT, str(Path(geartrain.__file__).parents[1])]
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603
                    [*command, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=_ENVIRONMENT,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._control.close()
            raise UserError(f"no sandbox: {sys.executable} does not start: {error}") from error
        self.close = weakref.finalize(self, _end, self._control, self._process, self.folder, self._prepared, self.owner)
        self._control.settimeout(_START_SECONDS)
        self.abi = self._begin({"folder": str(self.folder), "paths": paths, "extra": list(imports)})
        self._control.settimeout(_ANSWER_SECONDS)

    @property
    def process(self) -> int:
        """Its process."""
        return self._process.pid

    def fork(self, limits: Limits) -> Exchange:
        """Return the ends of the channel and of the output of a new process that has said that it is confined.

        Raises:
            OSError: the zygote is gone.
            OverError: the process could not be confined.
        """
        if self._prepared:
            prepared = self._prepared.pop()
            with suppress(OverError):  # it was killed while it waited: the next was not
                if prepared.limits == limits:
                    prepared.wait_ready()
                    if not prepared.gone():
                        return prepared
            prepared.close()
            self.end()
        exchange = self._fork(limits)
        try:
            exchange.wait_ready()
        except OverError:
            exchange.close()
            self.end()
            raise
        return exchange

    def prepare(self, limits: Limits) -> None:
        """Have it fork while nobody waits: the next run most often has the limits of the last."""
        with suppress(OSError):  # the next run will say so
            self._prepared.append(self._fork(limits))

    def end(self) -> Ended:
        """Have the fork killed, with all that it started; empty the folder.

        Raises:
            OSError: the zygote is gone, or does not answer.
        """
        self._control.send(b"end")
        told = self._control.recv(_MOST_BYTES)
        if not told:
            raise ConnectionResetError("the sandbox's process is gone")
        status, cpu_seconds, strays = zygote.ENDED.unpack(told)
        if strays:
            kill_children(self.process)
            self.lost = True
        for name in os.listdir(self.folder):
            (self.folder / name).unlink()
        return Ended(status, cpu_seconds)

    def _fork(self, limits: Limits) -> Exchange:
        ours, theirs = socket.socketpair()
        output, writing = os.pipe()
        asked = zygote.LIMITS.pack(limits.memory_bytes, limits.cpu_seconds, limits.disk_bytes)
        try:
            socket.send_fds(self._control, [asked], [theirs.fileno(), writing])
        except OSError:
            ours.close()
            os.close(output)
            raise
        finally:
            theirs.close()
            os.close(writing)
        return Exchange(ours, output, self.folder, limits)

    def _begin(self, start: dict[str, object]) -> int:
        try:
            self._control.send(json.dumps(start).encode())
            told = json.loads(self._control.recv(_MOST_BYTES) or "{}")
        except (OSError, ValueError) as error:
            told = {"problem": f"its process does not answer: {error}"}
        if "abi" in told:
            return int(told["abi"])
        self._process.kill()
        assert self._process.stderr is not None
        said = self._process.stderr.read().decode(errors="replace").strip()[-_MOST_WORDS:]
        self.close()
        raise UserError(f"no sandbox on this machine: {told.get('problem') or said or 'its process ended at once'}")


def _home(name: str) -> str:
    """Return the folder that a module is imported from."""
    top = name.partition(".")[0]
    found = find_spec(top)
    if found is None:
        raise UserError(f"no sandbox with {name}: it is not installed")
    places = list(found.submodule_search_locations or [])
    return str(Path(places[0] if places else found.origin or "").parent)


def _end(
    control: socket.socket,
    process: "subprocess.Popen[bytes]",
    folder: Path,
    prepared: list[Exchange],
    owner: int,
) -> None:
    """End a zygote, which takes its fork with it; in a fork of its owner, only let go of it."""
    control.close()
    while prepared:
        prepared.pop().close()
    if os.getpid() != owner:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its fork, in a session of its own, dies with it
    process.wait()
    if process.stderr is not None:
        process.stderr.close()
    shutil.rmtree(folder, ignore_errors=True)
