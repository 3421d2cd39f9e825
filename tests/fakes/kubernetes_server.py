"""A Kubernetes API server on 127.0.0.1: TrainJobs, pods, logs and events of one namespace, and faults on request.

It speaks HTTP to the real client. Answers have the shapes of a real server's: `Status` objects for refusals, lists
with `continue`, 409 with a reason, 403 in the words of RBAC. A TrainJob that it is sent has to fit Trainer's API to the
last field.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.crd import problems_of_train_job

NAMESPACE = "geartrain"
JOBS = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
REASONS = {404: "NotFound", 409: "AlreadyExists", 410: "Expired", 422: "Invalid", 429: "TooManyRequests"}


@dataclass
class Fault:
    """An answer instead of the right one, to the next `times` requests of a kind."""

    status: int
    body: bytes | None = None
    """None makes a `Status` object."""
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = ""
    """Empty hits every method."""
    path: str = ""
    """Hits the paths that contain it."""
    times: int = 1
    message: str = "injected"
    reason: str | None = None
    hangs: bool = False
    """Does not answer at all."""
    after: bool = False
    """The request takes effect all the same."""


@dataclass
class Request:
    """What a client asked."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


class KubernetesServer:
    """Use as a context manager. What it holds is public: tests look at it and change it."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.logs: dict[str, bytes] = {}
        self.events: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.script: dict[str, deque[Callable[[dict[str, Any]], object]]] = {}
        """What happens to a job before each of its next reads."""
        self.asked = threading.Semaphore(0)
        """Released once for every request."""
        self._uids = 0
        self._release = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> "KubernetesServer":
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                outer._serve(self)

            do_GET = do_POST = do_DELETE = _serve

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the configuration with which a client finds this server."""
        record = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": {"token": "sesame"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": NAMESPACE}}],
        }
        path.write_text(json.dumps(record))
        return path

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        address = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        text = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        path = unquote(address.path)
        request = Request(handler.command, path, query, json.loads(text) if text else None, dict(handler.headers))
        with self._lock:
            self.requests.append(request)
            fault = self._fault(request)
            if fault is None or fault.after:
                status, body, headers = self._answer(request)
            if fault is not None:
                status, headers = fault.status, dict(fault.headers)
                body = status_object(fault.status, fault.message, fault.reason) if fault.body is None else fault.body
        self.asked.release()
        if fault is not None and fault.hangs:
            self._release.wait(10)
            handler.close_connection = True
            return
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    def _fault(self, request: Request) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method in ("", request.method) and fault.path in request.path:
                fault.times -= 1
                return fault
        return None

    def _answer(self, request: Request) -> tuple[int, Any, dict[str, str]]:
        method, path, query = request.method, request.path, request.query
        if path == JOBS:
            if method == "POST":
                return self._create(request.body)
            return self._list(list(self.jobs.values()), query)
        if path.startswith(f"{JOBS}/"):
            return self._one(method, path.removeprefix(f"{JOBS}/"), request.body)
        if path == f"{CORE}/pods":
            return self._list(self.pods, query)
        if path == f"{CORE}/events":
            return self._list(self.events, query)
        pod = path.removeprefix(f"{CORE}/pods/").removesuffix("/log")
        if pod in self.logs:
            lines = self.logs[pod].splitlines(keepends=True)
            return 200, b"".join(lines[-int(query["tailLines"]) :]), {"Content-Type": "text/plain"}
        for known in self.pods:
            if path == f"{CORE}/pods/{known['metadata']['name']}":
                return 200, known, {}
        return 404, status_object(404, f"{path} not found"), {}

    def _create(self, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        name = body["metadata"]["name"]
        # a real one would drop what it does not know, and run something else than was asked for
        wrong = problems_of_train_job(body)
        if wrong:
            return 422, status_object(422, f'TrainJob "{name}" is invalid: {"; ".join(wrong)}'), {}
        if name in self.jobs:
            message = f'trainjobs.trainer.kubeflow.org "{name}" already exists'
            return 409, status_object(409, message), {}
        self._uids += 1
        body = json.loads(json.dumps(body))
        body["metadata"] |= {"uid": f"uid-{self._uids}", "creationTimestamp": "2026-11-29T12:00:00Z"}
        body["metadata"]["namespace"] = NAMESPACE
        # webhooks and defaults: Kueue suspends what has a queue, and a spec comes back other than it was sent
        body["spec"]["suspend"] = "kueue.x-k8s.io/queue-name" in body["metadata"]["labels"]
        body["spec"]["managedBy"] = "trainer.kubeflow.org/trainjob-controller"
        self.jobs[name] = body
        return 201, body, {}

    def _one(self, method: str, name: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        script = self.script.get(name)
        if method == "GET" and script and name in self.jobs:
            script.popleft()(self.jobs[name])
        job = self.jobs.get(name)
        if job is None:
            return 404, status_object(404, f'trainjobs.trainer.kubeflow.org "{name}" not found'), {}
        if method == "DELETE":
            wanted = ((body or {}).get("preconditions") or {}).get("uid")
            if wanted not in (None, job["metadata"]["uid"]):
                return 409, status_object(409, "Precondition failed: UID in precondition", "Conflict"), {}
            del self.jobs[name]
        return 200, job, {}

    def _list(self, items: list[dict[str, Any]], query: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        labels = _pairs(query.get("labelSelector", ""))
        fields = _pairs(query.get("fieldSelector", ""))
        found = [
            item
            for item in items
            if labels.items() <= item["metadata"].get("labels", {}).items()
            and all(_field(item, key) == value for key, value in fields.items())
        ]
        start, limit = int(query.get("continue", 0)), int(query.get("limit", len(found) or 1))
        more = str(start + limit) if start + limit < len(found) else ""
        return 200, {"kind": "List", "metadata": {"continue": more}, "items": found[start : start + limit]}, {}


def status_object(code: int, message: str, reason: str | None = None) -> dict[str, Any]:
    """The `Status` with which a server refuses."""
    reason = reason or REASONS.get(code, "InternalError")
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def set_conditions(*conditions: tuple[str, str, str], ready: int = 0) -> Callable[[dict[str, Any]], None]:
    """Return a change of a job: its conditions as (type, status, reason), and how many child jobs are ready."""

    def change(job: dict[str, Any]) -> None:
        job["spec"]["suspend"] = any(condition[:2] == ("Suspended", "True") for condition in conditions)
        job["status"] = {
            "conditions": [
                {"type": kind, "status": status, "reason": reason, "message": f"{kind} it is",
                 "lastTransitionTime": "2026-11-29T12:00:00Z"}
                for kind, status, reason in conditions
            ],
            "jobsStatus": [
                {"name": "node", "active": 1, "ready": ready, "succeeded": 0, "failed": 0, "suspended": 0},
            ],
        }  # fmt: skip

    return change


def pod(job: str, rank: int, state: Mapping[str, Any], *, created: str = "2026-11-29T12:00:00Z") -> dict[str, Any]:
    """Return a training pod of a job, its container in this state."""
    return {
        "metadata": {
            "name": f"{job}-node-0-{rank}",
            "creationTimestamp": created,
            "labels": {
                "jobset.sigs.k8s.io/jobset-name": job,
                "jobset.sigs.k8s.io/replicatedjob-name": "node",
                "batch.kubernetes.io/job-completion-index": str(rank),
            },
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": "node", "state": state}]},
    }


def event(kind: str, name: str, reason: str, message: str, time: str = "2026-11-29T12:00:00Z") -> dict[str, Any]:
    """Return an event about an object."""
    return {
        "metadata": {"name": f"{name}.{reason}"},
        "involvedObject": {"kind": kind, "name": name, "namespace": NAMESPACE},
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
    }


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(",") if pair)


def _field(item: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        item = item.get(part, {})
    return item
