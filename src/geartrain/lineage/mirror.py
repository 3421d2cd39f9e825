"""Copies of the journal where others find them: a folder or bucket that many writers share (GEARTRAIN_LINEAGE).

A pod's files go with the pod, so what it writes is copied after each event. A writer's file has one writer, so it is
overwritten as a whole. `pull` brings what others have left there.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from geartrain import live, logs
from geartrain.errors import GeartrainError, UserError
from geartrain.lineage import journal
from geartrain.lineage.journal import Head
from geartrain.places import MissingError, Place, locate

VARIABLE = "GEARTRAIN_LINEAGE"


@dataclass(frozen=True)
class Mirror:
    """A lineage folder of this machine, and the place that its journal is copied to."""

    folder: Path
    place: Place

    def usable(self, name: str, head: Head) -> bool:
        """Tell whether a writer may go on: what lies there under its name is a part of its own chain.

        It is not where a workspace was copied, and both copies go on: one of them then starts a new writer.
        """
        there = self._head(name)
        return there is not None and _goes_on_from(there, head, self.folder, name)

    def carry(self, name: str) -> None:
        """Copy what is new of a writer's files; its lock is held. Raises InfrastructureError or UserError."""
        own = self.folder / journal.JOURNAL
        head = journal.read_head(own / f"{name}.head")
        assert head is not None
        there = self._head(name) or Head()
        for number in range(there.segment, head.segment + 1):
            path = journal.segment_path(own, name, number)
            (self.place / path.name).write(path.read_bytes())
        (self.place / f"{name}.head").write(head.text())  # last: it is never ahead of the lines

    def try_to_carry(self, name: str) -> None:
        """Copy, or say why not: the work that the event tells of is done, and must not be lost for it."""
        try:
            self.carry(name)
        except GeartrainError as error:
            note = f"lineage: {error}. The event is in {self.folder}; the next one takes it along"
            logs.say(note, level=logs.WARNING)
            live.emit("lineage", reason=str(error))

    def _head(self, name: str) -> Head | None:
        try:
            return journal.parse_head((self.place / f"{name}.head").read())
        except MissingError:
            return Head()


def from_environment(folder: Path, environment: Mapping[str, str] = os.environ) -> Mirror | None:
    """Return the mirror that GEARTRAIN_LINEAGE names; None if it names none."""
    uri = environment.get(VARIABLE)
    return Mirror(folder, locate(uri)) if uri else None


def pull(folder: Path, uri: str, *, missing_ok: bool = False) -> dict[str, int]:
    """Bring the journals that lie at a place; return writer -> number of new events. May be repeated.

    Args:
        folder: the lineage folder that takes them, below `pulled/`.
        uri: a folder or bucket with journals, another lineage folder, or a workspace.
        missing_ok: that there are none is no error.

    Raises:
        UserError: there are none, or the past of one has changed since it was pulled, which is not overwritten; or
            somebody has gone on from a copy of a journal of ours.
        InfrastructureError: the store did not answer.
    """
    own = {path.stem: journal.read_head(path) or Head() for path in (folder / journal.JOURNAL).glob("*.head")}
    places = _journals(uri)
    found = {}
    for place, names in places:
        for name in names:
            head = own.get(name)
            if head is None:
                found[name] = _fetch(place, name, folder / journal.PULLED)
            elif not _is_ours(place, name, head, folder):  # it came with a copied folder, and went on where it was
                found[name] = _fetch(place, name, folder / journal.JOURNAL)
    if not places and not missing_ok:
        raise UserError(
            f"{uri}: no journal there (files NAME.head and NAME.000000.ndjson). Give the folder they are in."
        )
    return found


def _journals(uri: str) -> list[tuple[Place, list[str]]]:
    """Return the folders at or below a place that hold journals, with the names of the writers."""
    root = locate(uri)
    below = ("", journal.JOURNAL, journal.PULLED, f"lineage/{journal.JOURNAL}", f".geartrain/lineage/{journal.JOURNAL}")
    places = [root / part if part else root for part in below]
    listed = [
        (place, sorted(match[1] for name in place.names() if (match := journal.HEAD_NAME.fullmatch(name))))
        for place in places
    ]
    return [(place, names) for place, names in listed if names]


def _fetch(place: Place, name: str, target: Path) -> int:
    """Bring one writer's files; what is here already must be the beginning of them."""
    head = journal.parse_head((place / f"{name}.head").read())
    if head is None:
        raise UserError(f"{place.uri}/{name}.head: cannot be read; look at the store, or delete the file.")
    target.mkdir(parents=True, exist_ok=True)
    here = journal.read_head(target / f"{name}.head") or Head()
    for number in range(here.segment, head.segment + 1):
        path = journal.segment_path(target, name, number)
        old = path.read_bytes() if path.exists() else b""
        new = (place / path.name).read()
        if not new.startswith(old):
            raise UserError(
                f"{place.uri}/{path.name}: differs from what was pulled before ({path}). Nobody changes a journal in "
                f"good faith: compare the two, and keep both. Delete the files of {name} in {target} to pull it anew."
            )
        _replace(path, new)
    _replace(target / f"{name}.head", head.text())
    return head.count - here.count


def _is_ours(place: Place, name: str, head: Head, folder: Path) -> bool:
    """Tell whether what lies there under the name of a writer that is here too is a part of what we have.

    Raises:
        UserError: it is not, and the writer is ours to go on with.
    """
    there = journal.parse_head((place / f"{name}.head").read())
    if there is not None and _goes_on_from(there, head, folder, name):
        return True
    if head.inode in (0, (folder / journal.JOURNAL / f"{name}.head").stat().st_ino):
        raise UserError(
            f"{place.uri}/{name}.head: somebody has gone on from a copy of this lineage, under the same writer. Its "
            f"events were not taken: they and ours are two pasts of one file. Keep both; `geartrain lineage verify "
            "--dir` looks into each."
        )
    return False


def _goes_on_from(there: Head, head: Head, folder: Path, name: str) -> bool:
    same = (there.count, there.sha256) == (head.count, head.sha256)
    return there.count == 0 or same or _is_part(folder, name, there)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def _is_part(folder: Path, name: str, there: Head) -> bool:
    return any(number == there.count and sha256 == there.sha256 for number, sha256 in _hashes(folder, name))


def _hashes(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    head = Head()
    for path in journal.writers(folder).get(name, ()):
        for line in journal.read_lines(path):
            head = head.after(line.text, segment=0, size=0)
            yield head.count, head.sha256
