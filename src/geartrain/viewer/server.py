"""The run page's server: answers as JSON, the page's own files, nothing else. It reads, and changes no workspace.

What keeps others out: it listens on this machine alone unless told otherwise;
a request must name it by address, as localhost, or by a name that was allowed,
so that a foreign page whose name was pointed here (DNS rebinding) gets nothing;
the page may load and ask nothing but this server, and run no script but its own
files.
"""

import ipaddress
import json
import logging
import math
import sys
from collections.abc import Collection, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from geartrain.errors import UserError
from geartrain.logs import LOGGER
from geartrain.viewer.answers import Answers, QuestionError, page_file

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
INDEX = "index.html"
MOST_FIELDS = 20
"""Of a query."""
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
QUIET_SECONDS = 60.0
"""How long a connection may say nothing before it is closed."""


class Server(ThreadingHTTPServer):
    """Serves `answers` until `shutdown`.

    Args:
        address: host and port; port 0 takes any that is free, see `server_port`.
        answers: who knows.
        names: host names by which it may be called beside localhost and addresses.

    Raises:
        UserError: the address cannot be taken.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], answers: Answers, names: Collection[str] = ()) -> None:
        self.answers, self.names = answers, frozenset(name.lower() for name in names)
        try:
            super().__init__(address, _Handler)
        except (OSError, OverflowError) as error:
            host, port = address
            raise UserError(
                f"{host}:{port}: cannot listen there ({error}). Give another --port; --port 0 takes any that is free."
            ) from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away, and of everything else what it was."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            logging.getLogger(LOGGER).exception("run page: a request of %s failed", client_address)


def is_allowed(host: str, names: Collection[str]) -> bool:
    """Tell whether a request's Host may be ours: an address, localhost, or one of `names`; with or without a port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {"localhost", *names}
    return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "geartrain", ""
    timeout = QUIET_SECONDS
    server: Server

    def do_GET(self) -> None:
        """Answer a question, or send a file of the page."""
        if not is_allowed(self.headers.get("Host", ""), self.server.names):
            text = "This server is not called so; --allow-host NAME lets it be.\n"
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", text.encode())
            return
        url = urlsplit(self.path)
        if url.path.startswith("/api/"):
            status, value = self._answer(url.path.removeprefix("/api/"), url.query)
            self._send(status, "application/json", _encoded(value))
            return
        name = url.path.removeprefix("/") or INDEX
        body = page_file(name)
        if body is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"There is no such page.\n")
            return
        self._send(HTTPStatus.OK, TYPES.get(name.rpartition(".")[2], "application/octet-stream"), body)

    do_HEAD = do_GET

    def _answer(self, question: str, query: str) -> tuple[HTTPStatus, Mapping[str, Any]]:
        try:
            fields = dict(parse_qsl(query, max_num_fields=MOST_FIELDS))
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        try:
            return HTTPStatus.OK, self.server.answers.ask(question, fields)
        except QuestionError as error:
            return HTTPStatus.NOT_FOUND if error.missing else HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except UserError as error:
            return HTTPStatus.NOT_FOUND, {"error": str(error)}
        except Exception as error:  # the page says it, and goes on asking
            logging.getLogger(LOGGER).exception("run page: no answer to %s", question)
            return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"a fault of the server: {error!r:.200}"}

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Keep no log of requests."""


def _encoded(value: Any) -> bytes:
    """Return a value as JSON; what is no number becomes null."""
    try:
        text = _JSON.encode(value)
    except ValueError:  # some number is none: rare, and to look for it first takes as long as to encode
        text = _JSON.encode(_finite(value))
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    """Return a value that JSON can say: None for a number that is none."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
