"""One made-up fleet and one browser for all tests; `make test-pages`."""

import pytest

from tests.fakes.chromium import browser
from tests.fakes.fleet import fleet, server

__all__ = ["fleet", "server"]


@pytest.fixture(scope="session")
def window():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def site(server):
    return f"http://127.0.0.1:{server.server_port}/"
