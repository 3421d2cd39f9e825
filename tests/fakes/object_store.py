"""S3 on 127.0.0.1: moto's server, which counts requests and answers some of them with a fault."""

import threading
import urllib.request
from collections import Counter
from dataclasses import dataclass

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass
class Fault:
    """An answer instead of the right one, to the next `times` requests."""

    status: int = 503
    code: str = "SlowDown"
    method: str = ""
    """Empty hits every method."""
    path: str = ""
    """Hits the paths that contain it."""
    times: int = 1
    cut: bool = False
    """The right answer, but half of its body and then no more."""


class ObjectStore:
    """Use as a context manager; it begins empty. One at a time: moto keeps its objects by process."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.requests: Counter[str] = Counter()
        self.sent: list[str] = []
        """Path of every object that was written, in order."""
        self._real = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __enter__(self) -> "ObjectStore":
        class Quiet(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"

            def log(self, *_: object) -> None:
                pass

        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        reset = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
        urllib.request.urlopen(reset, timeout=30).close()
        self.requests.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """With which a client finds it; a request is tried once, the caller repeats it."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.url, "AWS_MAX_ATTEMPTS": "1"}

    def bucket(self, name: str) -> str:
        self.client.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str) -> list[str]:
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=bucket).get("Contents", [])]

    def _answer(self, variables, start_response):
        method, path = variables["REQUEST_METHOD"], variables["PATH_INFO"].encode("latin-1").decode()
        with self._lock:
            self.requests[method] += 1
            fault = next(
                (one for one in self.faults if one.times and one.method in ("", method) and one.path in path), None
            )
            if fault is not None:
                fault.times -= 1
        if fault is not None and not fault.cut:
            variables["wsgi.input"].read(int(variables.get("CONTENT_LENGTH") or 0))
            body = f"<Error><Code>{fault.code}</Code><Message>injected</Message></Error>".encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body))), ("Connection", "close")]
            start_response(f"{fault.status} Fault", headers)
            return [b"" if method == "HEAD" else body]
        if method == "PUT" and path.count("/") > 1:
            self.sent.append(path)
        if fault is None:
            return self._real(variables, start_response)

        def closing(status, headers, *rest):
            return start_response(status, [*headers, ("Connection", "close")], *rest)

        body = b"".join(self._real(variables, closing))
        return [body[: len(body) // 2]]  # the header has promised more
