"""What a data set has reached: every artifact that was made from it, as far as lineage and manifests tell."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from geartrain.artifacts import MANIFEST, Manifest, origins, read_manifest
from geartrain.errors import UserError
from geartrain.home import LINEAGE
from geartrain.lineage.graph import Node
from geartrain.lineage.index import open_index
from geartrain.sources import content_digest
from geartrain.stages.stage import FOLDERS

WHOLE = 64
"""Hex digits of a digest."""
_HEX = re.compile(rf"[0-9a-f]{{4,{WHOLE}}}")


@dataclass(frozen=True)
class Reached:
    """An artifact that was made from something."""

    name: str
    """Its stage."""
    digest: str
    place: str
    """Folder, or "lineage" where only the events know of it."""
    model: bool


def reached_by(digest: str, project: Path, home: Path) -> list[Reached]:
    """Return what was made from a digest, models first.

    Args:
        digest: of a data set, model or file.
        project: whose artifacts are asked, and those of its `runs/`.
        home: below it lies the lineage, which knows of models whose folders are gone as well; those of `runs/` are
            asked too.
    """
    found: list[Reached] = []
    for folder in _artifacts(project):
        manifest = _manifest(folder)
        if manifest is not None and digest in origins(manifest):
            place = folder.relative_to(project)
            model = place.parent.name == "models"
            found.append(Reached(manifest.stage, manifest.digest, place.as_posix(), model))
    here = {one.digest for one in found}
    beyond = {node.digest: node for one in _homes(project, home) for node in _in_lineage(digest, one)}
    found += [Reached(node.name, node.digest, "lineage", True) for node in beyond.values() if node.digest not in here]
    return sorted(found, key=lambda one: (not one.model, one.name, one.place))


def _homes(project: Path, home: Path) -> list[Path]:
    return [home, *sorted(path.parent for path in (project / "runs").rglob(LINEAGE) if path.parent.name == home.name)]


def _in_lineage(digest: str, home: Path) -> list[Node]:
    try:
        with closing(open_index(home)) as index:
            return [reached.model for reached in index.models_reached(digest)]
    except UserError:  # there is no lineage, or it has never heard of this digest
        return []


def identify(target: str, project: Path, home: Path | None = None) -> tuple[str, str]:
    """Return (digest, name) of what a person wants to withdraw: a digest, an artifact's folder, or a file.

    A digest may be cut short where the lineage below `home` knows one thing only that begins so.

    Raises:
        UserError: it is none of these; or a file of an artifact, which is withdrawn as a whole.
    """
    kind, colon, rest = target.partition(":")
    digest = (rest if colon and kind in ("sha256", "dataset", "model") else target).lower()
    if _HEX.fullmatch(digest) and not Path(target).exists():
        return _by_digest(digest, project, home)
    place = Path(target)
    if not place.exists():
        place = project / FOLDERS.get(target, Path(target))
    if not place.exists():
        raise UserError(f"{target}: neither a digest (sha256, 64 hex digits) nor a folder or file here")
    if place.is_dir():
        return read_manifest(place).digest, _name(place, project)
    for folder in place.resolve().parents:
        if (folder / MANIFEST).is_file():
            raise UserError(f"{target}: is a part of {folder}, which is withdrawn as a whole: name the folder")
    return content_digest(place), _name(place, project)


def _by_digest(digest: str, project: Path, home: Path | None) -> tuple[str, str]:
    manifests = {folder: read for folder in _artifacts(project) if (read := _manifest(folder))}
    if len(digest) < WHOLE:
        if home is None or not home.is_dir():
            raise UserError(f"{digest}: write the whole digest; there is no lineage here that could complete it")
        with closing(open_index(home)) as index:
            digest = index.resolve(f"dataset:{digest}").id
    named = [folder for folder, manifest in manifests.items() if manifest.digest == digest]
    if named:
        return digest, _name(named[0], project)
    if not any(digest in origins(manifest) for manifest in manifests.values()):
        for folder, manifest in manifests.items():
            part = next((name for name, sha256 in manifest.files.items() if sha256 == digest), None)
            if part is not None:
                raise UserError(
                    f"{digest[:12]}: is {part}, a part of {folder}, which is withdrawn as a whole: name the folder"
                )
    return digest, ""


def _manifest(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except UserError:
        return None


def _artifacts(project: Path) -> Iterator[Path]:
    yield from (project / path for path in FOLDERS.values() if (project / path / MANIFEST).is_file())
    for path in sorted((project / "runs").rglob(MANIFEST)):
        if not any(part.startswith(".") for part in path.relative_to(project).parts):
            yield path.parent


def _name(place: Path, project: Path) -> str:
    whole = place.resolve()
    return whole.relative_to(project).as_posix() if whole.is_relative_to(project) else place.name
