"""The journal: append-only files of lineage events, one event a line, each line chained to the one before by its hash.

    journal/WRITER.000000.ndjson, WRITER.000001.ndjson, …    the events of one writer, in segments
    journal/WRITER.head                                      how far that writer has come: count and hash

A file has one writer at a time: whoever holds the lock on its head. A process takes the first writer that is free, and
makes a new one where none is, so several at once wait for nobody and lose nothing. The chain goes on from segment to
segment. A head is a lower bound: after a crash between line and head the next writer reads on from there; a file that
is shorter than its head was cut, and nobody writes to it again. A line cut short by SIGKILL is ended, and the chain
runs over it as over any other.
"""

import fcntl
import hashlib
import heapq
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

Event = dict[str, Any]
JOURNAL, PULLED = "journal", "pulled"
"""Folders of a lineage folder: what was written here, and what `geartrain lineage pull` brought."""
GENESIS = "0" * 64
"""What the first line of a writer names as the one before."""
CHAIN = "geartrain_chain"
"""Run facet of an event: `writer`, `sequence` (0 is the first) and `previous`."""
SEGMENT_BYTES = 4 * 2**20
"""A longer segment is ended: what is copied away and hashed anew stays small."""
HEAD_NAME = re.compile(r"([0-9a-f]{16})\.head")
_SEGMENT = re.compile(r"([0-9a-f]{16})\.(\d{6})\.ndjson")
_HEAD_BYTES = 200
_TRIES = 100


@dataclass(frozen=True)
class Head:
    """How far a writer has come."""

    count: int = 0
    """Lines, over all segments."""
    sha256: str = GENESIS
    """Of the last line, hex."""
    segment: int = 0
    size: int = 0
    """Bytes of that segment."""
    inode: int = 0
    """Of the head's own file: a copy of it is nobody's to go on from, or two would write one chain. 0: not noted."""

    def text(self) -> bytes:
        """Return it as the contents of its file: always of one length, so that it is overwritten in place."""
        return json.dumps(asdict(self)).encode().ljust(_HEAD_BYTES - 1) + b"\n"

    def after(self, line: bytes, *, segment: int, size: int) -> "Head":
        """Return the head after one line more (without its newline), in a segment that then has `size` bytes."""
        return Head(self.count + 1, hashlib.sha256(line).hexdigest(), segment, size, self.inode)


@dataclass(frozen=True)
class Line:
    """A line of the journal; `event` is None where it is none (cut short by a crash, or harmed)."""

    path: Path
    offset: int
    """Bytes before it in its segment."""
    text: bytes
    event: Event | None
    ended: bool
    """Whether a newline follows; only the last line may lack it."""


Usable = Callable[[str, Head], bool]
"""Whether a writer of that name may go on from there; asked while its lock is held."""


def append(
    folder: Path, event: Event, *, usable: Usable | None = None, then: Callable[[str], None] | None = None
) -> Event:
    """Append an event to one of the writers of a lineage folder; return it with its place in the chain.

    It is on disk (fsync) when this returns. `then` is called with the writer's name while it is still locked.

    Raises:
        OSError: the disk is full or refuses; what was written so far does no harm.
    """
    journal = folder / JOURNAL
    journal.mkdir(parents=True, exist_ok=True)
    with _free_writer(journal, usable or (lambda name, head: True)) as (name, head, handle):
        facets = event["run"].setdefault("facets", {})
        facets[CHAIN] = {**facets.get(CHAIN, {}), "writer": name, "sequence": head.count, "previous": head.sha256}
        line = json.dumps(event, sort_keys=True, separators=(",", ":")).encode()
        full = head.size and head.size + len(line) > SEGMENT_BYTES
        segment, size = (head.segment + 1, 0) if full else (head.segment, head.size)
        _write(segment_path(journal, name, segment), line + b"\n")
        os.pwrite(handle, head.after(line, segment=segment, size=size + len(line) + 1).text(), 0)
        if then is not None:
            then(name)
    return event


def read_head(path: Path) -> Head | None:
    """Return what a head's file says: nothing yet if it is empty, None if that cannot be read."""
    try:
        return parse_head(path.read_bytes())
    except OSError:
        return None


def parse_head(text: bytes) -> Head | None:
    """Return a head from its file's contents; None if they are none."""
    if not text.strip():
        return Head()
    try:
        record = json.loads(text)
        head = Head(**record)
        numbers = (head.count, head.segment, head.size, head.inode)
        return head if all(isinstance(n, int) and n >= 0 for n in numbers) and len(head.sha256) == 64 else None
    except (ValueError, TypeError, RecursionError):
        return None


def segment_path(journal: Path, writer: str, number: int) -> Path:
    """Return the path of a writer's n-th segment."""
    return journal / f"{writer}.{number:06d}.ndjson"


def writers(folder: Path) -> dict[str, list[Path]]:
    """Return the segments of every writer of a lineage folder, in order; what was pulled of our own is left out."""
    found: dict[str, list[Path]] = {}
    for place in (folder / JOURNAL, folder / PULLED):
        here: dict[str, list[Path]] = {}
        for path in sorted(place.glob("*.ndjson")):
            if match := _SEGMENT.fullmatch(path.name):
                here.setdefault(match[1], []).append(path)
        found = {**here, **found}
    return found


