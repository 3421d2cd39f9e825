"""One sandbox for all tests of a process, and what around it must stay as it is."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from geartrain.sandbox.confinement import NOBODY
from geartrain.sandbox.supervisor import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Generator[Sandbox]:
    with Sandbox() as made:
        yield made


@dataclass(frozen=True)
class World:
    """What everybody on this machine may read, write, call or signal, but for the sandbox."""

    folder: Path
    file: Path
    victim: "subprocess.Popen[bytes]"
    """A process of the very user that the sandbox is."""
    listening: dict[str, socket.socket]
    abstract: str

    def given(self) -> dict[str, Any]:
        """What code is told of it: more than it could find out."""
        return {
            "folder": str(self.folder),
            "file": str(self.file),
            "victim": self.victim.pid,
            "port": self.listening["tcp"].getsockname()[1],
            "unix": str(self.folder / "socket"),
            "abstract": self.abstract,
            "parent": os.getpid(),
        }

    def state(self) -> dict[str, Any]:
        """What must be the same after."""
        seen = self.file.stat()
        return {
            "file": (self.file.read_text(), seen.st_mode, seen.st_uid, seen.st_mtime_ns, os.listxattr(self.file)),
            "folder": sorted(path.name for path in self.folder.iterdir()),
            "victim": (self.victim.poll(), os.getpriority(os.PRIO_PROCESS, self.victim.pid)),
            "called": [name for name, listener in self.listening.items() if _called(listener)],
        }


def _called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="session")
def world() -> Generator[World]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    file = folder / "file"
    file.write_text("as it was")
    file.chmod(0o666)
    abstract = f"geartrain-{os.getpid()}"
    user = {"user": NOBODY} if os.geteuid() == 0 else {}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        victim = stack.enter_context(subprocess.Popen(["sleep", "1000"], env={"SECRET": "s3cret"}, **user))
        stack.callback(victim.kill)
        addresses = {
            "tcp": (socket.AF_INET, ("127.0.0.1", 0)),
            "unix": (socket.AF_UNIX, str(folder / "socket")),
            "abstract": (socket.AF_UNIX, f"\0{abstract}"),
        }
        listening = {}
        for name, (family, address) in addresses.items():
            listening[name] = stack.enter_context(socket.socket(family))
            listening[name].bind(address)
            listening[name].listen()
            listening[name].setblocking(False)
        (folder / "socket").chmod(0o777)
        yield World(folder, file, victim, listening, abstract)
