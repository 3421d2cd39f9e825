"""From the journal into SQLite: the index can be deleted at any time, and is made again from the files.

It follows the files by offset. Of a file whose size or time has changed it hashes anew what it had read: if that is not
what it was, the past was changed, and everything is read again. (Whether the past may have changed is not asked here;
`verification` does.)
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orjson import loads

from geartrain.lineage import journal
from geartrain.lineage.events import SHA256

VERSION = 3
_SCHEMA = """
CREATE TABLE files(path TEXT PRIMARY KEY, size INT, stamp TEXT, sha256 TEXT, latest TEXT) WITHOUT ROWID;
CREATE TABLE unread(path TEXT, place INT, PRIMARY KEY(path, place)) WITHOUT ROWID;
CREATE TABLE withdrawals(
    digest TEXT, record TEXT, action TEXT, sha256 TEXT, told TEXT, PRIMARY KEY(digest, record, sha256)) WITHOUT ROWID;
CREATE TABLE runs(
    id INTEGER PRIMARY KEY, run TEXT UNIQUE, job TEXT, namespace TEXT, parent TEXT, attempt INT, code TEXT,
    started TEXT, ended TEXT, state TEXT NOT NULL, rank INT NOT NULL, error TEXT, path TEXT, place INT);
CREATE TABLE artifacts(
    id INTEGER PRIMARY KEY, digest TEXT UNIQUE, name TEXT, kind TEXT, folder TEXT, licence TEXT, origin TEXT,
    made TEXT, promoted INT NOT NULL DEFAULT 0);
CREATE TABLE edges(
    run INT, output INT, artifact INT, name TEXT, manifest TEXT,
    PRIMARY KEY(run, output, artifact, name)) WITHOUT ROWID;
"""
_INDICES = """
CREATE INDEX IF NOT EXISTS runs_of_parent ON runs(parent);
CREATE INDEX IF NOT EXISTS artifacts_by_name ON artifacts(name, made);
CREATE INDEX IF NOT EXISTS edges_of_artifact ON edges(artifact, output, run);
"""
"""Made once the tables are full: sorting is quicker than keeping in order."""
_HARMED = (AttributeError, LookupError, TypeError, ValueError, OverflowError, sqlite3.ProgrammingError)
"""What an event of another shape than ours ends in, wherever that is met."""
_RANK = {"START": 0, "ABORT": 1, "FAIL": 2, "COMPLETE": 3}
"""Of two ends of one run the higher one counts: one that was taken for lost may have finished after all."""


def refresh(database: sqlite3.Connection, folder: Path) -> int:
    """Bring an index up to date with a lineage folder; return how many events it read.

    One that is up to date is only looked at: whoever writes to it meanwhile is not waited for.

    Raises:
        sqlite3.OperationalError: another process writes to it for longer than the connection waits.
    """
    if _is_current(database, folder):
        return 0
    database.execute("BEGIN IMMEDIATE")
    try:
        if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            _start_anew(database)
        count = _follow(database, folder)
        if count is None:
            _start_anew(database)
            count = _follow(database, folder)
        assert count is not None
        _execute(database, _INDICES)
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise
    return count


def _is_current(database: sqlite3.Connection, folder: Path) -> bool:
    if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        return False
    paths = (path for chain in journal.writers(folder).values() for path in chain)
    there = {path.relative_to(folder).as_posix(): _stamp(path) for path in paths}
    return dict(database.execute("SELECT path, stamp FROM files").fetchall()) == there


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _start_anew(database: sqlite3.Connection) -> None:
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        database.execute(f"DROP TABLE {table}")
    _execute(database, _SCHEMA)
    database.execute(f"PRAGMA user_version = {VERSION}")


def _execute(database: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):  # executescript would end the transaction
        database.execute(statement)


def _follow(database: sqlite3.Connection, folder: Path) -> int | None:
    """Read what is new; return the number of events, or None if what was read before is not there any more."""
    known = {path: row for path, *row in database.execute("SELECT path, size, stamp, sha256, latest FROM files")}
    paths = [path for _, chain in sorted(journal.writers(folder).items()) for path in chain]
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    if known.keys() - set(names.values()):
        return None
    reader, count = _Reader(database), 0
    latest: dict[
        str, str
    ] = {}  # of a writer's events: a clock that is set back makes no event older than the one before
    for path in paths:
        size, stamp, sha256, last = known.get(names[path], (0, "", hashlib.sha256().hexdigest(), ""))
        writer = path.name.partition(".")[0]
        latest[writer] = max(latest.get(writer, ""), last)
        now = _stamp(path)
        if now == stamp:
            continue
        data = path.read_bytes()
        if len(data) < size or hashlib.sha256(memoryview(data)[:size]).hexdigest() != sha256:
            return None
        end = data.rfind(b"\n") + 1
        for place, event in _events(data, size, end):
            latest[writer] = max(latest[writer], event["eventTime"])
            try:
                reader.take(event, latest[writer], names[path], place)
            except _HARMED:
                database.execute("INSERT OR IGNORE INTO unread VALUES (?, ?)", (names[path], place))
            count += 1
        reader.write()
        row = (names[path], end, now, hashlib.sha256(memoryview(data)[:end]).hexdigest(), latest[writer])
        database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", row)
    return count


def _events(data: bytes, begin: int, end: int) -> Iterator[tuple[int, journal.Event]]:
    while begin < end:
        stop = data.index(b"\n", begin)
        event = journal.parse_event(data[begin:stop], loads)  # json takes more than twice as long
        if event is not None:
            yield begin, event
        begin = stop + 1


class _Table:
    """Rows of one table by what names them: read when first asked for, written together."""

    def __init__(self, database: sqlite3.Connection, name: str, key: str) -> None:
        self._database, self._key = database, key
        self._columns = [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
        self._find = f"SELECT * FROM {name} WHERE {key} = ?"  # noqa: S608 - our own words, as below
        self._write = f"INSERT OR REPLACE INTO {name} VALUES ({', '.join(f':{column}' for column in self._columns)})"  # noqa: S608
        self._next = database.execute(f"SELECT coalesce(max(id), 0) + 1 FROM {name}").fetchone()[0]  # noqa: S608
        self._rows: dict[str, dict[str, Any]] = {}

    def row(self, named: str, new: dict[str, Any]) -> dict[str, Any]:
        """Return the row of that name, to be changed in place; `new` with a number if there was none."""
        row = self._rows.get(named)
        if row is None:
            found = self._database.execute(self._find, (named,)).fetchone()
            if found is None:
                row = {"id": self._next, self._key: named, **new}
                self._next += 1
            else:
                row = dict(zip(self._columns, found, strict=True))
            self._rows[named] = row
        return row

    def write(self) -> None:
        """Write what was asked for since the last time."""
        self._database.executemany(self._write, self._rows.values())
        self._rows.clear()


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as it is. What SQLite would not take is an error now: later it would be one of all rows together."""
    for value in row.values():
        if isinstance(value, str):
            value.encode()
        elif value is not None and not (isinstance(value, int) and abs(value) < 2**63):
            raise TypeError(f"no value of a table: {value!r:.80}")
    return row


