"""TrainJobs of a Kubernetes cluster: the one importer of the `kubernetes` client.

Requests go through its `ApiClient`, which has the addresses, certificates and tokens, and are parsed here. Its typed
calls would hide three things: an answer that is no JSON comes back as text, a log of one JSON line comes back as the
`repr` of a dict, and a list with a field missing raises ValueError.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3
import yaml
from kubernetes import client, config

from geartrain.cluster import faults
from geartrain.cluster.interface import Cluster, Event, GoneError, Manifest, NoAnswerError, PodState, ServerFaultError
from geartrain.cluster.pods import newest_by_rank, pod_state
from geartrain.cluster.trainjob import CONTAINER, GROUP, NODE, PLURAL, VERSION
from geartrain.errors import GeartrainError, UserError
from geartrain.logs import readable

NAMESPACE = "geartrain"
PAGE = 250
"""Objects a request asks for."""
_RESTARTS = 3
"""How often a list is begun anew because its continuation had expired (410)."""
_LOG_LIMIT = 64 * 1024
_TOKEN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_JOBSET = "jobset.sigs.k8s.io"


def connect(namespace: str | None = None, *, kubeconfig: str | None = None, context: str | None = None) -> "Kubernetes":
    """Return the cluster that this process runs in, or the one that a kubeconfig names.

    Args:
        namespace: of the TrainJobs; that of the pod or of the context if None, else `geartrain`.
        kubeconfig: path; None takes the pod's service account, outside of a cluster `$KUBECONFIG` or ~/.kube/config.
        context: of the kubeconfig; None is its current one.

    Raises:
        UserError: there is no usable configuration.
    """
    settings = client.Configuration()
    # urllib3 would repeat a request by itself, and sleep on Retry-After where no signal or budget reaches it
    settings.retries = False
    try:
        if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=settings)
            own = _TOKEN_NAMESPACE.read_text("utf-8").strip() if _TOKEN_NAMESPACE.is_file() else None
        else:
            config.load_kube_config(config_file=kubeconfig, context=context, client_configuration=settings)
            contexts, current = config.list_kube_config_contexts(config_file=kubeconfig)
            named = [entry for entry in contexts if entry["name"] == context]
            own = (named[0] if named else current)["context"].get("namespace")
    except (config.ConfigException, yaml.YAMLError, OSError, KeyError, TypeError) as error:
        raise UserError(
            f"no cluster to talk to: {error}. Inside one, run with a service account; outside, give --kubeconfig or "
            "set KUBECONFIG to a file that `kubectl` works with"
        ) from error
    return Kubernetes(client.ApiClient(settings), namespace or own or NAMESPACE)


class Kubernetes(Cluster):
    """TrainJobs of one namespace, by a Kubernetes API server.

    Args:
        api: a client of the `kubernetes` package whose configuration has `retries = False`.
        namespace: where the TrainJobs are.
        connect_seconds: how long a connection may take.
        read_seconds: how long the server may be silent.
    """

    def __init__(self, api: Any, namespace: str, *, connect_seconds: float = 5.0, read_seconds: float = 30.0) -> None:
        self.namespace = namespace
        self._api = api
        self._timeout = (connect_seconds, read_seconds)  # the client passes over a single float without a word

    @property
    def client(self) -> Any:
        """The `kubernetes.client.ApiClient` below, for reads of other kinds (`reading.ApiReader`)."""
        return self._api

    def create(self, manifest: Manifest) -> Manifest:
        """See `Cluster.create`."""
        return _trainjob(self._json("create", "POST", self._jobs(), body=manifest))

    def get(self, name: str) -> Manifest:
        """See `Cluster.get`."""
        return _trainjob(self._json("get", "GET", self._jobs(name)))

    def find(self, selector: str) -> Sequence[Manifest]:
        """See `Cluster.find`."""
        return [_trainjob(item) for item in self._pages(self._jobs(), {"labelSelector": selector})]

    def delete(self, name: str, uid: str) -> None:
        """See `Cluster.delete`. The object stays until its pods are gone, so that nobody starts beside them."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        self._ask("delete", "DELETE", self._jobs(name), body=options)

    def pods(self, name: str) -> Sequence[PodState]:
        """See `Cluster.pods`."""
        return [pod_state(pod, CONTAINER) for pod in self._pods(name)]

    def pod(self, name: str) -> Manifest:
        """Return a pod, whosever it is. Raises NotFoundError."""
        return self._json("get", "GET", self._core("pods", name))

    def log_tail(self, name: str, lines: int) -> str:
        """See `Cluster.log_tail`; at most the last 64 KiB."""
        states = [state for state in self.pods(name) if state.rank == 0]
        if not states:
            raise faults.missing(f"pod of rank 0 of {name}")
        query = {"container": CONTAINER, "tailLines": str(lines)}
        text = self._ask("get", "GET", self._core("pods", states[0].name, "log"), query)
        return readable(text[-_LOG_LIMIT:].decode("utf-8", errors="replace"))

    def events(self, name: str) -> Sequence[Event]:
        """See `Cluster.events`."""
        # Kueue names a Workload after its job, and cuts that; `naming.NAME_LIMIT` keeps ours whole
        workload = re.compile(rf"trainjob-{re.escape(name)}-[0-9a-f]{{5}}")
        own = {"fieldSelector": f"involvedObject.kind=TrainJob,involvedObject.name={name}"}
        found = self._pages(self._core("events"), own)
        kueue = self._pages(self._core("events"), {"fieldSelector": "involvedObject.kind=Workload"})
        found += [item for item in kueue if workload.fullmatch(str((item.get("involvedObject") or {}).get("name")))]
        return sorted(map(_event, found), key=lambda event: event.time)

    def _pods(self, name: str) -> Sequence[Manifest]:
        selector = f"{_JOBSET}/jobset-name={name},{_JOBSET}/replicatedjob-name={NODE}"
        return newest_by_rank(self._pages(self._core("pods"), {"labelSelector": selector}))

    def _jobs(self, *names: str) -> str:
        path = (self.namespace, PLURAL, *names)
        return f"/apis/{GROUP}/{VERSION}/namespaces/" + "/".join(quote(part, safe="") for part in path)

    def _core(self, *names: str) -> str:
        return "/api/v1/namespaces/" + "/".join(quote(part, safe="") for part in (self.namespace, *names))

    def _pages(self, path: str, query: Mapping[str, str]) -> list[Manifest]:
        for _ in range(_RESTARTS):
            items: list[Manifest] = []
            more = ""
            try:
                while True:
                    page = self._json(
                        "list", "GET", path, {**query, "limit": str(PAGE)} | ({"continue": more} if more else {})
                    )
                    items += [item for item in page.get("items") or [] if isinstance(item, Mapping)]
                    more = (page.get("metadata") or {}).get("continue") or ""
                    if not more:
                        return items
            except GoneError as error:  # what was listed is no longer one state: begin anew
                gone = error
        raise gone

    def _json(
        self, verb: str, method: str, path: str, query: Mapping[str, str] | None = None, body: Manifest | None = None
    ) -> dict[str, Any]:
        text = self._ask(verb, method, path, query, body)
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ServerFaultError(f"{method} {path}: the answer is no JSON ({error}): {text[:80]!r}") from error
        if not isinstance(value, dict):
            raise ServerFaultError(f"{method} {path}: the answer is no object: {text[:80]!r}")
        return value

    def _ask(
        self, verb: str, method: str, path: str, query: Mapping[str, str] | None = None, body: Manifest | None = None
    ) -> bytes:
        try:
            response = self._api.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json, */*"},
                body=body,
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=self._timeout,
            )
            try:
                data: bytes = response.data
            finally:
                response.release_conn()
        except client.ApiException as error:
            raise self._fault(verb, method, path, error) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NoAnswerError(f"{method} {path}: no answer from the API server: {error}") from error
        return data

    def _fault(self, verb: str, method: str, path: str, error: Any) -> GeartrainError:
        if not error.status:  # a broken certificate, and the like
            return NoAnswerError(f"{method} {path}: no answer from the API server: {error.reason}")
        headers = {str(key).lower(): str(value) for key, value in dict(error.headers or {}).items()}
        return faults.translate(faults.Answer(verb, f"{method} {path}", error.status, error.body or b"", headers))


def _trainjob(value: Manifest) -> Manifest:
    metadata = value.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name") or not metadata.get("uid"):
        raise ServerFaultError(f"a TrainJob without name or uid came back: {json.dumps(value)[:80]}")
    return value


def _event(item: Manifest) -> Event:
    time = item.get("lastTimestamp") or item.get("eventTime") or item.get("firstTimestamp") or ""
    kind = (item.get("involvedObject") or {}).get("kind", "")
    return Event(str(kind), str(item.get("reason") or ""), str(item.get("message") or ""), str(time))
