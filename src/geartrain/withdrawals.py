"""What must not be used any more: tombstones of data sets, models and raw files, by digest.

A tombstone is a small JSON file in `data/withdrawn/`, tracked by git, named after the digest. Nothing is ever changed
or deleted there: what lifts a withdrawal, or renews it, is one more record, which carries the sha256 of the one before
it. So the folder says at any time what is withdrawn, and since when, and what was before.
"""

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from geartrain.artifacts import checkout, file_sha256, write_json
from geartrain.errors import UserError, WithdrawnError
from geartrain.wording import printable

FOLDER = Path("data/withdrawn")
"""Below the project."""
PLACES = "GEARTRAIN_WITHDRAWN"
"""Variable with the folders of tombstones, separated like $PATH; without it, the project's and the checkout's count."""
WITHDRAW, LIFT = "withdraw", "lift"
_FILE = re.compile(r"([0-9a-f]{64})(?:\.([1-9][0-9]*))?\.json")
_NOTHING = "0" * 64


@dataclass(frozen=True)
class Tombstone:
    """One record: from now on the digest is withdrawn, or no longer."""

    digest: str
    """sha256, hex: of an artifact (`Manifest.digest`) or of a file."""
    action: str
    """`WITHDRAW` or `LIFT`."""
    name: str
    """What the thing was called by whoever withdrew it."""
    reason: str
    by: str
    at: str
    """UTC, ISO 8601."""
    previous: str
    """sha256 of the record before this one of the same digest; zeros for the first."""

    def __str__(self) -> str:
        verb = "withdrawn" if self.action == WITHDRAW else "lifted"
        return printable(f"{verb} on {self.at[:10]} by {self.by}: {self.reason}")


def require_allowed(
    inputs: Mapping[str, str],
    made_from: Mapping[str, Mapping[str, str]] | None = None,
    parts: Mapping[str, Collection[str]] | None = None,
    active: Mapping[str, Tombstone] | None = None,
) -> None:
    """Refuse what is withdrawn, a file of which is, and what was made from it.

    Args:
        inputs: name -> digest of what is about to be used.
        made_from: input's name -> {digest: name} of all that it was made from (`artifacts.origins`).
        parts: input's name -> digests of its files.
        active: what `withdrawn` has said, where it was asked already.

    Raises:
        WithdrawnError: something is withdrawn.
        UserError: a tombstone cannot be read.
    """
    active = withdrawn() if active is None else active
    if not active:
        return
    problems = [f"{name} ({digest[:12]}) was {active[digest]}" for name, digest in inputs.items() if digest in active]
    problems += [
        f"{name} was made from {called} ({digest[:12]}), which was {active[digest]}"
        for name, origins in (made_from or {}).items()
        for digest, called in origins.items()
        if digest in active
    ]
    problems += [
        f"{name} holds a file ({digest[:12]}) that was {active[digest]}"
        for name, digests in (parts or {}).items()
        for digest in sorted(active.keys() & set(digests))
    ]
    if problems:
        hint = "Use another version (`geartrain data status` shows what is there) and run again what was made from it."
        raise WithdrawnError("\n".join([*dict.fromkeys(problems), hint]))


def withdrawn(folders: Sequence[Path] | None = None) -> dict[str, Tombstone]:
    """Return digest -> tombstone of all that is withdrawn now; what one of the folders (`places()`) lists counts.

    Raises:
        UserError: a record is unreadable, changed or missing: then nobody can say what may be used.
    """
    last = [records[-1] for folder in folders or places() for records in read_history(folder).values()]
    return {record.digest: record for record in last if record.action == WITHDRAW}


def read_history(folder: Path) -> dict[str, list[Tombstone]]:
    """Return digest -> its records, oldest first. Raises UserError as `withdrawn`."""
    found: dict[str, dict[int, Path]] = {}
    for path in sorted(folder.glob("*.json")):
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise UserError(
                f"{path}: is not named after a digest; tombstones are written by `geartrain data withdraw`."
            )
        found.setdefault(match[1], {})[int(match[2] or 1)] = path
    return {digest: _read_chain(digest, numbered) for digest, numbered in found.items()}


def record(folder: Path, digest: str, action: str, *, name: str, reason: str, by: str, at: str) -> Path:
    """Write the next record of a digest; return its path.

    Raises:
        UserError: it is in that state already, or an earlier record is broken.
    """
    history = read_history(folder).get(digest, [])
    state = history[-1].action if history else LIFT
    if state == action:
        told = f"is already {history[-1]}" if history else "is not withdrawn, so there is nothing to lift"
        raise UserError(f"{name} ({digest[:12]}): {told}")
    previous = file_sha256(_path(folder, digest, len(history))) if history else _NOTHING
    path = _path(folder, digest, len(history) + 1)
    write_json(path, asdict(Tombstone(digest, action, name, reason, by, at, previous)))
    return path


def places() -> list[Path]:
    """Return the folders of tombstones that count here: `$GEARTRAIN_WITHDRAWN`, or the project's and the checkout's."""
    named = os.environ.get(PLACES)
    if named:
        folders = [Path(name) for name in named.split(os.pathsep) if name]
        missing = [str(folder) for folder in folders if not folder.is_dir()]
        if missing:
            raise UserError(f"{PLACES}: no such folder: {missing[0]}, so nobody can say what is withdrawn. Mount it.")
        return folders
    return list(dict.fromkeys((root / FOLDER).resolve() for root in (project(Path()), checkout())))


def number_of(name: str) -> int:
    """Return which record of its digest a file is, from 1: its name tells, where a clock may have been set back."""
    match = _FILE.fullmatch(name)
    return int(match[2] or 1) if match else 0


def is_mounted() -> bool:
    """Tell whether the environment names the folders of tombstones."""
    return bool(os.environ.get(PLACES))


def project(folder: Path) -> Path:
    """Return the project that a folder belongs to: the nearest one above it with `.git` or `.dvc`, else itself."""
    here = folder.resolve()
    return next((one for one in (here, *here.parents) if (one / ".git").exists() or (one / ".dvc").is_dir()), here)


def _path(folder: Path, digest: str, number: int) -> Path:
    return folder / (f"{digest}.json" if number == 1 else f"{digest}.{number}.json")


def _read_chain(digest: str, numbered: Mapping[int, Path]) -> list[Tombstone]:
    previous, records = _NOTHING, []
    for number in range(1, max(numbered) + 1):
        if number not in numbered:
            first = next(iter(numbered.values()))
            raise UserError(f"{_path(first.parent, digest, number)}: this tombstone is missing. Get it back from git.")
        path = numbered[number]
        stone = read_record(path)
        if stone.digest != digest or stone.previous != previous:
            raise UserError(
                f"{path}: does not fit the tombstone before it, so one was changed. Get them back from git."
            )
        records.append(stone)
        previous = file_sha256(path)
    return records


def read_record(path: Path) -> Tombstone:
    """Return the tombstone in a file. Raises UserError: it is none."""
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        stone = Tombstone(**fields)
        if stone.action not in (WITHDRAW, LIFT) or not all(isinstance(value, str) for value in fields.values()):
            raise TypeError(f"action {stone.action!r}")
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: not a tombstone ({error}). Get it back from git.") from error
    return stone
