"""Questions to the lineage: what made this, what came of that; answered from an index of the journal, without network.

`open_index` brings the index up to date first. Names are forgiving: a digest by its beginning, a model by its name.
"""

import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal

from geartrain import logs
from geartrain.artifacts import MANIFEST, read_manifest
from geartrain.errors import UserError
from geartrain.home import LINEAGE
from geartrain.lineage import ingestion, journal
from geartrain.lineage.graph import Graph, Node, Reached

FILE = "index.sqlite"
SHORTEST = 4
"""Characters of a digest or id that may stand for all of it."""
_KINDS = ("model", "dataset", "report", "source")
_TOGETHER = 500
"""Parameters of one statement."""
PATIENCE_SECONDS = 10.0
"""How long a process that writes to the index is waited for: to read the files oneself takes no longer."""
_ARTIFACT = "id, digest, name, kind, folder, licence, origin, made, promoted"
_RUN = "id, run, job, state, coalesce(ended, started), error, attempt"


def open_index(home: Path) -> "Index":
    """Return the index of a home folder (`.geartrain`), up to date; it is made where there is none.

    Where nothing may be written, or another process writes for long, it is made in memory.

    Raises:
        UserError: there is no lineage.
    """
    folder = home / LINEAGE
    _say_what_is_gone(folder)
    if not journal.writers(folder):
        raise UserError(f"{folder}: no lineage there. A run writes it; `geartrain lineage pull` brings that of others.")
    try:
        return Index(folder, _connect(folder, str(folder / FILE)))
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            logs.say(f"{folder / FILE}: another process writes to it; this answer comes from the files themselves")
        return make_anew(folder)


def _say_what_is_gone(folder: Path) -> None:
    """Let nobody take for whole what is answered from a journal that was cut."""
    gone = journal.cut(folder)
    if gone:
        what = f"{gone[0]}{f' and {len(gone) - 1} more' if gone[1:] else ''}"
        hint = "`geartrain lineage verify` says what, `geartrain lineage pull` brings what others have"
        logs.say(f"{folder}: events are missing ({what}), and so they are in answers. {hint}", level=logs.WARNING)


def make_anew(folder: Path) -> "Index":
    """Return an index of a lineage folder that is made from its files alone, in memory."""
    return Index(folder, _connect(folder, ":memory:"))


