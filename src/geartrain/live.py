"""What happens to a stage while it runs, told line by line to whoever looks: exporter, terminal, run page, diagnosis.

One append-only file of JSON lines per piece of work. It is no output of the
stage: it holds times, and it stays when the stage is over. One process writes
it, the one that holds the stage's lock. Every line has `time` (unix seconds)
and `kind`:

    begin       stage, key, pid, parameters, run, dataset, image, commit; again when a killed run is resumed
    progress    label, done, total, status; at most one a second and label
    iteration   index, seconds, tokens, ranks, record (the line of history.jsonl); of one index the last counts
    checkpoint  step, seconds
    skipped     a step was not taken: loss or gradient was not finite
    mismatch    nats; why the run is about to fail
    lineage     reason; an event of lineage was not copied
    end         outcome (complete, failed, interrupted), reason, error (its type), metrics

`geartrain.cluster.outcomes` tells of stages that it sees from outside, with lines that no stage writes: `end` with the
`seconds` that it took, and

    queue       seconds that a training job has waited for its place; None when it has it

A watcher is never worth a run: what cannot be written is said once, and not tried again.
"""

import fcntl
import json
import math
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from geartrain import logs
from geartrain.errors import GeartrainError
from geartrain.home import WORK
from geartrain.preemption import PreemptedError
from geartrain.scrubbing import scrub

Line = dict[str, Any]
FOLDER = "live"
"""Folder of these files, below a workspace's `.geartrain`."""
PROGRESS_EVERY_SECONDS = 1.0
FRESH_SECONDS = 15.0
"""A stage whose lock nobody holds here is at work elsewhere (in a pod, say) if its record is no older."""
LONGEST = 16 * 1024 * 1024
"""Bytes of a line that is read at once; an iteration of many families has some ten thousand."""
_listeners: list[Callable[[Line], None]] = []
_file: TextIO | None = None
_progress_at: dict[str, float] = {}


@contextmanager
def telling(path: Path, **known: Any) -> Iterator[dict[str, Any]]:
    """Append to `path` what is emitted while the block runs, between `begin` (with `known`) and `end`.

    Yields what `end` will say besides its outcome; the caller may add to it.
    """
    global _file
    _file = _opened(path)
    _progress_at.clear()
    ending: dict[str, Any] = {}
    try:
        emit("begin", **known)
        yield ending
    except BaseException as error:
        asked = isinstance(error, PreemptedError) or not isinstance(error, Exception)
        reason = str(error) if isinstance(error, GeartrainError) else repr(error)
        told = {"reason": scrub(reason), "error": type(error).__name__, **ending}
        emit("end", outcome="interrupted" if asked else "failed", **told)
        raise
    else:
        emit("end", outcome="complete", reason=None, **ending)
    finally:
        _forget()


def emit(kind: str, **fields: Any) -> None:
    """Tell the listeners, and the file of the stage that runs here, if one does; values are JSON-ready.

    A number that is not finite becomes None: JSON has no word for it.
    """
    line: Line = {"time": time.time(), "kind": kind, **_finite(fields)}
    if _file is not None:
        try:
            _file.write(json.dumps(line, ensure_ascii=False) + "\n")
            _file.flush()
        except OSError as error:
            _give_up(error)
    for listener in tuple(_listeners):
        listener(line)


def progress(label: str, done: int, total: int | None, status: str | None) -> None:
    """Emit how far something is, unless that was done less than a second ago; its end is always told."""
    now = time.monotonic()
    if done != total and now - _progress_at.get(label, -math.inf) < PROGRESS_EVERY_SECONDS:
        return
    _progress_at[label] = now
    emit("progress", label=label, done=done, total=total, status=status)


def subscribe(listener: Callable[[Line], None]) -> Callable[[], None]:
    """Call `listener` with every line emitted in this process from now on; returns what ends that."""
    _listeners.append(listener)

    def end() -> None:
        with suppress(ValueError):
            _listeners.remove(listener)

    return end


def read(path: Path, kinds: Container[str] | None = None) -> list[Line]:
    """Return the lines of a file, of some kinds or of all, in order; what cannot be read of it is left out.

    Raises:
        OSError: the file cannot be read.
    """
    found = (line for line, _ in follow(path, 0) if line is not None)
    return [line for line in found if kinds is None or line["kind"] in kinds]


