"""One uninterrupted run that the others are compared with."""

import sys

import pytest

from tests.e2e.checkout import Checkout, make_checkout


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the whole smoke run went through without interruption, by the direct engine."""
    checkout = make_checkout(tmp_path_factory.mktemp("finished"))
    done = checkout.run(sys.executable, "-m", "geartrain", "run")
    assert done.returncode == 0, done.stderr
    return checkout
