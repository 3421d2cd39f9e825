"""A reference that a server writes: no literal goes out or comes in; a server that fails costs its summary alone."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from geartrain.training.reference import MASK, summarise
from geartrain.training.reference_server import KEY, ServerReference
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn

SECRET = "'Germany'"


def _turn(name, goals=(), error=None, **arguments):
    text = json.dumps({"name": name, "arguments": arguments})
    return Turn([1], [2], [0.0], text, ToolCall(name, arguments), ToolResult("q1", error), goals)


def _sibling(success, *turns, number=0, end="finished"):
    return Trajectory("t", "f", "t", number, 0, 0, 1.0, turns, success, float(success), end)


GOOD = _sibling(
    True, _turn("query", ("found",), sql=f"SELECT v WHERE country = {SECRET} AND x > 17.5"), _turn("finish")
)
BAD = _sibling(False, _turn("query", sql="SELECT w", error="sql_error"), _turn("query", sql="SELECT w"), number=1)


@pytest.fixture
def server():
    """A server that answers what it is told to, and keeps what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.asked.append((self.path, dict(self.headers), asked))
            status, body = self.server.answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked, running.answer = [], (200, b"")
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def _reference(server):
    return ServerReference(f"http://127.0.0.1:{server.server_port}/v1/", "small")


def _says(text):
    return 200, json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def test_a_server_is_asked_without_literals_and_its_answer_is_masked_again(server, monkeypatch):
    monkeypatch.setenv(KEY, "sesame")
    server.answer = _says("1. found 'Germany' with 17.5")
    reference = _reference(server)
    assert reference([GOOD, BAD]) == f"{MASK}. found {MASK} with {MASK}"
    path, headers, asked = server.asked[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer sesame"
    assert asked["model"] == "small"
    assert "Germany" not in json.dumps(asked["messages"])
    assert not reference.failures


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((500, b"down"), "busy"),
        ((404, b"no such model"), "refused"),
        ((200, b"no json"), "no_completion"),
        ((200, b"{}"), "no_completion"),
        ((200, b'{"choices": []}'), "no_completion"),
        (_says("  "), "empty"),
    ],
)
def test_a_server_that_fails_is_counted_and_the_rules_take_over(server, answer, kind):
    server.answer = answer
    reference = _reference(server)
    assert reference([GOOD, BAD]) == summarise([GOOD, BAD])
    assert reference.failures == {kind: 1}
    assert "sesame" not in repr(reference)


def test_a_group_of_one_outcome_asks_nobody(server):
    assert _reference(server)([GOOD, GOOD]) is None
    assert server.asked == []
