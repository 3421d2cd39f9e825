"""What a data set has reached: every artifact that was made from it, as far as lineage and manifests tell."""

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from geartrain.artifacts import MANIFEST, Manifest, folders_in, origins, read_manifest
from geartrain.errors import UserError
from geartrain.home import LINEAGE
from geartrain.lineage import journal
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


def reached_by(digest: str, project: Path, homes: Sequence[Path]) -> list[Reached]:
    """Return what was made from a digest, models first.

    Args:
        digest: of a data set, model or file.
        project: whose artifacts are asked, wherever they lie in it.
        homes: whose lineage is asked (`homes_of`), which knows of models whose folders are gone as well.
    """
    beyond = _in_lineage(digest, homes)
    found: list[Reached] = []
    for folder in artifacts_in(project):
        manifest = manifest_in(folder)
        if manifest is not None and (digest in origins(manifest) or manifest.digest in beyond):
            place = folder.relative_to(project)
            model = FOLDERS.get(manifest.stage, place).parts[0] == "models"
            found.append(Reached(manifest.stage, manifest.digest, place.as_posix(), model))
    here = {one.digest for one in found}
    models = [node for node in beyond.values() if node.type == "model" and node.digest not in here]
    found += [Reached(node.name, node.digest, "lineage", True) for node in models]
    return sorted(found, key=lambda one: (not one.model, one.name, one.place))


def homes_of(project: Path, home: Path) -> list[Path]:
    """Return the homes of a project's workspaces: its own, and those in its `runs/`."""
    return [home, *sorted(path.parent for path in (project / "runs").rglob(LINEAGE) if path.parent.name == home.name)]


def _in_lineage(digest: str, homes: Sequence[Path]) -> dict[str, Node]:
    """Return digest -> node of all that was made from something: one workspace may go on where another ended."""
    found: dict[str, Node] = {}
    with ExitStack() as opened:
        indices = [opened.enter_context(closing(open_index(home))) for home in homes if journal.writers(home / LINEAGE)]
        asked: list[set[str]] = [set() for _ in indices]
        while any({digest, *found} - seen for seen in asked):
            for index, seen in zip(indices, asked, strict=True):
                roots = {digest, *found} - seen
                nodes = index.made_from(roots)
                found.update({node.digest: node for node in nodes if node.digest != digest})
                seen |= roots | {node.digest for node in nodes}
    return found


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
    manifests = {folder: read for folder in artifacts_in(project) if (read := manifest_in(folder))}
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


def manifest_in(folder: Path) -> Manifest | None:
    """Return the manifest of a folder; None if it is none of ours."""
    try:
        return read_manifest(folder)
    except UserError:
        return None


def artifacts_in(project: Path) -> list[Path]:
    """Return the folders of a project that hold a manifest, those of stages first; hidden ones are left out.

    In `runs/` they are looked for at any depth, else in two.
    """
    below = [path.parent for path in (project / "runs").rglob(MANIFEST)]
    seen = [one for one in below if not any(part.startswith(".") for part in one.relative_to(project).parts)]
    return sorted(
        {*folders_in(project), *seen}, key=lambda one: (one.relative_to(project) not in FOLDERS.values(), one)
    )


def _name(place: Path, project: Path) -> str:
    whole = place.resolve()
    return whole.relative_to(project).as_posix() if whole.is_relative_to(project) else place.name
