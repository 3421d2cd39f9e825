"""Feature tables: what was learned of a key, when it was true, and when it was known. Parquet, one file a table.

`event_timestamp` is when a value held, `created_timestamp` when we came to know it: a verdict that is corrected a
month later has the old first and the new second. Whoever asks as of a time is answered by rows of which both are past.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geartrain.features.errors import NaiveTimeError, TableError

FOLDER = Path("features")
"""Folder of tables in the artifacts `preferences` and `policy`."""
EVENT, CREATED = "event_timestamp", "created_timestamp"
TIME = pa.timestamp("us", tz="UTC")
Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by table."""

COUNT, NUMBER = pa.int64(), pa.float64()
TASK, PROMPT = ("task_id", pa.string()), ("family", pa.string())
VERSION, SOURCE = ("policy_version", pa.int64()), ("source_id", pa.string())


def _schema(key: tuple[str, pa.DataType], **values: pa.DataType) -> pa.Schema:
    return pa.schema([key, *values.items(), (EVENT, TIME), (CREATED, TIME)])


TABLES: Mapping[str, pa.Schema] = {
    "task_history": _schema(
        TASK,
        attempts=COUNT,
        successes=COUNT,
        success_rate=NUMBER,
        progress=NUMBER,
        recent_attempts=NUMBER,
        recent_successes=NUMBER,
    ),
    "prompt_history": _schema(
        PROMPT,
        prompt_attempts=COUNT,
        prompt_successes=COUNT,
        prompt_success_rate=NUMBER,
        prompt_recent_attempts=NUMBER,
        prompt_recent_successes=NUMBER,
    ),
    "task_rewards": _schema(TASK, reward_mean=NUMBER, reward_spread=NUMBER, reward_drift=NUMBER),
    "policy_rewards": _schema(
        VERSION,
        policy_episodes=COUNT,
        policy_reward_mean=NUMBER,
        policy_reward_spread=NUMBER,
        policy_reward_drift=NUMBER,
    ),
    "judge_disagreement": _schema(TASK, comparisons=COUNT, disagreement=NUMBER),
    "sibling_contrast": _schema(TASK, group_size=COUNT, mixed=COUNT, outcome_spread=NUMBER),
    "task_length": _schema(TASK, mean_turns=NUMBER, mean_tokens=NUMBER),
    "source_history": _schema(SOURCE, source_pairs=COUNT, source_tasks=COUNT, source_margin=NUMBER),
}
"""The key is the first column. No two tables have a value of the same name."""


def path_of(folder: Path, name: str) -> Path:
    """Return the file of a table."""
    return folder / f"{name}.parquet"