def _connect(folder: Path, place: str) -> sqlite3.Connection:
    for left in (2, 1):
        database = sqlite3.connect(place, timeout=PATIENCE_SECONDS, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous = OFF")  # what a power cut harms is made again
            if database.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:  # a new one is empty
                raise sqlite3.DatabaseError(f"{place}: is harmed")
            ingestion.refresh(database, folder)
            return database
        except sqlite3.DatabaseError as error:
            database.close()
            if isinstance(error, sqlite3.OperationalError) or left == 1:
                raise
            Path(place).unlink()  # no index at all, or a harmed one
    raise AssertionError("unreachable")


def open_all(homes: Sequence[Path]) -> "Iterator[Index]":
    """Yield the index of each home that has lineage; it is closed when the next one is asked for."""
    for home in dict.fromkeys(home.resolve() for home in homes):
        if journal.writers(home / LINEAGE):
            with closing(open_index(home)) as index:
                yield index
        else:
            _say_what_is_gone(home / LINEAGE)


def maker_of(homes: Sequence[Path], digest: str) -> str:
    """Return the id of the run that made an artifact, of the whole pipeline's if it was part of one; "" if unknown."""
    for index in open_all(homes):
        for run in index.makers(digest)[-1:]:
            parents = index.ask("SELECT parent FROM runs WHERE run = ? AND parent IS NOT NULL", (run.id,))
            return str(parents[0][0]) if parents else run.id
    return ""


class Index:
    """An open index. Digests are hex, with or without `sha256:` before them."""

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        self.folder = folder
        self._database = database

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def refresh(self) -> None:
        """Read what was written since."""
        ingestion.refresh(self._database, self.folder)

    def ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query of our own (`evidence` has more of them)."""
        return self._database.execute(query, values).fetchall()

    def counts(self) -> dict[str, int]:
        """Return how many runs, artifacts and models there are."""
        queries = {
            "runs": "SELECT count(*) FROM runs",
            "artifacts": "SELECT count(*) FROM artifacts",
            "models": "SELECT count(*) FROM artifacts WHERE kind = 'model'",
        }
        return {name: self._database.execute(query).fetchone()[0] for name, query in queries.items()}

    def resolve(self, text: str) -> Node:
        """Return the node that a person means.

        Args:
            text: `model:NAME` (the newest), `model:NAME:VERSION`, `dataset:DIGEST`, `run:ID`, a digest, or the folder
                of an artifact. VERSION, DIGEST and ID may be cut short as long as they name one thing only; ID may be
                that of a whole pipeline run.

        Raises:
            UserError: nothing is called so, or several things are; the message lists them.
        """
        if (Path(text) / MANIFEST).is_file():
            return self._artifact(read_manifest(Path(text)).digest, text)
        kind, colon, rest = text.partition(":")
        if kind == "run" and rest:
            return self._run(rest)
        if colon and kind not in (*_KINDS, "sha256", "artifact"):
            raise UserError(
                f"{text}: write model:NAME, model:NAME:VERSION, dataset:DIGEST or run:ID (or a digest, or "
                "the folder of an artifact)."
            )
        what = rest.removeprefix("sha256:") if colon else text
        name, _, version = what.partition(":")
        named = self._named(name, version, kind if kind in _KINDS else "")
        return named if named is not None else self._artifact(what, text)

    def up(self, digest: str | Node) -> Graph:
        """Return everything that an artifact (or a run) was made from, with the runs in between."""
        return self._walk(self._roots(digest), "up")

    def down(self, digest: str | Node) -> Graph:
        """Return everything that was made from an artifact (or by a run), with the runs in between."""
        return self._walk(self._roots(digest), "down")

    def models_reached(self, digest: str | Node) -> list[Reached]:
        """Return the models that some data has reached, promoted ones first, then the newest, each with a way to it."""
        graph = self._walk(self._roots(digest), "down", finished=True)  # a run that failed made nothing
        models = [node for node in graph if node.type == "model" and node.id not in graph.roots]
        models.sort(key=lambda node: node.time, reverse=True)
        models.sort(key=lambda node: not node.promoted)
        return [Reached(node, graph.way_to(node.id)) for node in models]

    def unfinished_below(self, digest: str | Node) -> list[Node]:
        """Return the runs that have read of some data and said no end: nobody knows what they have made of it."""
        return [node for node in self.down(digest) if node.kind == "run" and node.state == "START"]

    def made_from(self, digests: Collection[str]) -> list[Node]:
        """Return every artifact that was made from one of the digests, of which no run need know."""
        roots, given = [], sorted(digests)
        for begin in range(0, len(given), _TOGETHER):
            part = given[begin : begin + _TOGETHER]
            query = f"SELECT {_ARTIFACT} FROM artifacts WHERE digest IN ({','.join('?' * len(part))})"  # noqa: S608
            roots += [_as_artifact(row) for row in self._database.execute(query, part)]
        graph = self._walk(roots, "down", finished=True)
        return [node for node in graph if node.kind == "artifact" and node.id not in graph.roots]

    def events(self, run: str) -> list[journal.Event]:
        """Return what a run has said last: its end, or its START."""
        row = self._database.execute("SELECT path, place FROM runs WHERE run = ?", (run,)).fetchone()
        if row is None:
            return []
        with (self.folder / row[0]).open("rb") as file:
            file.seek(row[1])
            event = journal.parse_event(file.readline().rstrip(b"\n"))
        return [event] if event else []

    def artifacts(self) -> list[Node]:
        """Return every artifact."""
        query = f"SELECT {_ARTIFACT} FROM artifacts ORDER BY id"  # noqa: S608 - our own words
        return [_as_artifact(row)[1] for row in self._database.execute(query)]

    def made(self) -> set[str]:
        """Return the digests of all artifacts that some run is known to have made."""
        query = "SELECT DISTINCT digest FROM artifacts JOIN edges ON artifact = artifacts.id WHERE output = 1"
        return {digest for (digest,) in self._database.execute(query)}

    def makers(self, digest: str) -> list[Node]:
        """Return the runs that made an artifact, the newest last."""
        query = (
            f"SELECT there.* FROM edges JOIN artifacts ON artifacts.id = artifact JOIN (SELECT {_RUN} FROM runs) "  # noqa: S608
            "AS there ON there.id = edges.run WHERE digest = ? AND output = 1 ORDER BY there.id"
        )
        return [_as_run(row)[1] for row in self._database.execute(query, (digest,))]

    def runs(self, state: str | None = None) -> list[Node]:
        """Return every run, or those in a state."""
        where, given = ("WHERE state = ?", (state,)) if state else ("", ())
        query = f"SELECT {_RUN} FROM runs {where} ORDER BY id"  # noqa: S608 - our own words
        return [_as_run(row)[1] for row in self._database.execute(query, given)]

    def _roots(self, given: str | Node) -> list[tuple[int, Node]]:
        if isinstance(given, str):
            given = self._artifact(given.removeprefix("sha256:"), given)
        if given.kind == "artifact":
            query = f"SELECT {_ARTIFACT} FROM artifacts WHERE digest = ?"  # noqa: S608
            return [_as_artifact(row) for row in self._database.execute(query, (given.id,))]
        query = f"SELECT {_RUN} FROM runs WHERE run = ? OR parent = ? ORDER BY id"  # noqa: S608
        return [_as_run(row) for row in self._database.execute(query, (given.id, given.id))]

    def _walk(self, roots: Sequence[tuple[int, Node]], way: Literal["up", "down"], *, finished: bool = False) -> Graph:
        """Go from level to level, one question to the database for each."""
        seen: dict[tuple[str, int], Node] = {(node.kind, number): node for number, node in roots}
        arrows: dict[tuple[str, str], None] = {}
        found_by: dict[str, str] = {}
        level: list[tuple[str, int]] = list(seen)
        while level:
            beyond = []
            for source, place, row in self._next(level, way, finished):
                if place not in seen:
                    _, seen[place] = _as_run(row) if place[0] == "run" else _as_artifact(row)
                    found_by[seen[place].id] = seen[source].id
                    beyond.append(place)
                here, there = seen[source].id, seen[place].id
                arrows[(here, there) if way == "down" else (there, here)] = None
            level = beyond
        return Graph(tuple(node.id for _, node in roots), {n.id: n for n in seen.values()}, tuple(arrows), found_by)

    def _next(
        self, level: Sequence[tuple[str, int]], way: Literal["up", "down"], finished: bool
    ) -> Iterator[tuple[tuple[str, int], tuple[str, int], Sequence[Any]]]:
        """Yield (from, to, row of what is there) for every arrow that leaves a level."""
        for kind in ("artifact", "run"):
            here = [number for found, number in level if found == kind]
            # an artifact is read (0) by the runs below it, was written (1) by those above; for a run it is the reverse
            output = int((kind == "artifact") == (way == "up"))
            other = "run" if kind == "artifact" else "artifact"
            columns, table = (_RUN, "runs") if other == "run" else (_ARTIFACT, "artifacts")
            table += " WHERE state = 'COMPLETE'" if finished and other == "run" else ""
            for begin in range(0, len(here), _TOGETHER):
                part = here[begin : begin + _TOGETHER]
                query = (
                    f"SELECT edges.{kind}, there.* FROM edges JOIN (SELECT {columns} FROM {table}) AS there "  # noqa: S608
                    f"ON there.id = edges.{other} WHERE edges.{kind} IN ({','.join('?' * len(part))}) AND output = ? "
                    "ORDER BY there.id"
                )
                for source, *row in self._database.execute(query, (*part, output)):
                    yield (kind, source), (other, row[0]), row

    def _named(self, name: str, version: str, kind: str) -> Node | None:
        query = (
            f"SELECT {_ARTIFACT} FROM artifacts WHERE (name = ?1 OR folder = ?1 OR substr(folder, -length(?1) - 1) = "  # noqa: S608
            "'/' || ?1) AND (?2 = '' OR kind = ?2 OR promoted) ORDER BY made DESC, id DESC"
        )
        rows = self._database.execute(query, (name, kind)).fetchall()
        found = [_as_artifact(row)[1] for row in rows]
        if not found:
            others = self._named(name, "", "") if kind else None
            if others is not None:
                raise UserError(f"{kind}:{name}: {self._instead(others)}")
            return None
        if version in ("", "latest"):
            return found[0]
        return _only(
            [node for node in found if node.id.startswith(version.removeprefix("sha256:"))],
            f"{name}:{version}",
            f"versions of {name}, newest first: {', '.join(node.id[:12] for node in found[:8])}",
        )

    def _instead(self, node: Node) -> str:
        """Return what to ask for where a thing is of another kind than was said."""
        query = (
            "SELECT digest FROM edges JOIN artifacts ON id = artifact WHERE output = 0 AND edges.name = 'policy' "
            "AND run IN (SELECT run FROM edges JOIN artifacts ON id = artifact WHERE output = 1 AND digest = ?)"
        )
        candidate = self.ask(query, (node.id,)) if node.folder.endswith("promoted") else []
        if not candidate:
            return f"is a {node.type} (sha256:{node.id[:12]}); write {node.type}:{node.name}."
        return (
            f"the gate has let no model through here. Its decision is report:{node.id[:12]}, on the candidate "
            f"model:policy:{candidate[0][0][:12]}."
        )

    def _artifact(self, prefix: str, said: str) -> Node:
        if not re.fullmatch(rf"[0-9a-f]{{{SHORTEST},64}}", prefix):
            names = [
                row[0] for row in self._database.execute("SELECT DISTINCT name FROM artifacts ORDER BY name LIMIT 30")
            ]
            raise UserError(f"{said}: nothing is called so. There are {', '.join(names)}, and digests (sha256, hex).")
        query = f"SELECT {_ARTIFACT} FROM artifacts WHERE digest >= ? AND digest < ? LIMIT 9"  # noqa: S608
        rows = self._database.execute(query, (prefix, f"{prefix}g")).fetchall()
        return _only([_as_artifact(row)[1] for row in rows], said, "no run has read or written such a digest")

    def _run(self, prefix: str) -> Node:
        query = f"SELECT {_RUN} FROM runs WHERE run >= ? AND run < ? LIMIT 9"  # noqa: S608
        found = [_as_run(row)[1] for row in self._database.execute(query, (prefix, f"{prefix}g"))]
        parents = "SELECT parent, max(ended) FROM runs WHERE parent >= ? AND parent < ? GROUP BY parent LIMIT 9"
        for parent, ended in self._database.execute(parents, (prefix, f"{prefix}g")):
            found.append(Node("run", parent, "geartrain", job="geartrain", state="COMPLETE", time=ended or ""))
        return _only(found, f"run:{prefix}", "no run has such an id")


def _only(found: Sequence[Node], said: str, otherwise: str) -> Node:
    if not found:
        raise UserError(f"{said}: not in this lineage; {otherwise}.")
    if len({node.id for node in found}) > 1:
        several = ", ".join(node.label for node in found)
        raise UserError(f"{said}: may be any of {several}; write more of it.")
    return found[0]


def _as_artifact(row: Sequence[Any]) -> tuple[int, Node]:
    number, digest, name, kind, folder, licence, origin, made, promoted = row
    told = {"licence": licence, "origin": origin, "folder": folder, "promoted": bool(promoted)}
    return number, Node("artifact", digest, name, digest=digest, type=kind, time=made or "", **told)


def _as_run(row: Sequence[Any]) -> tuple[int, Node]:
    number, run, job, state, time, error, attempt = row
    message = ""
    with suppress(ValueError, TypeError):
        message = json.loads(error)
    stage = job.rpartition(".")[2]
    return number, Node("run", run, stage, job=job, state=state, time=time or "", error=message, attempt=attempt or 1)