class _Reader:
    """Takes events into the tables."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._runs, self._artifacts = _Table(database, "runs", "run"), _Table(database, "artifacts", "digest")
        self._known: dict[str, int] = {}
        self._edges: dict[tuple[int, int, int, str], str] = {}

    def write(self) -> None:
        """Write what was put off."""
        self._runs.write()
        self._artifacts.write()
        edges = ((*arrow, manifest) for arrow, manifest in self._edges.items())
        self._database.executemany("INSERT OR IGNORE INTO edges VALUES (?, ?, ?, ?, ?)", edges)
        self._edges.clear()

    def take(self, event: journal.Event, when: str, path: str, place: int) -> None:
        """Take one event, of a time that never runs back, that begins at `place` in a file."""
        rank = _RANK.get(event["eventType"])
        if rank is None:  # RUNNING and OTHER change nothing here
            return
        facets = event["run"].get("facets") or {}
        job = event["job"]
        error = json.dumps(facets["geartrain_error"]["message"]) if "geartrain_error" in facets else None
        new = {
            "job": job["name"],
            "namespace": job.get("namespace", ""),
            "parent": (facets.get("parent") or {}).get("run", {}).get("runId"),
            "attempt": (facets.get("geartrain_stage") or {}).get("attempt"),
            "code": (facets.get("geartrain_code") or {}).get("digest"),
            "started": None,
            "rank": -1,
        }
        run = self._runs.row(event["run"]["runId"], _checked(new))
        if rank == _RANK["START"]:
            run["started"] = min(run["started"] or when, when)
        if rank > run["rank"]:
            said = {"state": event["eventType"], "ended": when if rank else None, "error": error}
            run.update(said, rank=rank, path=path, place=place)
        verdict = (facets.get("geartrain_metrics") or {}).get("values", {}).get("promoted")
        for item in event.get("inputs") or ():
            self._connect(run["id"], item, 0, None, verdict)
        if rank == _RANK["COMPLETE"]:
            for item in event.get("outputs") or ():
                self._connect(run["id"], item, 1, when, verdict)
            if "geartrain_withdrawal" in facets:
                stone = facets["geartrain_withdrawal"]
                row = (stone["digest"], stone["record"], stone["action"], stone["sha256"], when)
                self._database.execute("INSERT OR IGNORE INTO withdrawals VALUES (?, ?, ?, ?, ?)", row)

    def _connect(self, run: int, item: dict[str, Any], output: int, made: str | None, verdict: float | None) -> None:
        facets = item.get("facets") or {}
        version = str((facets.get("version") or {}).get("datasetVersion", ""))
        if version.startswith(SHA256):
            artifact = self._known.get(version) if made is None and verdict is None else None
            if artifact is None:
                artifact = self._known[version] = self._artifact(item, facets, version, output, made, verdict)
            manifest = str((facets.get("geartrain_artifact") or {}).get("manifest") or "")
            f"{item['name']}{manifest}".encode()  # as in `_checked`
            self._edges.setdefault((run, output, artifact, item["name"]), manifest)

    def _artifact(
        self,
        item: dict[str, Any],
        facets: dict[str, Any],
        version: str,
        output: int,
        made: str | None,
        verdict: float | None,
    ) -> int:
        kind = str((facets.get("datasetType") or {}).get("datasetType", "dataset")).lower()
        if output and verdict == 0:  # a gate that stayed shut leaves a record, not a model
            kind = "report"
        tags = (facets.get("tags") or {}).get("tags") or ()
        said = {
            "folder": (facets.get("geartrain_artifact") or {}).get("path", ""),
            "licence": next((tag["value"] for tag in tags if tag.get("key") == "license"), ""),
            "origin": (facets.get("dataSource") or {}).get("uri", ""),
        }
        new = {"name": item["name"], "kind": kind, "made": None, "promoted": 0, **said}
        row = self._artifacts.row(version.removeprefix(SHA256), _checked(new))
        row.update({key: value for key, value in said.items() if not row[key]})
        row["promoted"] |= int(bool(verdict) and (output == 1 or kind == "model"))
        if made is not None:  # who made it knows best
            row["kind"] = kind
            if row["made"] is None:
                row.update(name=item["name"], made=made)
        return int(row["id"])
