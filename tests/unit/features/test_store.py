"""Feast behind our wrapper: what is known when, what is refused, registries and online look-ups."""

import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geartrain.errors import UserError
from geartrain.features import store as stores
from geartrain.features.errors import DefinitionError, FrameError, MissingFeatureError, NaiveTimeError, TableError
from geartrain.features.headroom import expected_success, headroom
from geartrain.features.store import Store, open_store
from geartrain.features.tables import EVENT, TIME, write_tables
from tests.unit.features.conftest import ORIGIN, at, row


def ask(*keys, tick=2, **columns):
    """Return a frame for `sampler_v1` that asks of tasks as of a tick."""
    given = {"task_id": list(keys), "family": ["f"] * len(keys), "siblings": [4] * len(keys), **columns}
    return pa.table({**given, EVENT: pa.array([at(tick)] * len(keys), TIME)})


def test_a_late_correction_is_seen_by_those_who_ask_after_it_alone(store_of):
    """A verdict of tick 1 is corrected at tick 5: a row of tick 2 was labelled by the first (feast-dev/feast#6617)."""
    told = row("task_history", "t", 1, success_rate=0.1)
    corrected = row("task_history", "t", 1, 5, success_rate=0.9)
    store = store_of({"task_history": [told, corrected]})
    assert store.as_of("sampler_v1", ask("t", tick=2)).column("success_rate").to_pylist() == [0.1]
    assert store.as_of("sampler_v1", ask("t", tick=5)).column("success_rate").to_pylist() == [0.9]


def test_rows_that_share_key_and_time_all_come_back(store_of):
    """Labels were lost to rows that look alike (feast-dev/feast#6787)."""
    store = store_of({"task_history": [row("task_history", "t", 1, success_rate=0.1)]})
    frame = ask("t", "t", "unknown", "t", label=[1, 0, 1, 0])
    found = store.as_of("sampler_v1", frame)
    assert found.column("label").to_pylist() == [1, 0, 1, 0]
    assert found.column("success_rate").to_pylist() == [0.1, 0.1, None, 0.1]


def test_headroom_on_demand_is_that_of_training(store_of):
    mine = {"recent_attempts": 6.0, "recent_successes": 2.0}
    family = {"prompt_recent_attempts": 12.0, "prompt_recent_successes": 9.0}
    store = store_of(
        {
            "task_history": [row("task_history", "t", 1, **mine)],
            "prompt_history": [row("prompt_history", "f", 1, **family)],
        }
    )
    found = store.as_of("sampler_v1", ask("t", "never played"))
    success = expected_success([6.0, 0.0], [2.0, 0.0], [12.0, 12.0], [9.0, 9.0])
    assert found.column("expected_success").to_pylist() == success.tolist()
    assert found.column("headroom").to_pylist() == headroom(success, 4).tolist()


def test_what_is_required_and_unknown_is_named(store_of):
    store = store_of({"task_history": [row("task_history", "t", 1, attempts=6)]})
    assert store.as_of("sampler_v1", ask("t"), require=["attempts"]).num_rows == 1
    with pytest.raises(MissingFeatureError, match=r"attempts is unknown for 1 of 2 rows, first .*'other'.*later time"):
        store.as_of("sampler_v1", ask("t", "other"), require=["attempts"])
    with pytest.raises(DefinitionError, match="no feature 'speed'; it has attempts"):
        store.as_of("sampler_v1", ask("t"), require=["speed"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda f: f.drop_columns(["family"]), FrameError, "no column family; it has"),
        (lambda f: f.drop_columns(["siblings"]), FrameError, "no column siblings"),
        (lambda f: f.drop_columns([EVENT]), TableError, "no column event_timestamp"),
        (lambda f: f.append_column("attempts", [[1]]), FrameError, "a column attempts, as a feature is named"),
        (lambda f: f.slice(1), FrameError, "no rows"),
        (lambda f: f.set_column(0, "task_id", pa.array([None], pa.string())), FrameError, "1 rows have no task_id"),
        (
            lambda f: f.set_column(3, EVENT, pa.array([datetime(2000, 1, 1)])),
            NaiveTimeError,
            'event_timestamp has no time zone.*tz="UTC"',
        ),
    ],
)
def test_frames_that_cannot_be_answered_are_refused(store_of, change, error, message):
    store = store_of({})
    with pytest.raises(error, match=message):
        store.as_of("sampler_v1", change(ask("t")))


def test_a_table_without_zone_or_with_two_truths_is_refused_when_it_is_read(store_of, tmp_path):
    store = store_of({"task_history": [row("task_history", "t", 1, attempts=6)]})
    path = tmp_path / "features/tables/task_history.parquet"
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table.set_column(1, "attempts", [[7]])]), path)
    with pytest.raises(TableError, match="two different rows of the same times"):
        store.as_of("sampler_v1", ask("t"))
    place = table.column_names.index(EVENT)
    pq.write_table(table.set_column(place, EVENT, table.column(EVENT).cast(pa.timestamp("us"))), path)
    with pytest.raises(NaiveTimeError, match=r"task_history.*no time zone"):
        store.as_of("sampler_v1", ask("t"))
    path.unlink()
    with pytest.raises(TableError, match="no table"):
        store.as_of("sampler_v1", ask("t"))


