"""A real HTTP server on 127.0.0.1 that speaks the REST API of Kubeflow Pipelines v2beta1, and fails on demand."""

import contextlib
import json
import re
import threading
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.fakes.kubeflow_state import RefusedError, State


@dataclass
class Fault:
    """What goes wrong with the next `times` requests whose "METHOD path" matches."""

    pattern: str
    status: int = 500
    times: int = 1
    body: bytes = b'{"error":"injected","code":13,"message":"injected fault"}'
    kind: str = "application/json"
    headers: dict = field(default_factory=dict)
    after: bool = False
    """Carry the request out, then fail: what a lost answer looks like."""
    drop: bool = False
    """Close the connection without an answer."""
    wait: threading.Event | None = None
    """Answer, properly, only once this is set."""


class KubeflowServer:
    """`with KubeflowServer() as server:` serves `server.state` at `server.url`; `server.seen` are the requests."""

    routes = None
    """Those of another API, "METHOD pattern" -> function as in ROUTES."""
    posted = 200
    """Status of a POST that was carried out."""

    def __init__(self, state=None, *, token=None):
        self.state = state or State()
        self.token = token
        self.faults, self.seen = [], []
        self.lock = threading.Lock()

    def __enter__(self):
        handler = type("Bound", (Handler,), {"owner": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        return self

    def __exit__(self, *_):
        for fault in self.faults:
            if fault.wait is not None:
                fault.wait.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def fail(self, pattern, **options):
        """Let requests fail; returns the Fault."""
        self.faults.append(Fault(pattern, **options))
        return self.faults[-1]

    def fault_for(self, line):
        for fault in self.faults:
            if fault.times and re.search(fault.pattern, line):
                fault.times -= 1
                return fault
        return None

    def count(self, pattern):
        """How many requests so far match."""
        return sum(1 for line in self.seen if re.search(pattern, line))

    def answer(self, method, path, query, body, content):
        """JSON of a request; the routes are those of kfp_server_api."""
        state = self.state
        for pattern, route in (self.routes or ROUTES).items():
            match = re.fullmatch(pattern, f"{method} {path}")
            if match:
                arguments = [unquote(part) for part in match.groups()]
                return route(state, arguments, query, body, content)
        raise RefusedError(404, f"no route for {method} {path}")


def listed(key, select):
    def route(state, arguments, query, _body, _content):
        items, token, total = state.page(select(state, arguments, query), query)
        return {key: items, "total_size": total, "next_page_token": token}

    return route


def by(query, key, items):
    return [item for item in items if key not in query or item.get(key) == query[key]]


def uploaded(method):
    def route(state, _arguments, query, _body, content):
        return getattr(state, method)(content, **query)

    return route


V2 = "/apis/v2beta1"
ONE = r"([^/:]+)"
ROUTES = {
    f"GET {V2}/healthz": lambda s, a, q, b, c: s.health,
    f"POST {V2}/pipelines/upload": uploaded("upload_pipeline"),
    f"POST {V2}/pipelines/upload_version": uploaded("upload_version"),
    f"POST {V2}/pipelines": lambda s, a, q, b, c: s.create_pipeline(b),
    f"GET {V2}/pipelines": listed("pipelines", lambda s, a, q: list(s.pipelines.values())),
    f"GET {V2}/pipelines/{ONE}/versions": listed(
        "pipeline_versions", lambda s, a, q: [v for v in s.versions.values() if v["pipeline_id"] == a[0]]
    ),
    f"GET {V2}/pipelines/{ONE}/versions/{ONE}": lambda s, a, q, b, c: s._known(s.versions, a[1], "PipelineVersion"),
    f"GET {V2}/experiments": listed("experiments", lambda s, a, q: list(s.experiments.values())),
    f"POST {V2}/experiments": lambda s, a, q, b, c: s.create_experiment(b),
    f"GET {V2}/runs": listed("runs", lambda s, a, q: by(q, "experiment_id", s.runs.values())),
    f"POST {V2}/runs": lambda s, a, q, b, c: s.create_run(b),
    f"GET {V2}/runs/{ONE}": lambda s, a, q, b, c: s._known(s.runs, a[0], "Run"),
    f"POST {V2}/runs/{ONE}:terminate": lambda s, a, q, b, c: s.terminate(a[0]),
    f"POST {V2}/runs/{ONE}:retry": lambda s, a, q, b, c: s.retry(a[0]),
    f"GET {V2}/recurringruns": listed("recurringRuns", lambda s, a, q: by(q, "experiment_id", s.recurring.values())),
    f"POST {V2}/recurringruns": lambda s, a, q, b, c: s.create_recurring(b),
    f"GET {V2}/recurringruns/{ONE}": lambda s, a, q, b, c: s._known(s.recurring, a[0], "RecurringRun"),
    f"POST {V2}/recurringruns/{ONE}:enable": lambda s, a, q, b, c: s.switch(a[0], True),
    f"POST {V2}/recurringruns/{ONE}:disable": lambda s, a, q, b, c: s.switch(a[0], False),
    f"DELETE {V2}/recurringruns/{ONE}": lambda s, a, q, b, c: s.delete_recurring(a[0], q.get("propagation_policy")),
    f"GET /apis/v1alpha1/runs/{ONE}/nodes/{ONE}/log": lambda s, a, q, b, c: s.log(a[1]),
}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    owner: KubeflowServer
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet: else each answer waits 40 ms for an acknowledgement

    def do_GET(self):
        self._serve()

    do_POST = do_DELETE = do_GET

    def log_message(self, *_):
        """Say nothing."""

    def _serve(self):
        owner, parts = self.owner, urlsplit(self.path)
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        line = f"{self.command} {parts.path}"
        with owner.lock:
            owner.seen.append(f"{line}?{parts.query}" if parts.query else line)
            fault = owner.fault_for(line)
        if fault is not None and fault.wait is not None:
            fault.wait.wait(10)
        if owner.token is not None and self.headers.get("authorization") != f"Bearer {owner.token}":
            return self._send(401, {"error": "Unauthenticated", "code": 16, "message": "Unauthenticated"})
        if fault is not None and fault.wait is None and not fault.after:
            return self._fail(fault)
        try:
            with owner.lock:
                answer = owner.answer(self.command, parts.path, dict(parse_qsl(parts.query)), *self._body(content))
        except RefusedError as refused:
            return self._send(refused.status, {"error": str(refused), "code": 3, "message": str(refused)})
        if fault is not None and fault.after:
            return self._fail(fault)
        return self._send(owner.posted if self.command == "POST" else 200, answer)

    def _body(self, content):
        """(JSON, uploaded file) of a request."""
        kind = self.headers.get("Content-Type", "")
        if kind.startswith("multipart/form-data"):
            message = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + content)
            return None, message.get_payload()[0].get_payload(decode=True).decode()
        return (json.loads(content) if content else None), None

    def _fail(self, fault):
        if fault.drop:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(2)
            return
        self._send(fault.status, fault.body, fault.kind, fault.headers)

    def _send(self, status, answer, kind="application/json", headers=()):
        if isinstance(answer, str):
            answer, kind = answer.encode(), "text/plain"
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        with contextlib.suppress(OSError):  # a client that gave up
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
