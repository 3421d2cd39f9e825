"""The way of an alert, all of it real: Prometheus scrapes and evaluates, Alertmanager notifies, somebody listens."""

import json
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from geartrain.monitoring.alert import Pace
from geartrain.monitoring.rules import rule_file
from tests.fakes.servers import find_program, free_port

PACE = Pace(1 / 60, every=0.25)
"""A minute is a second: short for a test, and long against what a busy machine makes a trainer wait."""
SCRAPE = "250ms"
JOB = "geartrain"
_POLL_SECONDS = 0.05


@dataclass
class Inbox:
    """What was notified, in its order."""

    told: list[dict[str, Any]] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)

    def put(self, alerts: list[dict[str, Any]]) -> None:
        """Take a notification's alerts."""
        with self.news:
            self.told += [{**alert, "heard": time.time()} for alert in alerts]
            self.news.notify_all()

    def of(self, instance: str, status: str = "firing") -> dict[str, dict[str, Any]]:
        """Return the first notification of each alert of one exporter, by its name."""
        found: dict[str, dict[str, Any]] = {}
        for alert in list(self.told):
            if (alert["labels"].get("instance"), alert["status"]) == (instance, status):
                found.setdefault(alert["labels"]["alertname"], alert)
        return found

    def wait_for_next(self, name: str, *, seconds: float = 120.0) -> None:
        """Return once another alert of this name is told of anyone; fail after some seconds."""
        known = len(self.told)
        with self.news:
            assert self.news.wait_for(
                lambda: any(alert["labels"]["alertname"] == name for alert in self.told[known:]), seconds
            ), name

    def wait(self, instance: str, name: str, status: str = "firing", *, seconds: float = 120.0) -> dict[str, Any]:
        """Return a notification once it is there; fail after some seconds."""
        with self.news:
            assert self.news.wait_for(lambda: name in self.of(instance, status), seconds), (name, status, self.told)
        return self.of(instance, status)[name]


@dataclass(frozen=True)
class Chain:
    """Prometheus at work, and who hears of its alerts."""

    address: str
    targets: Path
    inbox: Inbox

    def watch(self, port: int) -> str:
        """Have Prometheus scrape a port, and nothing else; return what the series call it."""
        instance = f"127.0.0.1:{port}"
        self._aim([instance])
        return instance

    def forget(self) -> None:
        """Have it scrape nothing: the process is gone."""
        self._aim([])

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """Return what an expression gives now."""
        query = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(f"{self.address}/api/v1/query?{query}", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def wait_for(self, expr: str, *, seconds: float = 30.0) -> list[dict[str, Any]]:
        """Return what an expression gives, once it gives anything; fail after some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.ask(expr):
                return found
            time.sleep(_POLL_SECONDS)
        raise AssertionError(f"nothing in {seconds:g} s: {expr}")

    def _aim(self, targets: list[str]) -> None:
        fresh = self.targets.with_suffix(".new")
        fresh.write_text(json.dumps([{"targets": targets}]))
        fresh.replace(self.targets)


@contextmanager
def chain(folder: Path) -> Iterator[Chain]:
    """Start a listener, Alertmanager and Prometheus on loopback; end them with the block."""
    inbox = Inbox()
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _handler(inbox))
    thread = threading.Thread(target=listener.serve_forever, args=(_POLL_SECONDS,), daemon=True)
    thread.start()
    try:
        with _alertmanager(folder, listener.server_port) as notifier, _prometheus(folder, notifier) as address:
            yield Chain(address, folder / "targets.json", inbox)
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def _handler(inbox: Inbox) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            inbox.put(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@contextmanager
def _alertmanager(folder: Path, listener: int) -> Iterator[str]:
    config = {
        "route": {
            "receiver": "listener",
            "group_by": ["..."],
            "group_wait": "50ms",
            "group_interval": "250ms",
            "repeat_interval": "1h",
        },
        "receivers": [
            {
                "name": "listener",
                "webhook_configs": [{"url": f"http://127.0.0.1:{listener}/", "send_resolved": True}],
            }
        ],
    }
    (folder / "alertmanager.yaml").write_text(yaml.safe_dump(config))
    options = [
        f"--config.file={folder / 'alertmanager.yaml'}",
        f"--storage.path={folder / 'alertmanager'}",
        "--cluster.listen-address=",
    ]
    with _serving("prometheus-alertmanager", "prometheus-alertmanager", options, folder) as address:
        yield address


@contextmanager
def _prometheus(folder: Path, notifier: str) -> Iterator[str]:
    targets = folder / "targets.json"
    targets.write_text("[]")
    (folder / "rules.yaml").write_text(rule_file(PACE))
    config = {
        "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": ["rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [notifier.removeprefix("http://")]}]}]},
        "scrape_configs": [
            {"job_name": JOB, "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]}
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    options = [
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        "--rules.alert.resend-delay=1s",
    ]
    with _serving("prometheus", "prometheus", options, folder) as address:
        yield address


@contextmanager
def _serving(name: str, package: str, options: list[str], folder: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    command = [find_program(name, package), *options, f"--web.listen-address={address}", "--log.level=warn"]
    log = folder / f"{name}.log"
    with log.open("w") as out:
        server = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
    try:
        _wait_until_ready(f"http://{address}", server, log)
        yield f"http://{address}"
    finally:
        server.terminate()
        server.wait()


def _wait_until_ready(address: str, server: subprocess.Popen[bytes], log: Path, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(_POLL_SECONDS)
    raise AssertionError(f"{address} does not answer: {log.read_text()}")
