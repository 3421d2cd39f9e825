"""A job, a server, and a clock that moves when it is slept on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from geartrain import places
from geartrain.cluster import api
from geartrain.cluster.api import Kubernetes
from geartrain.cluster.trainjob import Resources, TrainingJob
from tests.fakes.bench import IMAGE, Bench, FakeTime
from tests.fakes.kubernetes_server import KubernetesServer

if TYPE_CHECKING:
    from tests.fakes.object_store import ObjectStore


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def make_job() -> Callable[..., TrainingJob]:
    def make(**changes: object) -> TrainingJob:
        usual = {
            "run": "5f0c7c4e-9b1d-4a55-8a38-6f1f0b9a2a11",
            "stage": "policy",
            "image": IMAGE,
            "command": ("torchrun", "-m", "geartrain"),
            "args": ("stage", "policy"),
            "nodes": 2,
            "processes_per_node": 8,
            "resources": Resources({"cpu": "16", "nvidia.com/gpu": "8"}, {"memory": "256Gi", "nvidia.com/gpu": "8"}),
            "environment": {"OMP_NUM_THREADS": "2"},
            "queue": "geartrain",
        }
        return TrainingJob(**{**usual, **changes})

    return make


@pytest.fixture
def job(make_job: Callable[..., TrainingJob]) -> TrainingJob:
    return make_job()


@pytest.fixture
def server() -> Iterator[KubernetesServer]:
    with KubernetesServer() as running:
        yield running


@pytest.fixture
def cluster(server: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubernetes]:
    """The real client, talking to the fake server."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    connected = api.connect(kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig")))
    yield connected
    connected._api.close()
    connected._api.rest_client.pool_manager.clear()


@pytest.fixture
def bench(server: KubernetesServer, cluster: Kubernetes, job: TrainingJob, time: FakeTime) -> Bench:
    return Bench(server, cluster, job, time)


@pytest.fixture(scope="session")
def running_store() -> Iterator["ObjectStore"]:
    from tests.fakes.object_store import ObjectStore  # takes a second, and most tests need none

    with ObjectStore() as store:
        yield store


@pytest.fixture
def store(running_store: "ObjectStore", monkeypatch: pytest.MonkeyPatch) -> Iterator["ObjectStore"]:
    """A bucket's server that this process finds by its environment."""
    for name, value in running_store.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    running_store.faults.clear()
    running_store.sent.clear()
    running_store.requests.clear()
    places._bucket_store.cache_clear()
    yield running_store
    places._bucket_store.cache_clear()
