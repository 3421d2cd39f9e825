"""The settings for a cluster, against the servers that they are for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from geartrain.errors import InfrastructureError
from geartrain.features.store import Store, open_store
from geartrain.features.tables import write_tables
from tests.fakes.servers import postgres, redis
from tests.unit.features.conftest import at, row
from tests.unit.features.test_store import CREATED, DEFINITION, ask

pytestmark = pytest.mark.slow
OURS = {"critic_v1", "rlar_v1", "sampler_v1"}
KEY = {"task_id": "t", "family": "f", "siblings": 4}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with postgres() as registry, redis(tmp_path_factory.mktemp("redis")) as online:
        yield {"FEAST_REGISTRY": registry, "FEAST_REDIS": online}


@pytest.fixture
def cluster(servers: dict[str, str], monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    for name, value in servers.items():
        monkeypatch.setenv(name, value)
    return root / "data/feature_repo/cluster.yaml"


def _home(folder: Path) -> Path:
    """A pod's own folder of tables."""
    rows = [row("task_history", "t", tick, attempts=6 * tick) for tick in (1, 2)]
    write_tables(folder / "tables", {"task_history": rows})
    return folder


def test_what_one_pod_applies_and_materializes_another_looks_up(cluster: Path, tmp_path: Path) -> None:
    with open_store(_home(tmp_path / "first"), cluster) as first:
        first.apply()
        first.materialize(at(2))
    with open_store(_home(tmp_path / "second"), cluster) as second:
        assert {service.name for service in second.services()} >= OURS
        assert second.look_up("sampler_v1", [KEY])[0]["attempts"] == 12
        assert second.as_of("sampler_v1", ask("t", tick=1)).column("attempts").to_pylist() == [6]


def test_who_applies_second_keeps_what_the_first_has_applied(cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/definitions.py").write_text(DEFINITION.format(name="theirs", created=CREATED))
    with open_store(_home(tmp_path / "own"), cluster) as own:
        own.apply()
        with Store(tmp_path / "theirs", own.settings, tmp_path / "other") as other:
            other.apply()
        own.apply()
    with open_store(_home(tmp_path / "third"), cluster) as third:
        assert {service.name for service in third.services()} >= {*OURS, "theirs"}


@pytest.mark.parametrize("name", ["FEAST_REGISTRY", "FEAST_REDIS"])
def test_a_server_that_is_away_is_worth_a_retry(
    name: str, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(_home(tmp_path / "own"), cluster) as own:
        own.apply()
    away = {"FEAST_REGISTRY": "postgresql+psycopg://geartrain@127.0.0.1:1/postgres", "FEAST_REDIS": "127.0.0.1:1"}
    monkeypatch.setenv(name, away[name])
    with (
        pytest.raises(InfrastructureError, match=r"Check that the registry and the online store"),
        open_store(tmp_path / "own", cluster) as store,
    ):
        store.look_up("sampler_v1", [KEY])