def follow(path: Path, position: int) -> Iterator[tuple[Line | None, int]]:
    """Yield the whole lines from a byte position on, each with the position after it; a file that shrank is read anew.

    A line is None if a kill cut it short, a fault of the disk garbled it, or it is none that `parse` takes. Memory is
    bounded whatever the file holds: what is longer than `LONGEST` is read in pieces.
    """
    with path.open("rb") as file:
        file.seek(position if position <= file.seek(0, 2) else 0)
        while data := file.readline(LONGEST):
            if not data.endswith(b"\n") and len(data) < LONGEST:  # still being written
                return
            yield parse(data), file.tell()


def parse(text: bytes) -> Line | None:
    """Return a line as everybody who watches may take it for granted; None for what is none.

    Files outlive versions and disks. Numbers are finite or None, as `emit` writes them; a field of a type that it never
    has is not there; a line without what its kind cannot do without is none.
    """
    try:
        line = _JSON.decode(text.decode())
        if _HALF.search(text):  # half a character can be told in JSON, and be written nowhere else
            line = json.loads(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str) or not _is_number(line.get("time")):
        return None
    types, needed = _FIELDS.get(line["kind"], ({}, ()))
    line = {name: value for name, value in line.items() if isinstance(value, types.get(name, object))}
    if not all(name in line for name in needed):
        return None
    for name in _AMOUNTS & line.keys() if line["kind"] == "iteration" else ():
        line[name] = {key: value for key, value in line[name].items() if _is_number(value)}
    return line


def iterations(lines: Sequence[Line]) -> list[Line]:
    """Return the iteration lines that count, by index: of an iteration that a resumed run did again, the last."""
    kept: dict[int, Line] = {line["index"]: line for line in lines if line["kind"] == "iteration"}
    return [kept[index] for index in sorted(kept)]


def stage_of(path: Path) -> str:
    """Return the stage that a file tells of."""
    return path.stem.rpartition("-")[0]


def is_held(path: Path) -> bool:
    """Tell whether a process here holds the lock of the work that a file tells of, as `stages.stage` does.

    Whoever wants the lock in this moment waits for microseconds.
    """
    return _is_locked(path.parent.parent / WORK / f"{path.stem}.lock")


def at_work(home: Path) -> set[str]:
    """Return the stages of which a process here holds the work, or the output; `home` is the workspace's."""
    held = [path.stem for path in (home / WORK).glob("*.lock") if _is_locked(path)]
    return {name.partition("-")[0] for name in held}


def _is_locked(path: Path) -> bool:
    try:
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def is_at_work(path: Path, updated: float) -> bool:
    """Tell whether a stage that has said no end is at work: its lock is held here, or it told something just now.

    Args:
        path: its file.
        updated: time of its last line, unix seconds.
    """
    return is_held(path) or time.time() - updated < FRESH_SECONDS


def _opened(path: Path) -> TextIO | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _end_torn_line(path)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        _give_up(error)
        return None


def _end_torn_line(path: Path) -> None:
    """Let what follows a line that a kill cut short begin on a line of its own."""
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb+") as file:
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            file.write(b"\n")


def _give_up(error: OSError) -> None:
    _forget()
    logs.say(f"live record: {error}; nobody can watch this stage, which goes on. Is the disk full?", level=logs.WARNING)


def _forget() -> None:
    global _file
    if _file is not None:
        with suppress(OSError):
            _file.close()
    _file = None


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole(text: str) -> int | float | None:
    return int(text) if len(text) <= _DIGITS else _number(text)


_JSON = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_number, parse_int=_whole)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_DIGITS = 18
"""Of a whole number that counts something; longer ones are floats, or too large for one."""
_FIELDS: Mapping[str, tuple[Mapping[str, type], tuple[str, ...]]] = {
    # kind: types of its fields, fields without which it says nothing
    "begin": ({"parameters": dict}, ()),
    "progress": ({"label": str, "done": int, "total": int}, ("label", "done")),
    "iteration": (
        {"index": int, "record": dict, "seconds": dict, "tokens": dict, "ranks": list},
        ("index", "record"),
    ),
    "end": ({"outcome": str, "metrics": dict}, ()),
}
_AMOUNTS = {"seconds", "tokens"}
"""Fields of an iteration that hold numbers alone."""
