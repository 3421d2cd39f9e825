"""One version of a data set or model, of this project or of another, by name and revision: where it is, and a copy.

A revision is what git calls so: a tag, a branch or a commit of the project whose `dvc.lock` or `.dvc` file it holds.
"""

import re
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from geartrain import artifacts
from geartrain.artifacts import MANIFEST, origins
from geartrain.errors import UserError
from geartrain.pointers import parse_import, pointer_of
from geartrain.sources import content_digest
from geartrain.versions import dvc_command, git_command
from geartrain.versions.state import commit_of
from geartrain.versions.tracked import find_path, list_tracked
from geartrain.withdrawals import withdrawn

_OBJECT = re.compile(r"([0-9a-f]{2})/?([0-9a-f]{30}(?:\.dir)?)$")


@dataclass(frozen=True)
class Source:
    """A name in a project, at a revision."""

    name: str
    revision: str
    """"" is what lies there now, committed or not."""
    project: str
    """Folder or git URL."""

    def __str__(self) -> str:
        return f"{self.name}@{self.revision}" if self.revision else self.name


@dataclass(frozen=True)
class Version:
    """What (project, path, revision) means for good: parameters for a pod that has neither git nor a workspace."""

    path: str
    commit: str
    """Full hash; "" where the project is no git repository, or no commit says so yet."""
    md5: str
    """DVC's identifier; of a folder it ends with `.dir`."""
    uri: str
    """The object in the remote. Of a folder it is DVC's list of its files, and no folder: `files` has the objects."""
    files: dict[str, str]
    """Path within the folder -> md5; of a single file empty."""

    def record(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return asdict(self)


@dataclass(frozen=True)
class Fetched:
    """A copy, and what it is."""

    folder: Path
    digest: str
    verified: bool
    """Whether a manifest vouched for every file; of data from elsewhere, which has none, only DVC's md5 did."""
    withdrawn: str
    """Why it must not be used; empty: it may."""


def parse_source(text: str, *, project: str) -> Source:
    """Return what `NAME[@REV]` means. Raises UserError: a part is empty."""
    name, separator, revision = text.rpartition("@") if "@" in text else (text, "", "")
    if not name or (separator and not revision):
        raise UserError(f"{text}: expected NAME or NAME@REVISION, such as rollouts@v3")
    return Source(name, revision, project)


def resolve(source: Source, *, folder: Path) -> Version:
    """Return what a name and a revision mean. Asks git and DVC, downloads nothing but DVC's list of files.

    An import is what it was imported from, at its commit: its bytes lie in that project's remote alone.

    Raises:
        UserError: there is no such project, revision or name, or it has no remote.
        InfrastructureError: a host does not answer.
    """
    commit = _commit(source)
    if source.revision and commit:
        source = replace(source, revision=commit)  # a tag that moves meanwhile means one thing here
    path, listed = _find(source, folder)
    imported = _import_at(source, path)
    if imported is not None:
        return resolve(imported, folder=folder)
    options = _revision(source)
    uri = dvc_command.call(["get", "--show-url", *options, "--", source.project, path], folder=folder)
    match = _OBJECT.search(uri)
    if match is None:
        raise UserError(f"{source}: {uri} is no object by content. Use a remote without version_aware.")
    inside = {name.removeprefix(f"{path}/"): md5 for name, md5 in listed.items() if name.startswith(f"{path}/")}
    return Version(path, commit or _commit_of(path, source), match[1] + match[2], uri, dict(sorted(inside.items())))


def get(source: Source, target: Path, *, folder: Path) -> Fetched:
    """Copy one version to `target`, which must not exist, and verify it against its manifest.

    Raises:
        UserError: as `resolve`; the target exists; or the copy does not match its manifest (then it is removed).
        InfrastructureError: a host does not answer, or another command of DVC is at work.
    """
    if target.exists():
        raise UserError(f"{target}: is there already; nothing is overwritten. Give another --out, or remove it.")
    path, _ = _find(source, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["get", *_revision(source), "--out", str(target.absolute()), "--", source.project, path]
    dvc_command.call(arguments, folder=folder)
    sealed = (target / MANIFEST).is_file()
    try:
        manifest = artifacts.verify(target) if sealed else None
    except UserError:
        shutil.rmtree(target)
        raise
    digest = manifest.digest if manifest else content_digest(target)
    stones = withdrawn()
    bad = [one for one in (digest, *(origins(manifest) if manifest else ())) if one in stones]
    return Fetched(target, digest, sealed, str(stones[bad[0]]) if bad else "")


def remote_of(source: Source) -> str:
    """Return the git URL of a project: of a folder its `origin`; "" if it has none."""
    if not _is_here(source):
        return source.project
    return git_command.ask("config", "--get", "remote.origin.url", folder=Path(source.project)) or ""


def _find(source: Source, folder: Path) -> tuple[str, dict[str, str]]:
    """Return the path that is meant, and path -> md5 of all files that DVC tracks at the revision."""
    options = ["list", "--recursive", "--dvc-only", *_revision(source)]
    listed = dvc_command.ask(options, source.project, folder=folder)
    files = {entry["path"]: str(entry.get("md5") or "") for entry in listed if entry.get("isout")}
    local = Path(source.project)
    if not source.revision and (local / ".dvc").is_dir():
        return find_path(source.name, [item.path for item in list_tracked(local)]), files
    return find_path(source.name, sorted({*files, *(str(one) for name in files for one in _folders(name))})), files


def _import_at(source: Source, path: str) -> Source | None:
    """Return what a path of a project here was imported from; None if it was made there, or that lies elsewhere."""
    if not _is_here(source):
        return None
    project = Path(source.project)
    pointer = pointer_of(project / path)
    text = pointer.read_text(encoding="utf-8") if pointer.is_file() and not source.revision else None
    if source.revision:
        text = git_command.ask("show", f"{source.revision}:./{pointer.relative_to(project)}", folder=project)
    if text is None or "\ndeps:" not in f"\n{text}":  # `dvc add` made it
        return None
    about = parse_import(text, pointer)
    beside = project / about.url
    return Source(about.path, about.commit or about.revision, str(beside) if beside.is_dir() else about.url)


def _folders(name: str) -> list[str]:
    return [str(parent) for parent in Path(name).parents if str(parent) != "."]


def _revision(source: Source) -> list[str]:
    return [f"--rev={source.revision}"] if source.revision else []


def _commit(source: Source) -> str:
    """Return the full hash that a revision means, or the newest of another project; "" if git cannot say."""
    if _is_here(source):
        if not source.revision:
            return ""
        return _commit_at(source.project, source.revision)
    names = [source.revision or "HEAD", f"{source.revision}^{{}}"]
    listed = (git_command.ask("ls-remote", "--", source.project, *names) or "").splitlines()
    return listed[-1].split()[0] if listed else source.revision


def _commit_at(project: str, revision: str) -> str:
    asked = ["rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    return git_command.ask(*asked, folder=Path(project)) or ""


def _commit_of(path: str, source: Source) -> str:
    """Return the commit that a project stands at, if that says of a path what lies there now; "" if none does."""
    if not _is_here(source):
        return ""
    tracked = next((item for item in list_tracked(Path(source.project)) if item.path == path), None)
    if tracked is None or not commit_of(Path(source.project), tracked.pointer):
        return ""
    return _commit_at(source.project, "HEAD")


def _is_here(source: Source) -> bool:
    return Path(source.project).exists()
