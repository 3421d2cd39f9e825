"""What is where, and in which version: workspace, cache, remote."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from geartrain.artifacts import origins, read_manifest
from geartrain.errors import InfrastructureError, UserError
from geartrain.sources import content_digest
from geartrain.stages.stage import FOLDERS
from geartrain.versions import dvc_command, git_command
from geartrain.versions.tracked import LOCK, Tracked, list_tracked
from geartrain.withdrawals import Tombstone, withdrawn

OK, CHANGED, MISSING, UNKNOWN, UNTRACKED = "ok", "changed", "missing", "unknown", "untracked"


@dataclass(frozen=True)
class State:
    """One data set or model."""

    path: str
    digest: str
    """Of an artifact the manifest's, of a file its sha256; empty where it is not here."""
    md5: str
    """DVC's; empty where DVC has not heard of it."""
    workspace: str
    """`OK`; `CHANGED`: not what DVC saved; `MISSING`; `UNTRACKED`: DVC has not heard of it."""
    cache: str
    """`OK`, `MISSING` or `UNTRACKED`."""
    remote: str
    """`OK`, `MISSING`, `UNTRACKED`, or `UNKNOWN`: not asked, or no answer."""
    version: str
    """Tag or commit: of an import what was imported, else of the commit that holds this version; empty: in none."""
    size: int
    """Bytes."""
    withdrawn: str
    """Who withdrew it, or something that it was made from, when and why; empty: may be used."""

    def record(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return asdict(self)


def read_states(folder: Path, *, remote: bool = True) -> tuple[list[State], list[str]]:
    """Return the state of all that DVC tracks or a stage has made in a folder; and notes on what nobody could tell.

    Args:
        folder: a project, or a workspace in one (DVC knows nothing of those in `runs/`).
        remote: whether to ask the remote.

    Raises:
        UserError: a file of DVC or a tombstone is unreadable.
        InfrastructureError: another command of DVC is at work here.
    """
    notes: list[str] = []
    tracked = {item.path: item for item in list_tracked(folder)} if (folder / ".dvc").is_dir() else {}
    told = _ask(folder, remote, notes) if tracked else {}
    commit = commit_of(folder, LOCK)
    stones = withdrawn()
    paths = sorted({*tracked, *(path.as_posix() for path in FOLDERS.values() if (folder / path).is_dir())})
    states = []
    for path in paths:
        item = tracked.get(path)
        version = "" if item is None else (item.revision or (commit if item.pointer == LOCK else ""))
        states.append(_state(folder / path, path, item, told, version, stones))
    if not remote or any("remote" in note for note in notes):
        states = [State(**{**asdict(one), "remote": UNKNOWN if one.md5 else UNTRACKED}) for one in states]
    return states, notes


def commit_of(folder: Path, name: str) -> str:
    """Return tag or short hash of the commit that holds a file as it is here; "" if none does."""

    def git(*arguments: str) -> str | None:
        return git_command.ask(*arguments, folder=folder)

    if git("ls-files", "--error-unmatch", name) is None or git("diff", "--quiet", "HEAD", "--", name) is None:
        return ""
    commit = git("log", "-1", "--format=%h", "--", name) or ""
    tags = (git("tag", "--points-at", commit) or "").split() if commit else []
    return tags[0] if tags else commit


def _ask(folder: Path, remote: bool, notes: list[str]) -> dict[str, Any]:
    asked = ["data", "status", *(["--not-in-remote"] if remote else [])]
    try:
        return dict(dvc_command.ask(asked, folder=folder))
    except (UserError, InfrastructureError) as error:
        if not remote or "in this clone" in str(error):
            raise
        notes.append(f"the remote could not be asked: {error}")
        return _ask(folder, False, notes)


def _state(
    place: Path, path: str, item: Tracked | None, told: Mapping[str, Any], version: str, stones: Mapping[str, Tombstone]
) -> State:
    uncommitted = told.get("uncommitted", {})
    digest, reason = _judge(place, stones)
    if item is None:
        return State(path, digest, "", UNTRACKED, UNTRACKED, UNTRACKED, "", _bytes(place), reason)
    workspace = OK if place.exists() else MISSING
    if place.exists() and any(_named(path, uncommitted.get(kind, ())) for kind in ("modified", "added", "deleted")):
        workspace = CHANGED
    cache, remote = (
        MISSING if _named(path, told.get(where, ())) else OK for where in ("not_in_cache", "not_in_remote")
    )
    return State(path, digest, item.md5, workspace, cache, remote, version, item.size, reason)


def _judge(place: Path, stones: Mapping[str, Tombstone]) -> tuple[str, str]:
    """Return the digest of what lies at a place, and why it must not be used, if it must not."""
    if not place.exists():
        return "", ""
    try:
        manifest = read_manifest(place) if place.is_dir() else None
    except UserError:
        manifest = None
    digest = manifest.digest if manifest else content_digest(place)
    if digest in stones:
        return digest, str(stones[digest])
    for origin, name in (origins(manifest) if manifest else {}).items():
        if origin in stones:
            return digest, f"made from {name} ({origin[:12]}), which was {stones[origin]}"
    return digest, ""


def _named(path: str, listed: Any) -> bool:
    """Tell whether DVC's list names a path: folders end with /, and a part of one counts for the whole."""
    return any(entry.rstrip("/") == path or entry.startswith(f"{path}/") for entry in listed)


def _bytes(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) if place.is_dir() else 0
