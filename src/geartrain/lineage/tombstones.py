"""Withdrawals as lineage knows them: that a tombstone was written, and what a withdrawn digest has reached.

Tombstones are files that git keeps; each is told of in the journal as well, by its sha256. So one that was removed or
edited is missed. And a manifest that was edited does not hide what an artifact was made from: events are asked too.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from geartrain import withdrawals
from geartrain.artifacts import Manifest, file_sha256, manifest_sha256, origins
from geartrain.errors import WithdrawnError
from geartrain.home import LINEAGE
from geartrain.lineage import events, evidence, mirror
from geartrain.lineage.events import Data
from geartrain.lineage.evidence import Told
from geartrain.lineage.index import open_all
from geartrain.withdrawals import Tombstone

JOB = "withdrawal"


@dataclass(frozen=True)
class Used:
    """Something that is about to be used."""

    name: str
    digest: str
    manifest: str = ""
    """sha256 of its manifest; "" where it has none."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Digest -> name of what its manifest says that it was made from."""
    parts: Collection[str] = ()
    """Digests of its files."""


def used(name: str, folder: Path, manifest: Manifest) -> Used:
    """Return an artifact as something that is about to be used."""
    return Used(name, manifest.digest, manifest_sha256(folder), origins(manifest), tuple(manifest.files.values()))


def require_allowed(
    homes: Sequence[Path],
    used: Sequence[Used],
    *,
    itself: bool = True,
    active: Mapping[str, Tombstone] | None = None,
) -> None:
    """Refuse what is withdrawn, a part of which is, or what was made from it by its manifest or by lineage.

    Args:
        homes: folders (`.geartrain`) whose lineage is asked, where they have one.
        used: what is about to be used.
        itself: whether it must not be withdrawn itself; else only what it was made from.
        active: what `withdrawals.withdrawn` has said, where it was asked already.

    Raises:
        WithdrawnError: something is withdrawn, or a tombstone that matters here is gone.
        UserError: a tombstone cannot be read.
        InfrastructureError: something is withdrawn, and the place that GEARTRAIN_LINEAGE names did not answer.
    """
    active = withdrawals.withdrawn() if active is None else active
    if active and homes and (uri := os.environ.get(mirror.VARIABLE)):
        mirror.pull(homes[0] / LINEAGE, uri, missing_ok=True)
    reached = {one.name: dict(one.origins) for one in used}
    gone: dict[str, Told] = {}
    for index in open_all(homes):
        gone.update({told.digest: told for told in missing(evidence.tombstones(index)) if told.digest not in active})
        for one in used if active or gone else ():
            reached[one.name] = {**evidence.origins(index, one.digest, one.manifest), **reached[one.name]}
    named = {one.name: one.digest for one in used} if itself else {}
    parts = {one.name: one.parts for one in used} if itself else {}
    withdrawals.require_allowed(named, reached, parts, active)
    for one in used:
        for digest in (*reached[one.name], *((one.digest, *one.parts) if itself else ())):
            if digest in gone:
                raise WithdrawnError(
                    f"{one.name}: {describe(gone[digest])}. Get it back from git; nothing else lifts it."
                )


def missing(told: Sequence[Told]) -> list[Told]:
    """Return what was told last of each digest, if that was a withdrawal and its tombstone is not as it was written."""
    last = {one.digest: one for one in sorted(told, key=lambda one: withdrawals.number_of(one.record))}
    return [one for one in last.values() if one.action == withdrawals.WITHDRAW and not _is_there(one)]


def changed(told: Sequence[Told]) -> list[Told]:
    """Return all that was told of tombstones that are not as they were written, or gone."""
    return [one for one in told if not _is_there(one)]


def describe(told: Told) -> str:
    """Return in a line what is wrong where a tombstone is missing."""
    return (
        f"sha256 {told.digest[:12]} was withdrawn on {told.time[:10]}, and its tombstone ({withdrawals.FOLDER}/"
        f"{told.record}) is gone, or was changed"
    )


@contextmanager
def recorded(log: Path, digest: str, name: str) -> Iterator[list[Path]]:
    """Tell lineage of a tombstone that the block writes: it puts the path into the list that it gets."""
    written: list[Path] = []
    run = {
        "run_id": events.new_run_id(),
        "job": JOB,
        "inputs": [Data(name or f"sha256:{digest[:12]}", digest, "source")],
    }
    events.emit(log, "START", **run, outputs=())  # type: ignore[arg-type]
    try:
        yield written
    except BaseException as error:
        reason = {"type": type(error).__name__, "message": str(error)}
        events.emit(log, "FAIL", **run, outputs=(), facets={"error": reason})  # type: ignore[arg-type]
        raise
    (path,) = written
    stone = withdrawals.read_record(path)
    facet = {"digest": digest, "action": stone.action, "record": path.name, "sha256": file_sha256(path)}
    events.emit(log, "COMPLETE", **run, outputs=(), facets={"withdrawal": facet})  # type: ignore[arg-type]


def _is_there(told: Told) -> bool:
    paths = [folder / told.record for folder in withdrawals.places()]
    return any(path.is_file() and file_sha256(path) == told.sha256 for path in paths)
