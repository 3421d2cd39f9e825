"""A fleet of made-up runs, and a server that shows it; fixtures for whoever imports them."""

import fcntl
import threading

import pytest

from geartrain.viewer.answers import Answers
from geartrain.viewer.server import Server
from tests.fakes import workspace
from tests.fakes.long_run import KEY, write_long_run


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    """Yield a folder with `runs/long` (at work: its lock is held), `runs/other` (failed) and `runs/done`."""
    root = tmp_path_factory.mktemp("fleet")
    (root / "runs").mkdir()
    write_long_run(root / "runs/long", iterations=12)
    write_long_run(root / "runs/other", iterations=6, tasks=2, seed=1, ended="failed", recipe="gigpo", rise=0.2)
    workspace.build(root / "runs/done")
    (root / "runs/done/params.yaml").write_text("seed: 7\npolicy: {recipe: gear_a_sgcd}\n")
    (root / "runs/empty").mkdir()
    (root / "secret.txt").write_text("not yours")
    lock = root / f"runs/long/.geartrain/work/policy-{KEY[:16]}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield root


@pytest.fixture(scope="session")
def server(fleet):
    """Return a server of the fleet, at work on a port of its own."""
    with Server(("127.0.0.1", 0), Answers(fleet), ["box.example"]) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield served
        served.shutdown()
        thread.join()
