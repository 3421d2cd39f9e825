"""One made-up fleet for all tests of this folder, and a way to ask its server."""

import json
from http.client import HTTPConnection

import pytest

from tests.fakes.fleet import fleet, server

__all__ = ["fleet", "server"]


@pytest.fixture(scope="session")
def get(server):
    """Return a function (path, headers) -> (status, headers, body), which decodes JSON."""

    def fetch(path, method="GET", **headers):
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        kind = response.headers.get("Content-Type", "")
        return response.status, response.headers, json.loads(body) if body and "json" in kind else body.decode()

    return fetch
