"""Real servers for a test: PostgreSQL and Redis of Debian's packages, on loopback, in a folder that goes away."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = "nobody"
"""Who runs PostgreSQL where the tests are root, as which it refuses to run."""


def find_program(name: str, package: str) -> str:
    """Return the path of a program of a Debian package; without it the test is skipped, which in CI fails it."""
    folders = [os.environ["PATH"], *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        pytest.skip(f"no {name}: apt-get install {package}")
    return found


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def postgres() -> Iterator[str]:
    """Run PostgreSQL; yield the address of a database, as SQLAlchemy and psycopg write it."""
    initdb, pg_ctl = (find_program(name, "postgresql") for name in ("initdb", "pg_ctl"))
    user = NOBODY if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # pytest's own folders are closed to other users
    if user is not None:
        shutil.chown(folder, user)
    port, data = free_port(), str(folder / "data")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"

    def run(*command: str) -> None:
        log = folder / "out"
        with log.open("w") as out:  # not a pipe: the server would inherit it, and its end never come
            done = subprocess.run(command, user=user, cwd=folder, stdout=out, stderr=out, check=False)
        assert done.returncode == 0, log.read_text()

    try:
        run(initdb, "-D", data, "-A", "trust", "-U", "geartrain", "--no-sync")
        run(pg_ctl, "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql+psycopg://geartrain@127.0.0.1:{port}/postgres"
        finally:
            run(pg_ctl, "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Run Redis; yield its address."""
    port = free_port()
    command = [find_program("redis-server", "redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert any("Ready to accept connections" in line for line in server.stdout), "redis-server did not start"
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.communicate()
