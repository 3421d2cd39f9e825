"""Where the rows of a data set lie beside the artifacts that were made from it: who has to erase them asks that.

Copies of the artifact itself, and what stages leave in a workspace's home: episodes recorded while they ran, work in
progress, gathered feature tables.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from geartrain import live
from geartrain.home import LINEAGE, WORK
from geartrain.lineage import events, journal
from geartrain.versions.reach import artifacts_in, manifest_in

SAME, PART = "the same bytes", "holds it as a file"


@dataclass(frozen=True)
class Copy:
    """A place that holds rows of something."""

    place: str
    """A folder, seen from the project if it lies there."""
    what: str


def find_copies(digest: str, reached: Collection[str], project: Path, homes: Sequence[Path]) -> list[Copy]:
    """Return where rows of a digest lie, or of what was made from it, beside the artifacts that were made from it.

    Args:
        digest: of a data set, model or file.
        reached: digests of all that was made from it.
        project: below it artifacts are looked for.
        homes: of the workspaces in it.
    """
    found = [(folder, what) for folder in artifacts_in(project) if (what := _holds(folder, digest))]
    for home in homes:
        found += _left_behind(home, {digest, *reached})
    return [Copy(_seen_from(project, place), what) for place, what in found]


def _holds(folder: Path, digest: str) -> str:
    manifest = manifest_in(folder)
    if manifest is None:
        return ""
    return SAME if manifest.digest == digest else PART if digest in manifest.files.values() else ""


def _left_behind(home: Path, marked: Collection[str]) -> Iterator[tuple[Path, str]]:
    """Yield (folder, what it is) of all in a home that goes back to one of the digests, or of which nobody can say."""
    for name, what in ((live.FOLDER, "what was recorded while {} ran"), (WORK, "work in progress of {}")):
        for folder in sorted(path for path in (home / name).glob("*") if path.is_dir()):
            stage, _, key = folder.name.rpartition("-")
            told = journal.find(home / LINEAGE, key) if stage else []
            if not told:
                yield folder, f"{what.format(stage or 'something')}; no lineage tells of what"
            elif any(_names(event, marked) for event in told):
                yield folder, what.format(stage)
    features = home / "features"
    if features.is_dir() and any(journal.find(home / LINEAGE, one) for one in sorted(marked)):
        yield features, "gathered feature tables"


def _names(event: journal.Event, marked: Collection[str]) -> bool:
    return any(digest in marked for side in ("inputs", "outputs") for digest in events.digests(event, side).values())


def _seen_from(project: Path, place: Path) -> str:
    return place.relative_to(project).as_posix() if place.is_relative_to(project) else str(place)
