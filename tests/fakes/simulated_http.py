"""The simulated cluster and the simulated scheduler, asked by the real clients over HTTP.

What happens in the world is the same as in process. Trouble is what a server answers with: 429, 500, 503, garbage, an
expired list, a connection that is closed before or after the request took effect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from geartrain.cluster.api import Kubernetes
from geartrain.cluster.interface import Event, PodState
from geartrain.cluster.kubeflow import ATTEMPTS, Kubeflow
from tests.fakes.kubeflow_server import KubeflowServer
from tests.fakes.kubernetes_server import CORE, Fault, KubernetesServer, Request, pod, status_object
from tests.fakes.scheduler import CrashError, Direct
from tests.fakes.simulated_cluster import SimulatedCluster, World

TROUBLES = (
    lambda: Fault(500),
    lambda: Fault(429, headers={"Retry-After": "3"}),
    lambda: Fault(503, b"<html>upstream connect error</html>"),
    lambda: Fault(200, b"{"),
    lambda: Fault(410, reason="Expired"),
)
LOST = (lambda: Fault(504, after=True), lambda: Fault(200, b"", after=True))


class WorldServer(KubernetesServer):
    """Serves the TrainJobs of a `World`; `broken` holds what must never happen and did."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[str] = []
        self.show(World())

    def show(self, world: World) -> None:
        """Serve another world."""
        self.world, self.jobs, self.faults = world, world.jobs, []

    def _create(self, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        if body["metadata"]["name"] not in self.jobs:
            try:
                return 201, self.world.create(body), {}
            except AssertionError as error:
                self.broken.append(str(error))
        return 409, status_object(409, "already exists"), {}

    def _answer(self, request: Request) -> tuple[int, Any, dict[str, str]]:
        if request.path == f"{CORE}/pods":
            codes = self.world.exit_code
            ended = [(name, codes.get(job["metadata"]["uid"])) for name, job in sorted(self.jobs.items())]
            self.pods = [pod(name, 0, {"terminated": {"exitCode": code}}) for name, code in ended if code is not None]
        if request.method == "DELETE":
            self.world.deletions.append(request.path)
        return super()._answer(request)


class ClusterOverHttp(SimulatedCluster):
    """One launcher's real client. A script's steps happen in the world; its trouble is the server's."""

    def __init__(self, client: Kubernetes, server: WorldServer, script: Sequence[str], **options: Any) -> None:
        super().__init__(server.world, script, **options)
        self._client, self._server = client, server
        self._troubles, self._losses = cycle(TROUBLES), cycle(LOST)

    def create(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._call(lambda: self._held(self._client.create(manifest)))

    def get(self, name: str) -> Mapping[str, Any]:
        return self._call(lambda: self._held(self._client.get(name)))

    def find(self, selector: str) -> Sequence[Mapping[str, Any]]:
        return self._call(lambda: self._client.find(selector))

    def delete(self, name: str, uid: str) -> None:
        self._call(lambda: self._client.delete(name, uid))

    def pods(self, name: str) -> Sequence[PodState]:
        return self._call(lambda: self._client.pods(name), aside=True)

    def log_tail(self, name: str, lines: int) -> str:
        return self._call(lambda: self._client.log_tail(name, lines), aside=True)

    def events(self, name: str) -> Sequence[Event]:
        return self._call(lambda: self._client.events(name), aside=True)

    def _held(self, job: Mapping[str, Any]) -> Mapping[str, Any]:
        self.held.add(job["metadata"]["uid"])
        return job

    def _fail(self, step: str, work: Callable[[], Any]) -> None:
        self._server.faults = [next(self._troubles if step == "trouble" else self._losses)()]
        try:
            work()
        finally:
            self._server.faults = []
        raise AssertionError(f"a fault was taken for an answer: {step}")


class SchedulerOverHttp(Direct):
    """`Direct` through Kubeflow's own client; what fails is the server, before or after it did what it was asked."""

    def __init__(self, packages: Sequence[Any], server: KubeflowServer, client: Kubeflow) -> None:
        super().__init__(packages)
        self._server, self._client = server, client
        server.state, server.faults = self.state, []

    def busy(self, pattern: str, status: int, times: int) -> None:
        """Let the next requests of a kind fail, fewer of them than the client bears."""
        assert times < ATTEMPTS
        self._server.faults = []
        self._server.fail(pattern, status=status, times=times, headers={"Retry-After": "2"})

    def list_recurring(self, *, experiment: str) -> Any:
        return self._client.list_recurring(experiment=experiment)

    def list_runs(self, *, recurring_run: str) -> Any:
        return list(self._client.list_runs(recurring_run=recurring_run))

    def version(self, pipeline_id: str, version_id: str) -> Any:
        return self._client.version(pipeline_id, version_id)

    def create_recurring(self, wanted: Any, *, experiment: str) -> Any:
        return self._change("create", lambda: self._client.create_recurring(wanted, experiment=experiment))

    def enable(self, recurring_id: str) -> None:
        self._change("enable", lambda: self._client.enable(recurring_id))

    def disable(self, recurring_id: str) -> None:
        self._change("disable", lambda: self._client.disable(recurring_id))

    def delete(self, recurring_id: str) -> None:
        assert not self.state.active(recurring_id), "a schedule with a run at work was deleted"
        self._change("delete", lambda: self._client.delete(recurring_id))

    def _breaking(self, effect: Callable[[], Any]) -> Any:
        if isinstance(self._error, CrashError):
            return super()._breaking(effect)
        with self._down(after=self._done):
            return effect()

    @contextmanager
    def _down(self, *, after: bool) -> Iterator[None]:
        """Answer nothing well: close the connection, after the request was carried out or before."""
        fault = self._server.fail(".", times=10**6, drop=True, after=after)
        try:
            yield
        finally:
            self._server.faults.remove(fault)
