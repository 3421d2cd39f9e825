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

from pydantic_core import from_json

from geartrain.lineage import journal
from geartrain.lineage.events import SHA256

VERSION = 2
_SCHEMA = """
CREATE TABLE files(path TEXT PRIMARY KEY, size INT, stamp TEXT, sha256 TEXT, latest TEXT) WITHOUT ROWID;
CREATE TABLE unread(path TEXT, place INT, PRIMARY KEY(path, place)) WITHOUT ROWID;
CREATE TABLE withdrawals(
    digest TEXT, record TEXT, action TEXT, sha256 TEXT, told TEXT, PRIMARY KEY(digest, record, sha256)) WITHOUT ROWID;
CREATE TABLE runs(
    id INTEGER PRIMARY KEY, run TEXT UNIQUE, job TEXT, namespace TEXT, parent TEXT, attempt INT, code TEXT,
    started TEXT, ended TEXT, state TEXT NOT NULL, rank INT NOT NULL, error TEXT, path TEXT, place INT);
CREATE INDEX runs_of_parent ON runs(parent);
CREATE TABLE artifacts(
    id INTEGER PRIMARY KEY, digest TEXT UNIQUE, name TEXT, kind TEXT, folder TEXT, licence TEXT, origin TEXT,
    made TEXT, promoted INT NOT NULL DEFAULT 0);
CREATE INDEX artifacts_by_name ON artifacts(name, made);
CREATE TABLE edges(
    artifact INT, output INT, run INT, name TEXT, manifest TEXT,
    PRIMARY KEY(artifact, output, run, name)) WITHOUT ROWID;
CREATE INDEX edges_of_run ON edges(run, output, artifact);
"""
_HARMED = (AttributeError, LookupError, TypeError, ValueError, OverflowError, sqlite3.ProgrammingError)
"""What an event of another shape than ours ends in, wherever that is met."""
_RANK = {"START": 0, "ABORT": 1, "FAIL": 2, "COMPLETE": 3}
"""Of two ends of one run the higher one counts: one that was taken for lost may have finished after all."""
_RUN = """
INSERT INTO runs(run, job, namespace, parent, attempt, code, started, ended, state, rank, error, path, place)
VALUES (:run, :job, :namespace, :parent, :attempt, :code, :started, :ended, :state, :rank, :error, :path, :place)
ON CONFLICT(run) DO UPDATE SET
    started = coalesce(min(started, excluded.started), started, excluded.started),
    ended = CASE WHEN excluded.rank > rank THEN excluded.ended ELSE ended END,
    error = CASE WHEN excluded.rank > rank THEN excluded.error ELSE error END,
    path = CASE WHEN excluded.rank > rank THEN excluded.path ELSE path END,
    place = CASE WHEN excluded.rank > rank THEN excluded.place ELSE place END,
    state = CASE WHEN excluded.rank > rank THEN excluded.state ELSE state END,
    rank = max(rank, excluded.rank)
RETURNING id
"""
_ARTIFACT = """
INSERT INTO artifacts(digest, name, kind, folder, licence, origin, made, promoted)
VALUES (:digest, :name, :kind, :folder, :licence, :origin, :made, :promoted)
ON CONFLICT(digest) DO UPDATE SET
    promoted = max(promoted, excluded.promoted), made = coalesce(made, excluded.made),
    kind = CASE WHEN excluded.made IS NOT NULL THEN excluded.kind ELSE kind END,
    name = CASE WHEN excluded.made IS NOT NULL AND made IS NULL THEN excluded.name ELSE name END,
    folder = CASE WHEN folder = '' THEN excluded.folder ELSE folder END,
    licence = CASE WHEN licence = '' THEN excluded.licence ELSE licence END,
    origin = CASE WHEN origin = '' THEN excluded.origin ELSE origin END
RETURNING id
"""


def refresh(database: sqlite3.Connection, folder: Path) -> int:
    """Bring an index up to date with a lineage folder; return how many events it read."""
    database.execute("BEGIN IMMEDIATE")
    try:
        if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            _start_anew(database)
        count = _follow(database, folder)
        if count is None:
            _start_anew(database)
            count = _follow(database, folder)
        assert count is not None
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        raise
    return count


def _start_anew(database: sqlite3.Connection) -> None:
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        database.execute(f"DROP TABLE {table}")
    for statement in _SCHEMA.split(";"):
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {VERSION}")


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
        status = path.stat()
        now = f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
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
        row = (names[path], end, now, hashlib.sha256(memoryview(data)[:end]).hexdigest(), latest[writer])
        database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", row)
    reader.finish()
    return count


def _events(data: bytes, begin: int, end: int) -> Iterator[tuple[int, journal.Event]]:
    while begin < end:
        stop = data.index(b"\n", begin)
        event = journal.parse_event(data[begin:stop], from_json)  # json takes half as long again
        if event is not None:
            yield begin, event
        begin = stop + 1


class _Reader:
    """Takes events into the tables."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._known: dict[str, int] = {}
        self._edges: list[tuple[int, int, int, str, str]] = []

    def finish(self) -> None:
        """Write what was put off."""
        self._database.executemany("INSERT OR IGNORE INTO edges VALUES (?, ?, ?, ?, ?)", self._edges)
        self._edges.clear()

    def take(self, event: journal.Event, when: str, path: str, place: int) -> None:
        """Take one event, of a time that never runs back, that begins at `place` in a file."""
        rank = _RANK.get(event["eventType"])
        if rank is None:  # RUNNING and OTHER change nothing here
            return
        facets = event["run"].get("facets") or {}
        over = rank > 0
        run = {
            "run": event["run"]["runId"],
            "job": event["job"]["name"],
            "namespace": event["job"].get("namespace", ""),
            "parent": (facets.get("parent") or {}).get("run", {}).get("runId"),
            "attempt": (facets.get("geartrain_stage") or {}).get("attempt"),
            "code": (facets.get("geartrain_code") or {}).get("digest"),
            "started": None if over else when,
            "ended": when if over else None,
            "state": event["eventType"],
            "rank": rank,
            "error": json.dumps(facets["geartrain_error"]["message"]) if "geartrain_error" in facets else None,
            "path": path,
            "place": place,
        }
        (number,) = self._database.execute(_RUN, run).fetchone()
        verdict = (facets.get("geartrain_metrics") or {}).get("values", {}).get("promoted")
        for item in event.get("inputs") or ():
            self._connect(number, item, 0, None, verdict)
        if rank == _RANK["COMPLETE"]:
            for item in event.get("outputs") or ():
                self._connect(number, item, 1, when, verdict)
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
            self._edges.append((artifact, output, run, str(item["name"]), manifest))

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
        row = {
            "digest": version.removeprefix(SHA256),
            "name": item["name"],
            "kind": kind,
            "folder": (facets.get("geartrain_artifact") or {}).get("path", ""),
            "licence": next((tag["value"] for tag in tags if tag.get("key") == "license"), ""),
            "origin": (facets.get("dataSource") or {}).get("uri", ""),
            "made": made,
            "promoted": int(bool(verdict) and (output == 1 or kind == "model")),
        }
        (artifact,) = self._database.execute(_ARTIFACT, row).fetchone()
        return int(artifact)
