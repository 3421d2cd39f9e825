"""What the index knows beyond who made what: under which manifest, from which making, and what was withdrawn.

A digest says what an artifact is, its manifest how it was made. The same bytes may have been made from this data and
from that; which of the two a run has read, the sha256 of the manifest tells.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from geartrain.lineage import ingestion
from geartrain.lineage.index import FILE, PATIENCE_SECONDS, Index

_MADE = "SELECT run FROM edges JOIN artifacts ON id = artifact WHERE digest = ? AND output = 1 AND (? OR manifest = ?)"
_SAID = (
    "SELECT digest, output, r.run, edges.name, manifest FROM edges JOIN artifacts AS a ON a.id = artifact "
    "JOIN runs AS r ON r.id = edges.run",
    "SELECT run, state FROM runs",
    "SELECT digest, promoted FROM artifacts",
    "SELECT digest, record, action, sha256 FROM withdrawals",
)
"""What an index says, whatever the order in which it read the files."""
_READ = "SELECT path, size, sha256 FROM files"
_TRIES = 5


@dataclass(frozen=True)
class Told:
    """What an event says of a tombstone."""

    digest: str
    record: str
    """Name of its file."""
    action: str
    sha256: str
    """Of its file."""
    time: str
    """ISO 8601."""


@dataclass(frozen=True)
class StrangeRead:
    """A run has read an artifact with a manifest that no maker of the artifact wrote."""

    run: str
    stage: str
    name: str
    digest: str


def manifests(index: Index, digest: str) -> set[str]:
    """Return the sha256 of every manifest under which some run has made an artifact; "" of an older event."""
    query = "SELECT DISTINCT manifest FROM edges JOIN artifacts ON id = artifact WHERE digest = ? AND output = 1"
    return {manifest for (manifest,) in index.ask(query, (digest,))}


def strange_reads(index: Index) -> list[StrangeRead]:
    """Return the reads of an artifact whose manifest had been changed."""
    query = (
        "SELECT r.run, r.job, e.name, digest FROM edges AS e JOIN artifacts ON artifacts.id = e.artifact "
        "JOIN runs AS r ON r.id = e.run WHERE e.output = 0 AND e.manifest != '' "
        "AND EXISTS (SELECT 1 FROM edges AS m WHERE m.artifact = e.artifact AND m.output = 1) AND NOT EXISTS "
        "(SELECT 1 FROM edges AS m WHERE m.artifact = e.artifact AND m.output = 1 AND m.manifest IN ('', e.manifest)) "
        "ORDER BY r.id, e.name"
    )
    return [StrangeRead(run, job.rpartition(".")[2], name, digest) for run, job, name, digest in index.ask(query)]


def origins(index: Index, digest: str, manifest: str) -> dict[str, str]:
    """Return digest -> name of all that one making of an artifact goes back to, as far as events tell.

    If no run is known to have written that manifest, every making of these bytes counts.
    """
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(digest, manifest)]
    query = (
        "SELECT DISTINCT digest, edges.name, manifest FROM edges JOIN artifacts ON id = artifact "  # noqa: S608
        f"WHERE output = 0 AND run IN ({_MADE})"
    )
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        anyhow = place[1] not in manifests(index, place[0])
        for below, name, read_as in index.ask(query, (place[0], anyhow, place[1])):
            found.setdefault(below, name)
            waiting.append((below, read_as))
    return found


def tombstones(index: Index) -> list[Told]:
    """Return what was told of withdrawals, oldest first."""
    query = "SELECT digest, record, action, sha256, told FROM withdrawals ORDER BY told, record"
    return [Told(*row) for row in index.ask(query)]


def unread(index: Index) -> list[tuple[str, int]]:
    """Return (file, byte) of the events that do not have our shape."""
    return [(path, place) for path, place in index.ask("SELECT path, place FROM unread ORDER BY path, place")]


def headless(index: Index) -> set[str]:
    """Return the ids of runs that have an end and no beginning."""
    return {run for (run,) in index.ask("SELECT run FROM runs WHERE started IS NULL")}


def is_false(index: Index) -> bool:
    """Tell whether the index that lies in the lineage folder says anything else than one that was made anew.

    Only what has read the same bytes is compared: others may be writing meanwhile.
    """
    place = index.folder / FILE
    if not place.is_file():
        return False
    try:
        with closing(sqlite3.connect(place, timeout=PATIENCE_SECONDS, isolation_level=None)) as stored:
            for _ in range(_TRIES):
                index.refresh()
                ingestion.refresh(stored, index.folder)
                mine, its = dict(_read(index.ask(_READ))), dict(_read(stored.execute(_READ).fetchall()))
                if mine == its:
                    return any(set(stored.execute(query)) != set(index.ask(query)) for query in _SAID)
                behind = [path for path, (size, _) in mine.items() if its.get(path, (-1, ""))[0] < size]
                if behind or any(its[path] != mine[path] for path in mine if its[path][0] == mine[path][0]):
                    return True  # it was read after mine, and says that it has read less, or something else
    except sqlite3.Error:  # harmed, or nobody may look: whoever asks next makes it anew
        return False
    return False


def _read(rows: list[tuple[Any, ...]]) -> Iterator[tuple[str, tuple[int, str]]]:
    for path, size, sha256 in rows:
        yield path, (size, sha256)