def cut(folder: Path) -> list[str]:
    """Return the names of segments that are gone, or shorter than their writer's head says; of heads that say nothing.

    A few looks at each writer: no line is read, so this is no proof (`verification`).
    """
    found = []
    for path in sorted(path for place in (JOURNAL, PULLED) for path in (folder / place).glob("*.head")):
        head = read_head(path)  # before the files that it tells of: others may be writing
        if head is None:
            found.append(path.name)
            continue
        for number in range(head.segment + 1 if head.count else 0):
            segment = segment_path(path.parent, path.stem, number)
            size = segment.stat().st_size if segment.is_file() else -1
            if size < (head.size if number == head.segment else 0):
                found.append(segment.name)
    return found


def read_lines(path: Path, offset: int = 0) -> Iterator[Line]:
    """Yield the lines of a segment from a place on at which one begins."""
    with path.open("rb") as file:
        file.seek(offset)
        for raw in file:
            text = raw.rstrip(b"\n")
            yield Line(path, offset, text, parse_event(text), raw.endswith(b"\n"))
            offset += len(raw)


def parse_event(text: bytes, parse: Callable[[bytes], Any] = json.loads) -> Event | None:
    """Return the event that a line is, or None. `parse` may know less than `json`, which is asked then."""
    for one in dict.fromkeys((parse, json.loads)):
        try:
            event = one(text)
        except (ValueError, RecursionError):
            continue
        return event if _is_event(event) else None
    return None


def is_json(text: bytes) -> bool:
    """Tell whether a line is whole JSON: then no crash has cut it."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_event(event: Any) -> bool:
    """Tell whether a value has the shape on which everything that reads events relies."""
    if not isinstance(event, dict):
        return False
    job, run = event.get("job"), event.get("run")
    if not (isinstance(job, dict) and isinstance(run, dict)):
        return False
    for name in (event.get("eventType"), event.get("eventTime"), job.get("name"), run.get("runId")):
        if not isinstance(name, str):
            return False
    return _are_facets(run.get("facets")) and _are_data(event.get("inputs")) and _are_data(event.get("outputs"))


def _are_data(value: Any) -> bool:
    for item in [] if value is None else value if isinstance(value, list) else [None]:
        if not (isinstance(item, dict) and isinstance(item.get("name", ""), str) and _are_facets(item.get("facets"))):
            return False
    return True


def _are_facets(value: Any) -> bool:
    for facet in () if value is None else value.values() if isinstance(value, dict) else (None,):
        if not isinstance(facet, dict):
            return False
    return True


def read_events(folder: Path) -> list[Event]:
    """Return every event of a lineage folder by time; those of one writer stay in their order.

    Lines that are no events are left out: `geartrain lineage verify` names them.
    """
    return [event for _, _, event in in_order(folder)]


def in_order(folder: Path, done: Mapping[str, int] | None = None) -> Iterator[tuple[str, int, Event]]:
    """Yield (writer, which of its events, event) by time; the first `done[writer]` events of a writer are left out."""
    chains = (_timed(name, paths) for name, paths in sorted(writers(folder).items()))
    for _, name, number, event in heapq.merge(*chains, key=lambda entry: entry[:3]):
        if number >= (done or {}).get(name, 0):
            yield name, number, event


def find(folder: Path, text: str) -> list[Event]:
    """Return the events whose line holds a text, such as a digest or the id of a run, by time. Parses little."""
    wanted, found = text.encode(), []
    for paths in writers(folder).values():
        for path in paths:
            data = path.read_bytes()
            if wanted in data:
                found += [parse_event(line) for line in data.split(b"\n") if wanted in line]
    return sorted((event for event in found if event), key=lambda event: str(event["eventTime"]))


def _timed(name: str, paths: list[Path]) -> Iterator[tuple[str, str, int, Event]]:
    """Yield (time, writer, number, event); a clock that was set back does not reorder what one writer wrote."""
    latest, number = "", 0
    for path in paths:
        for line in read_lines(path):
            if line.event is not None:
                latest = max(latest, str(line.event["eventTime"]))
                yield latest, name, number, line.event
                number += 1


@contextmanager
def _free_writer(journal: Path, usable: Usable) -> Iterator[tuple[str, Head, int]]:
    """Lock a writer that nobody holds and that is whole; a new one if there is none."""
    known = sorted(path.stem for path in journal.glob("*.head"))
    # between making a new one and locking it another process may have taken it: then it makes one more
    for name in (*known, *(uuid.uuid4().hex[:16] for _ in range(_TRIES))):
        handle = os.open(journal / f"{name}.head", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            head = parse_head(os.pread(handle, 2 * _HEAD_BYTES, 0))
            inode = os.fstat(handle).st_ino
            if head is not None and head.inode in (0, inode):
                head = _caught_up(journal, name, replace(head, inode=inode))
                if head is not None and usable(name, head):
                    yield name, head, handle
                    return
        finally:
            os.close(handle)  # gives the lock back
    raise AssertionError(f"{_TRIES} new writers were taken by others")


def _caught_up(journal: Path, name: str, head: Head) -> Head | None:
    """Return the head after what a crash left behind it; None if the files are shorter than it says."""
    path = segment_path(journal, name, head.segment)
    size = path.stat().st_size if path.exists() else 0
    if size < head.size:
        return None
    if size > head.size:
        head = _read_on(path, head, head.segment, head.size)
    while (path := segment_path(journal, name, head.segment + 1)).exists():
        head = _read_on(path, head, head.segment + 1, 0)
    return head


def _read_on(path: Path, head: Head, segment: int, offset: int) -> Head:
    for line in list(read_lines(path, offset)):
        if not line.ended:
            _write(path, b"\n")
        head = head.after(line.text, segment=segment, size=line.offset + len(line.text) + 1)
    return head


def _write(path: Path, data: bytes) -> None:
    new = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    if new:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
