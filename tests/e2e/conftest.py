"""One uninterrupted run that the others are compared with."""

import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tests.e2e.checkout import Checkout, make_checkout


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Checkout:
    """A checkout in which the whole smoke run went through without interruption, by the direct engine.

    All workers of one test session share it: leave it as it is.
    """
    if worker_id == "master":
        return _finish(tmp_path_factory.mktemp("finished"))
    root = tmp_path_factory.getbasetemp().parent / "finished"
    done = root.with_suffix(".done")
    with FileLock(root.with_suffix(".lock")):
        if not done.exists():
            root.mkdir()
            _finish(root)
            done.touch()
    return Checkout(root)


def _finish(root: Path) -> Checkout:
    checkout = make_checkout(root)
    done = checkout.run(sys.executable, "-m", "geartrain", "run")
    assert done.returncode == 0, done.stderr
    return checkout
