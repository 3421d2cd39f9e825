"""Feast, and nothing else that imports it: definitions applied, features as of a time, features online.

Feast answers as of a time, and can answer wrongly without a word: stores that drop rows, corrections that are seen
before they were made (feast-dev/feast#6787, #6617). So only row numbers, keys and times go in; what comes back has to
be the same rows, and is put beside a frame whose labels never left.
"""

import fcntl
import io
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geartrain.errors import InfrastructureError
from geartrain.features import definitions
from geartrain.features.errors import DefinitionError, FrameError, MissingFeatureError, TableError
from geartrain.features.lean import lean_import
from geartrain.features.tables import EVENT, consistent, in_utc

with lean_import():
    from feast import Entity, FeatureService, FeatureStore, FeatureView, OnDemandFeatureView, RepoConfig
    from feast.errors import FeastError, FeatureServiceNotFoundException

ROW = "__row__"
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Needs:
    """What a service asks for."""

    views: Sequence[Any]
    """Feature views, those of on-demand views included."""
    keys: Sequence[str]
    """Join keys, by view in order, each once."""
    given: Sequence[str]
    """Columns that whoever asks has to bring, such as `siblings`."""
    features: Sequence[str]


class Store:
    """A feature store: its registry, its tables, its online store. Leave it with `close`, or use it in a `with`."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], home: Path) -> None:
        """Open it; `folder` holds the definitions, `home` what Feast writes.

        Raises:
            DefinitionError: the settings are none that Feast knows.
            InfrastructureError: the registry cannot be reached.
        """
        self.settings, self._folder, self._home = dict(settings), folder, home
        home.mkdir(parents=True, exist_ok=True)
        with _speaking_our_language("open the feature store"):
            self._feast = FeatureStore(config=RepoConfig(**settings, repo_path=str(folder)))
            self._registry = self._feast.registry  # connects

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the registry; Feast keeps them until the process ends."""
        for name in ("write_engine", "read_engine"):
            engine = getattr(self._registry, name, None)  # a registry in a file has none
            if engine is not None:
                engine.dispose()

    def apply(self) -> list[str]:
        """Write the definitions to the registry; return their names. One writer at a time: others wait.

        What the registry holds beside them stays.
        """
        objects = _objects(definitions.load_modules(self._folder, self._home))
        with _one_writer(self._home), _speaking_our_language("apply the definitions"):
            self._feast.refresh_registry()
            self._feast.apply(objects)
        return [f"{type(found).__name__} {found.name}" for found in objects]

    def services(self) -> list[Any]:
        """Return the feature services of the registry."""
        with _speaking_our_language("list the services"):
            return sorted(self._feast.list_feature_services(), key=lambda service: str(service.name))

    def needs(self, service: str) -> Needs:
        """Return what a service asks for.

        Raises:
            DefinitionError: there is no such service, or one of its views would let later knowledge in.
        """
        found = self._service(service)
        with _speaking_our_language("list the views"):
            plain = {view.name: view for view in self._feast.list_feature_views()}
            computed = {view.name: view for view in self._feast.list_on_demand_feature_views()}
        names = [projection.name for projection in found.feature_view_projections]
        given: dict[str, None] = {}
        wanted: dict[str, None] = {}
        for name in names:
            if name in computed:
                wanted |= dict.fromkeys(p.name for p in computed[name].source_feature_view_projections.values())
                for request in computed[name].source_request_sources.values():
                    given |= dict.fromkeys(field.name for field in request.schema)
            else:
                wanted[name] = None
        views = [plain[name] for name in wanted]
        for view in views:
            if not view.batch_source.created_timestamp_column:
                raise DefinitionError(
                    f"view {view.name}: its source names no created_timestamp_column, so a late correction would be "
                    "seen by rows of the past. Add the column to the table and to the definition."
                )
        keys = dict.fromkeys(column.name for view in views for column in view.entity_columns)
        features = [feature.name for projection in found.feature_view_projections for feature in projection.features]
        return Needs(views, list(keys), list(given), features)

    def as_of(self, service: str, frame: pa.Table, *, require: Sequence[str] = ()) -> pa.Table:
        """Return the frame with the service's features beside it, each row as of its own `event_timestamp`.

        Rows, their order and every column of the frame are as they were. A value counts when both its times are not
        after the row's; of several the latest `event_timestamp` wins, then the latest `created_timestamp`. What is not
        known is null.

        Args:
            service: name of a feature service.
            frame: join keys, columns that on-demand views ask for, `event_timestamp` with a zone, and anything else.
            require: features that may not be null.

        Raises:
            FrameError: a column or a key is missing, or a name is taken.
            NaiveTimeError: a time has no zone, in the frame or in a table.
            TableError: a table is missing, or contradicts itself.
            MissingFeatureError: a required feature is null somewhere.
        """
        needs = self.needs(service)
        frame = in_utc(frame, (EVENT,), f"the frame for {service}")
        _check_columns(frame, needs, service)
        for view in needs.views:
            _check_source(view)
        asked = frame.select([*needs.keys, *needs.given, EVENT]).append_column(ROW, pa.array(range(len(frame))))
        with _speaking_our_language(f"retrieve {service}"):
            answer = self._feast.get_historical_features(
                entity_df=asked.to_pandas(),
                features=self._service(service),
                full_feature_names=False,
                filter_by_created_timestamp=True,
            ).to_arrow()
        answer = answer.take(pc.sort_indices(answer[ROW]))
        if answer[ROW].to_pylist() != list(range(len(frame))):
            raise InfrastructureError(
                f"{service}: feast returned {len(answer)} rows for {len(frame)}, or other ones. Its offline store "
                "loses rows; use `type: duckdb` in the settings, as data/feature_repo/feature_store.yaml does."
            )
        for name in needs.features:
            frame = frame.append_column(name, answer.column(name).combine_chunks())
        _check_required(frame, require, needs, service)
        return frame

    def materialize(self, until: datetime) -> list[str]:
        """Copy what is newest at `until` to the online store; return the names of the views."""
        with _one_writer(self._home), _speaking_our_language("materialize"):
            self._feast.materialize(start_date=EARLIEST, end_date=until)
            return sorted(view.name for view in self._feast.list_feature_views() if view.online)

    def look_up(self, service: str, keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return what the online store knows of each key, features by name; None is unknown.

        Raises:
            FrameError: a key lacks a column that the service asks for.
        """
        needs = self.needs(service)
        for key in keys:
            lacking = [name for name in (*needs.keys, *needs.given) if name not in key]
            if lacking:
                raise FrameError(f"{service}: give {', '.join(lacking)} too, as in {lacking[0]}=…")
        wanted = [{name: key[name] for name in (*needs.keys, *needs.given)} for key in keys]
        with _speaking_our_language(f"look up {service}"):
            columns = self._feast.get_online_features(features=self._service(service), entity_rows=wanted).to_dict()
        return [{name: columns[name][row] for name in needs.features} for row in range(len(keys))]

    def _service(self, name: str) -> Any:
        try:
            with _speaking_our_language("find a service"):
                return self._feast.get_feature_service(name)
        except FeatureServiceNotFoundException as error:
            known = ", ".join(service.name for service in self.services()) or "none: `geartrain features apply` first"
            raise DefinitionError(f"no feature service {name!r}; there are {known}") from error


def open_store(home: Path, settings: Path | None = None) -> Store:
    """Return the store of the project's definitions over the tables of `home`.

    Args:
        home: folder that has `tables/`; registry and online store are put beside it, unless the settings say otherwise.
        settings: a `feature_store.yaml`; None takes the one beside the definitions.
    """
    folder, _ = definitions.find_definitions()
    return Store(folder, definitions.read_settings(settings or folder / definitions.SETTINGS, home), home)


def private_store(home: Path) -> Store:
    """Return a store that this process alone will ever use, its definitions applied: its registry is a file.

    A database would sync its disk some hundred times for the same.
    """
    folder, _ = definitions.find_definitions()
    settings = definitions.read_settings(folder / definitions.SETTINGS, home)
    registry = {"registry_type": "file", "path": str(home.absolute() / "registry.pb")}
    store = Store(folder, {**settings, "registry": registry}, home)
    store.apply()
    return store


def _objects(modules: Sequence[Any]) -> list[Any]:
    """Return the definitions that modules hold, each once, what others rest on first."""
    kinds = (Entity, FeatureView, OnDemandFeatureView, FeatureService)
    found = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, kinds)}
    return sorted(
        found.values(), key=lambda value: ([isinstance(value, kind) for kind in kinds].index(True), value.name)
    )


def _check_columns(frame: pa.Table, needs: Needs, service: str) -> None:
    if not len(frame):
        raise FrameError(f"{service}: no rows to find features for.")
    lacking = [name for name in (*needs.keys, *needs.given) if name not in frame.column_names]
    if lacking:
        raise FrameError(f"{service}: the frame has no column {', '.join(lacking)}; it has {frame.column_names}.")
    taken = sorted({*needs.features, ROW} & set(frame.column_names))
    if taken:
        raise FrameError(f"{service}: the frame has a column {taken[0]}, as a feature is named. Rename it.")
    for name in (*needs.keys, *needs.given):
        if frame.column(name).null_count:
            raise FrameError(f"{service}: {frame.column(name).null_count} rows have no {name}. Leave them out.")


def _check_source(view: Any) -> None:
    """Refuse a table that has no clear answer."""
    source, path = view.batch_source, Path(view.batch_source.path)
    if not path.is_file():
        raise TableError(f"view {view.name}: no table {path}. The stages `preferences` and `policy` write them.")
    times = (source.timestamp_field, source.created_timestamp_column)
    table = in_utc(pq.read_table(path), times, f"view {view.name}: {path}")
    consistent(table, [column.name for column in view.entity_columns], f"view {view.name}: {path}", times)


def _check_required(frame: pa.Table, require: Sequence[str], needs: Needs, service: str) -> None:
    for name in require:
        if name not in needs.features:
            raise DefinitionError(f"{service} has no feature {name!r}; it has {', '.join(needs.features)}")
        if frame.column(name).null_count:
            first = frame.filter(pc.is_null(frame.column(name))).select([*needs.keys, EVENT]).slice(0, 1).to_pylist()[0]
            raise MissingFeatureError(
                f"{service}: {name} is unknown for {frame.column(name).null_count} of {len(frame)} rows, first "
                f"{ {key: str(value) for key, value in first.items()} }. Nothing was known of it by then: ask as of a "
                "later time, or add the rows to its table."
            )


@contextmanager
def _one_writer(home: Path) -> Iterator[None]:
    with (home / "apply.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _speaking_our_language(what: str) -> Iterator[None]:
    """Keep Feast from printing, and turn what it raises into an error that says what to do."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        except (FeatureServiceNotFoundException, InfrastructureError, DefinitionError):
            raise
        except (FeastError, ValueError) as error:
            raise DefinitionError(f"cannot {what}: {error}. Check data/feature_repo, then apply it again.") from error
        except _unreachable() as error:
            raise InfrastructureError(
                f"cannot {what}: {error}. Check that the registry and the online store of the settings are up."
            ) from error


def _unreachable() -> tuple[type[Exception], ...]:
    """Return what is raised when a registry or an online store is away, of the packages that are loaded."""
    kinds: list[type[Exception]] = [OSError]
    for package, name in (("sqlalchemy.exc", "DBAPIError"), ("redis.exceptions", "RedisError")):
        if package in sys.modules:
            kinds.append(getattr(sys.modules[package], name))
    return tuple(kinds)
