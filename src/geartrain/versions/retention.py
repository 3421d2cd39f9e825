"""What may go from DVC's cache and remote: what no tag holds, unless a promoted model was made from it.

DVC knows versions by md5, lineage and manifests by sha256. What a version is called there is read from the version
itself: of an artifact from its manifest, of anything else from its bytes.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geartrain.artifacts import MANIFEST, fingerprint, origins, read_manifest
from geartrain.config_file import read_yaml
from geartrain.errors import UserError
from geartrain.lineage.index import open_index
from geartrain.places import MissingError, Place, locate
from geartrain.pointers import FOLDER
from geartrain.versions import dvc_command, git_command
from geartrain.versions.tracked import LOCK, POINTER, list_tracked
from geartrain.withdrawals import withdrawn

OBJECTS = "files/md5"
"""Of a cache or remote: below it an object lies at `<2 digits>/<the others>`."""
PROMOTED = "promoted"


@dataclass(frozen=True)
class Version:
    """One version of a data set or model in a cache or remote."""

    md5: str
    digest: str
    """sha256: of an artifact its manifest's; "" where the bytes are not all there."""
    name: str
    """What made it, or where it lay."""
    needed_by: str
    """A promoted model that was made from it; "" if none was."""


def needed(project: Path, home: Path) -> dict[str, str]:
    """Return digest -> promoted model of all that promoted models are and were made from, by lineage and manifests.

    What was withdrawn is not among it: it is to go.
    """
    found: dict[str, str] = {}
    with closing(open_index(home)) as index:
        for model in [node for node in index.artifacts() if node.promoted]:
            found |= {node.digest: model.label for node in index.up(model) if node.digest}
    for folder in [project / "models" / PROMOTED, *sorted((project / "runs").glob(f"*/models/{PROMOTED}"))]:
        if (folder / "model").is_dir():
            manifest = read_manifest(folder)
            label = f"{manifest.stage} {manifest.digest[:12]}"
            found |= dict.fromkeys((manifest.digest, *origins(manifest)), label)
    stones = withdrawn()
    return {digest: model for digest, model in found.items() if digest not in stones}


def tagged(project: Path) -> dict[str, str]:
    """Return md5 -> path of every version that the workspace or a tag holds."""
    kept = {item.md5: item.path for item in list_tracked(project)}
    for tag in _git(project, "tag").split():
        kept |= _outs_of(project, tag)
    return kept


def untagged(project: Path, store: Place, needs: Mapping[str, str]) -> list[Version]:
    """Return the versions of a cache or remote that neither the workspace nor a tag holds, needed ones first."""
    kept = tagged(project)
    known: dict[str, str] = {}
    for commit in _git(project, "log", "--all", "--format=%H", "--", LOCK, f"*{POINTER}").split():
        known |= _outs_of(project, commit)
    names = dict.fromkeys(_folders(store), "") | known
    found = []
    for md5, path in names.items():
        if md5 in kept or not _there(store, md5):
            continue
        digest, name = _describe(store, md5)
        found.append(Version(md5, digest, name or path, needs.get(digest, "")))
    return sorted(found, key=lambda version: (not version.needed_by, version.name, version.md5))


def cache_of(project: Path) -> Place:
    """Return the cache of a project."""
    return locate(dvc_command.call(["cache", "dir"], folder=project))


def remote_of(project: Path) -> Place:
    """Return the default remote of a project. Raises UserError: it has none, or tracks nothing yet."""
    tracked = list_tracked(project)
    if not tracked:
        raise UserError(f"{project}: DVC tracks nothing here yet")
    uri = dvc_command.call(["get", "--show-url", "--", str(project), tracked[0].path], folder=project)
    root, separator, _ = uri.partition(f"/{OBJECTS}/")
    if not separator:
        raise UserError(f"{uri}: is no object by content. Use a remote without version_aware.")
    return locate(root)


def collect(project: Path, *, cloud: bool) -> str:
    """Delete what neither the workspace nor a tag holds; return what DVC says."""
    arguments = ["gc", "--force", "--workspace", *(["--all-tags"] if _git(project, "tag") else [])]
    return dvc_command.call([*arguments, *(["--cloud"] if cloud else [])], folder=project)


def _outs_of(project: Path, commit: str) -> dict[str, str]:
    """Return md5 -> path of what a commit's `dvc.lock` and `.dvc` files hold."""
    found: dict[str, str] = {}
    for name in _git(project, "ls-tree", "-r", "--name-only", commit).splitlines():
        if name != LOCK and not name.endswith(POINTER):
            continue
        record = read_yaml(_git(project, "show", f"{commit}:./{name}"), source=f"{name} of {commit}") or {}
        stages = record.get("stages", {}).values() if name == LOCK else [record]
        folder = Path(name).parent
        outs = [out for stage in stages for out in stage.get("outs", ()) if "md5" in out]
        found |= {str(out["md5"]): (folder / str(out["path"])).as_posix() for out in outs}
    return found


def _folders(store: Place) -> Iterator[str]:
    """Yield the md5 of every folder's list."""
    for number in range(256):
        prefix = f"{number:02x}"
        yield from (f"{prefix}{name}" for name in (store / OBJECTS / prefix).names() if name.endswith(FOLDER))


def _there(store: Place, md5: str) -> bool:
    return md5[2:] in (store / OBJECTS / md5[:2]).names()


def _describe(store: Place, md5: str) -> tuple[str, str]:
    """Return digest and maker of a version; both "" where its bytes are not all there."""
    try:
        if not md5.endswith(FOLDER):
            return _sha256(store, md5), ""
        listed = {str(one["relpath"]): str(one["md5"]) for one in json.loads(_object(store, md5).read())}
        if MANIFEST in listed:
            record: dict[str, Any] = json.loads(_object(store, listed[MANIFEST]).read())
            return fingerprint(record["files"]), str(record["stage"])
        return fingerprint({name: _sha256(store, one) for name, one in listed.items()}), ""
    except (MissingError, ValueError, KeyError, TypeError):
        return "", ""


def _sha256(store: Place, md5: str) -> str:
    place = _object(store, md5)
    found = place.find()
    if found is None:
        raise MissingError(f"{place.uri}: is not there")
    digest = hashlib.sha256()
    for block in place.read_blocks(0, found.size):
        digest.update(block)
    return digest.hexdigest()


def _object(store: Place, md5: str) -> Place:
    return store / OBJECTS / md5[:2] / md5[2:]


def _in_git(project: Path) -> bool:
    """Tell whether DVC looks at git here: as a project comes, it does not (`no_scm`)."""
    settings = ConfigParser()
    settings.read(project / ".dvc" / "config")
    return (project / ".git").exists() and not settings.getboolean("core", "no_scm", fallback=False)


def _git(project: Path, *arguments: str) -> str:
    if not _in_git(project):
        return ""
    told = git_command.ask(*arguments, folder=project)
    if told is None:
        raise UserError(f"{project}: git {' '.join(arguments)} failed, so nobody can say what its tags hold.")
    return told