def test_an_unknown_service_is_answered_with_those_there_are(store_of):
    with pytest.raises(
        DefinitionError, match=r"no feature service 'sampler'; there are critic_v1, rlar_v1, sampler_v1"
    ):
        store_of({}).as_of("sampler", ask("t"))


def test_online_answers_are_the_newest_and_unknown_is_none(tmp_path):
    home = tmp_path / "features"
    rows = [row("task_history", "t", tick, attempts=6 * tick) for tick in (1, 2, 3)]
    write_tables(home / "tables", {"task_history": [*rows, row("task_history", "late", 9, attempts=1)]})
    store = open_store(home)
    store.apply()
    assert store.materialize(at(3)) == sorted(store.materialize(at(3)))
    key = {"family": "f", "siblings": 4}
    found = store.look_up("sampler_v1", [{"task_id": name, **key} for name in ("t", "late", "never")])
    assert [answer["attempts"] for answer in found] == [18, None, None]
    assert found[2]["headroom"] == pytest.approx(headroom(0.5, 4).item())
    with pytest.raises(FrameError, match="give siblings too"):
        store.look_up("sampler_v1", [{"task_id": "t", "family": "f"}])


DEFINITION = """
from datetime import timedelta
from feast import Entity, FeatureService, FeatureView, Field, FileSource, ValueType
from feast.types import Int64, String

shop = Entity(name="{name}_shop", join_keys=["shop"], value_type=ValueType.STRING)
source = FileSource(name="{name}_table", path="{name}.parquet", timestamp_field="event_timestamp"{created})
view = FeatureView(name="{name}_view", entities=[shop], ttl=timedelta(0), source=source,
                   schema=[Field(name="shop", dtype=String), Field(name="{name}_count", dtype=Int64)])
service = FeatureService(name="{name}", features=[view])
"""
CREATED = ', created_timestamp_column="created_timestamp"'


def make_store(folder, name, home, created=CREATED):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "definitions.py").write_text(DEFINITION.format(name=name, created=created))
    settings = {
        "project": "shops",
        "provider": "local",
        "registry": {"registry_type": "sql", "path": f"sqlite:///{home}/registry.db"},
        "offline_store": {"type": "duckdb"},
        "online_store": {"type": "sqlite", "path": f"{home}/online.db"},
        "entity_key_serialization_version": 3,
    }
    return Store(folder, settings, home)


def _apply(folder, name, home):
    return make_store(folder, name, home).apply()


def test_who_applies_second_keeps_what_the_first_has_applied(tmp_path):
    """With a registry in a file the last writer won (feast-dev/feast#2176)."""
    first = make_store(tmp_path / "a", "first", tmp_path / "home")
    second = make_store(tmp_path / "b", "second", tmp_path / "home")  # opened before the first has applied
    first.apply()
    second.apply()
    assert [service.name for service in make_store(tmp_path / "a", "first", tmp_path / "home").services()] == [
        "first",
        "second",
    ]


@pytest.mark.slow
def test_two_processes_that_apply_at_once_lose_nothing(tmp_path):
    names = [f"team{number}" for number in range(4)]
    home = tmp_path / "home"
    make_store(tmp_path / "zero", "zero", home).apply()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(_apply, tmp_path / name, name, home) for name in names]:
            done.result()
    found = [service.name for service in make_store(tmp_path / "zero", "zero", home).services()]
    assert found == [*names, "zero"]


def test_a_view_that_would_let_corrections_in_is_refused(tmp_path):
    store = make_store(tmp_path / "a", "first", tmp_path / "home", created="")
    store.apply()
    with pytest.raises(DefinitionError, match="view first_view: its source names no created_timestamp_column"):
        store.needs("first")


def test_a_definition_that_does_not_run_is_named_and_nothing_is_applied(tmp_path):
    store = make_store(tmp_path / "a", "first", tmp_path / "home")
    (tmp_path / "a/worse.py").write_text("raise KeyError('left out')\n")
    with pytest.raises(DefinitionError, match=r"worse\.py: does not run \(KeyError: 'left out'\)"):
        store.apply()
    assert store.services() == []
    assert "definitions" not in sys.modules


def test_settings_name_the_variable_that_is_not_set(tmp_path, monkeypatch, root):
    monkeypatch.delenv("FEAST_REGISTRY", raising=False)
    monkeypatch.setenv("FEAST_REDIS", "127.0.0.1:1")
    with pytest.raises(UserError, match=r"cluster\.yaml: FEAST_REGISTRY not set"):
        open_store(tmp_path, root / "data/feature_repo/cluster.yaml")


def test_torch_and_type_checks_are_as_they_were_after_the_import():
    import typeguard

    assert sys.modules.get("torch", "absent") is not None
    assert typeguard.typechecked.__module__.startswith("typeguard")
    assert stores.EARLIEST < ORIGIN < datetime.now(UTC) - timedelta(days=1)
