"""An export loses nothing and doubles nothing, whatever the receiver does; one of another make takes it too."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from geartrain.errors import InfrastructureError, UserError
from geartrain.lineage import events
from geartrain.lineage.export import Sent, export


class Receiver(ThreadingHTTPServer):
    """Keeps what it is sent; `trouble` maps the number of a request to the status that it gets instead of 201."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.trouble: dict[int, int | str] = {}
        self.requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        trouble = self.server.trouble.get(self.server.requests)
        self.server.requests += 1
        self.server.keys.append(self.headers.get("Authorization"))
        if self.path != "/api/v1/lineage":
            trouble = 404
        if trouble in (None, "cut"):
            self.server.taken.append(json.loads(body))
        if trouble == "cut":  # it was taken, and the answer is lost
            self.connection.close()
            return
        self.send_response(201 if trouble is None else int(trouble))
        self.end_headers()
        self.wfile.write(b"" if trouble is None else b"not like this")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for stage in ("tasks", "warm_start", "policy"):
        told = {"run_id": events.new_run_id(), "job": stage, "inputs": {}}
        events.emit(tmp_path, "START", **told, outputs={})
        events.emit(tmp_path, "COMPLETE", **told, outputs={stage: "0" * 64})
    return tmp_path


def test_every_event_is_sent_once_in_order(receiver: Receiver, log: Path) -> None:
    assert export(log, receiver.url, key="sesame") == Sent(6, 0)
    assert receiver.taken == events.read_events(log)
    assert set(receiver.keys) == {"Bearer sesame"}
    assert export(log, receiver.url + "/") == Sent(0, 6)
    events.emit(log, "START", run_id=events.new_run_id(), job="critic", inputs={}, outputs={})
    assert export(log, receiver.url) == Sent(1, 6)
    assert receiver.taken == events.read_events(log)


@pytest.mark.parametrize("status", [500, 429, 408])
def test_after_trouble_it_goes_on_where_it_was(status: int, receiver: Receiver, log: Path) -> None:
    receiver.trouble = {3: status}
    with pytest.raises(InfrastructureError, match=f"answered {status} to COMPLETE of warm_start"):
        export(log, receiver.url)
    assert export(log, receiver.url) == Sent(3, 3)
    assert receiver.taken == events.read_events(log)


def test_a_busy_gateway_is_asked_again_at_once(receiver: Receiver, log: Path) -> None:
    receiver.trouble = {2: 503}
    assert export(log, receiver.url) == Sent(6, 0)
    assert receiver.taken == events.read_events(log)


@pytest.mark.parametrize(
    ("status", "says"), [(401, "OPENLINEAGE_API_KEY"), (404, "without that part"), (422, "refuses COMPLETE of tasks")]
)
def test_what_a_person_has_to_mend_stops_it(status: int, says: str, receiver: Receiver, log: Path) -> None:
    receiver.trouble = {1: status}
    with pytest.raises(UserError, match=says):
        export(log, receiver.url)
    assert len(receiver.taken) == 1, "nothing after it was sent"
    assert export(log, receiver.url) == Sent(5, 1)
    assert receiver.taken == events.read_events(log)


def test_a_lost_answer_repeats_that_event_word_for_word(receiver: Receiver, log: Path) -> None:
    receiver.trouble = {2: "cut"}
    with pytest.raises(InfrastructureError, match="no answer to START of warm_start"):
        export(log, receiver.url)
    assert export(log, receiver.url) == Sent(4, 2)
    told = events.read_events(log)
    assert receiver.taken == [*told[:3], *told[2:]], "one twice, and equal; none is lost"


def test_two_receivers_have_a_note_each(receiver: Receiver, log: Path) -> None:
    export(log, receiver.url)
    with Receiver() as other:
        other.timeout = 5
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert export(log, other.url) == Sent(6, 0)
        other.shutdown()
        thread.join()


def test_a_note_cut_short_by_a_crash_counts_up_to_the_cut(receiver: Receiver, log: Path) -> None:
    export(log, receiver.url)
    (note,) = (log / "exports").iterdir()
    note.write_text(note.read_text()[:-2])  # the last line lacks its end
    assert export(log, receiver.url) == Sent(1, 5)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://"])
def test_what_is_no_address_is_refused(url: str, log: Path) -> None:
    with pytest.raises(UserError, match="not the address of a receiver"):
        export(log, url)


def test_nobody_there_may_pass(log: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(InfrastructureError, match="no answer"):
        export(log, f"http://127.0.0.1:{port}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_feast_s_lineage_server_takes_them(log: Path, tmp_path: Path) -> None:
    """A receiver of another make, as users have it: events arrive, and its graph shows our jobs and datasets."""
    feast = Path(sys.executable).with_name("feast")
    program = str(feast) if feast.exists() else shutil.which("feast")
    assert program, "feast is one of our dependencies"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    repo = tmp_path / "repo"
    repo.mkdir()
    settings = {
        "project": "audit", "provider": "local", "entity_key_serialization_version": 3,
        "registry": {"registry_type": "sql", "path": f"sqlite:///{repo}/registry.db"},
        "openlineage": {"enabled": True, "producer": "https://example.org/audit", "consumer": {"enabled": True}},
    }  # fmt: skip
    (repo / "feature_store.yaml").write_text(yaml.safe_dump(settings))
    command = [program, "-c", str(repo), "serve_lineage", "-h", "127.0.0.1", "-p", str(port)]
    variables = {**os.environ, "FEAST_USAGE": "False", "OPENLINEAGE_DISABLED": "false"}
    with (
        (repo / "log").open("w") as output,
        subprocess.Popen(command, env=variables, stdout=output, stderr=output) as server,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, server, repo / "log")
            assert export(log, url, timeout=120) == Sent(6, 0)
            assert export(log, url, timeout=120) == Sent(0, 6)
            graph = _graph(url)
            (note,) = (log / "exports").iterdir()
            note.unlink()  # as if every answer had been lost
            assert export(log, url, timeout=120) == Sent(6, 0)
            assert _graph(url) == graph, "an event that comes twice changes nothing there"
        finally:
            server.terminate()
    for name in ("geartrain.tasks", "geartrain.policy", "warm_start"):
        assert name in graph, graph


def _graph(url: str) -> str:
    """Return jobs, datasets and edges of Feast's graph, without when it heard of them, and how often.

    It counts a dataset's version up at every event that names it as an output, be it the same one again.
    """

    def timeless(found: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in found.items() if not key.endswith("_at") and not key.endswith("version")}

    with urllib.request.urlopen(f"{url}/api/v1/lineage/openlineage/graph", timeout=60) as answer:
        return json.dumps(json.loads(answer.read(), object_hook=timeless), sort_keys=True)


def _wait_for(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()
        try:
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=1):
                return
        except OSError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.2)
    raise AssertionError(f"{url} did not come up: {log.read_text()}")