def write_tables(folder: Path, rows: Rows) -> None:
    """Write every table of `TABLES`, also those without rows: a view needs its file. Equal rows give equal bytes.

    Raises:
        NaiveTimeError: a time has no zone.
        TableError: a row does not fit its table, or two rows contradict each other.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in TABLES.items():
        path = path_of(folder, name)
        given = rows.get(name, ())
        for row in given:
            for column in (EVENT, CREATED):
                if row[column].tzinfo is None:
                    raise _naive(str(path), column, f" ({row[column]})")
        try:
            table = pa.Table.from_pylist([dict(row) for row in given], schema=schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TableError(f"{path}: a row does not fit the table {name} ({error}). It holds {schema}.") from error
        pq.write_table(consistent(table, schema.names[:1], str(path)), path, compression="zstd")


def read_table(path: Path) -> pa.Table:
    """Read a table, its times in UTC.

    Raises:
        TableError: there is none, it is no Parquet, or it lacks a time.
        NaiveTimeError: a time has no zone.
    """
    if not path.is_file():
        raise TableError(f"{path}: no such table. The stages `preferences` and `policy` write them, in features/.")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise TableError(f"{path}: not Parquet ({error}). Run the stage that writes it again.") from error
    return in_utc(table, (EVENT, CREATED), str(path))


def in_utc(table: pa.Table, columns: Sequence[str], source: str) -> pa.Table:
    """Return the table with times in UTC, to the microsecond.

    Raises:
        NaiveTimeError: a time has no zone.
        TableError: a time is missing, in a row or altogether, or is none.
    """
    for column in columns:
        if column not in table.column_names:
            raise TableError(f"{source}: no column {column}. Without it nobody knows what was known when; add it.")
        values = table.column(column)
        if not pa.types.is_timestamp(values.type):
            raise TableError(f"{source}: column {column} is {values.type}, not a time. Write a timestamp with a zone.")
        if values.type.tz is None:
            raise _naive(source, column)
        if values.null_count:
            raise TableError(f"{source}: {values.null_count} rows have no {column}. Leave them out, or fill it in.")
        place = table.column_names.index(column)
        table = table.set_column(place, column, pc.cast(values, TIME, safe=False))
    return table


def consistent(
    table: pa.Table, keys: Sequence[str], source: str, times: tuple[str, str] = (EVENT, CREATED)
) -> pa.Table:
    """Return the table without exact repeats.

    Raises:
        TableError: two different rows have the same key and both times: which of them holds is anybody's guess.
    """
    identity = [*keys, *times]
    for key in keys:
        if table.column(key).null_count:
            raise TableError(f"{source}: {table.column(key).null_count} rows have no {key}. Leave them out.")
    counted = table.group_by(identity).aggregate([([], "count_all")])
    if len(counted) == len(table):
        return table
    different = table.group_by(table.column_names, use_threads=False).aggregate([]).select(table.column_names)
    counted = different.group_by(identity).aggregate([([], "count_all")])
    clash = counted.filter(pc.greater(counted["count_all"], 1))
    if len(clash):
        first = {name: str(clash.column(name)[0].as_py()) for name in identity}
        raise TableError(
            f"{source}: {len(clash)} key(s) have two different rows of the same times, first {first}. A correction has "
            f"the {times[0]} of what it corrects and a later {times[1]}; drop the other row."
        )
    return different


def gather(folders: Sequence[Path], target: Path, *, but: Container[str] = frozenset()) -> dict[str, int]:
    """Put the tables of several folders together in `target`; return the number of rows by table.

    Those of `but` stay empty.

    Raises:
        TableError: a table is malformed, or two of them contradict each other.
        NaiveTimeError: a time has no zone.
    """
    target.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name, schema in TABLES.items():
        sources = [] if name in but else [path_of(folder, name) for folder in folders]
        found = [read_table(path) for path in sources if path.is_file()]
        try:
            parts = [table.select(schema.names).cast(schema) for table in found]
        except (KeyError, pa.ArrowInvalid, ValueError) as error:
            where = ", ".join(str(path_of(folder, name)) for folder in folders)
            raise TableError(f"{where}: not the table {name} ({error}). Run the stages that write it again.") from error
        table = consistent(pa.concat_tables([schema.empty_table(), *parts]), schema.names[:1], name)
        half = target / f".{name}.tmp"
        pq.write_table(table, half, compression="zstd")
        half.replace(path_of(target, name))
        counts[name] = len(table)
    return counts


@dataclass(frozen=True)
class Freshness:
    """How much a table knows, and of when."""

    rows: int
    keys: int
    newest: datetime | None
    """Latest `event_timestamp`."""
    known: datetime | None
    """Latest `created_timestamp`."""


def freshness(folder: Path) -> dict[str, Freshness]:
    """Return what each table of a folder knows."""
    found = {}
    for name, schema in TABLES.items():
        table = read_table(path_of(folder, name))
        newest, known = (pc.max(table.column(column)).as_py() for column in (EVENT, CREATED))
        found[name] = Freshness(len(table), len(table.column(schema.names[0]).unique()), newest, known)
    return found


def _naive(source: str, column: str, given: str = "") -> NaiveTimeError:
    return NaiveTimeError(
        f"{source}: column {column} has no time zone{given}. Say which instants are meant: "
        'timestamps with tz="UTC", or datetimes with tzinfo.'
    )
