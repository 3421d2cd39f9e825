"""What a data set has reached: every artifact that was made from it, as far as lineage and manifests tell."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from geartrain.artifacts import MANIFEST, origins, read_manifest
from geartrain.errors import UserError
from geartrain.lineage.graph import Node
from geartrain.lineage.index import open_index
from geartrain.sources import content_digest
from geartrain.stages.stage import FOLDERS


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
        home: below it lies the lineage, which knows of models whose folders are gone as well.
    """
    found: list[Reached] = []
    for folder in _artifacts(project):
        try:
            manifest = read_manifest(folder)
        except UserError:
            continue
        if digest in origins(manifest):
            place = folder.relative_to(project)
            model = place.parent.name == "models"
            found.append(Reached(manifest.stage, manifest.digest, place.as_posix(), model))
    here = {one.digest for one in found}
    beyond = [node for node in _in_lineage(digest, home) if node.digest not in here]
    found += [Reached(node.name, node.digest, "lineage", True) for node in beyond]
    return sorted(found, key=lambda one: (not one.model, one.name, one.place))


def _in_lineage(digest: str, home: Path) -> list[Node]:
    try:
        with closing(open_index(home)) as index:
            return [reached.model for reached in index.models_reached(digest)]
    except UserError:  # there is no lineage, or it has never heard of this digest
        return []


def identify(target: str, project: Path) -> tuple[str, str]:
    """Return (digest, name) of what a person wants to withdraw: a digest, an artifact's folder, or a file.

    Raises:
        UserError: it is none of these; or a file of an artifact, which is withdrawn as a whole.
    """
    digest = target.removeprefix("sha256:")
    if len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
        named = [folder for folder in _artifacts(project) if _digest(folder) == digest]
        return digest, _name(named[0], project) if named else ""
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


def _digest(folder: Path) -> str:
    try:
        return read_manifest(folder).digest
    except UserError:
        return ""


def _artifacts(project: Path) -> Iterator[Path]:
    yield from (project / path for path in FOLDERS.values() if (project / path / MANIFEST).is_file())
    for path in sorted((project / "runs").rglob(MANIFEST)):
        if not any(part.startswith(".") for part in path.relative_to(project).parts):
            yield path.parent


def _name(place: Path, project: Path) -> str:
    whole = place.resolve()
    return whole.relative_to(project).as_posix() if whole.is_relative_to(project) else place.name
