"""What DVC tracks in a project: outputs of stages in `dvc.lock`, files that were added or imported in `*.dvc`."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geartrain.config_file import read_yaml
from geartrain.errors import UserError
from geartrain.stages.stage import FOLDERS

LOCK, POINTER = "dvc.lock", ".dvc"
MOST_NAMES = 20
"""So many names are listed where one was not found."""
_PASSED_BY = frozenset({"runs", "build", "node_modules", "__pycache__"})


@dataclass(frozen=True)
class Tracked:
    """One output: a file or a folder, and its version in DVC's words."""

    path: str
    """Relative to the project, with /."""
    md5: str
    """DVC's identifier of the contents; of a folder it ends with `.dir`. No protection against forgery."""
    size: int
    """Bytes."""
    pointer: str
    """The file that says so: `dvc.lock`, or a `.dvc` file."""
    source: str = ""
    """Where it was imported from; empty for what was made or added here."""
    revision: str = ""
    """Of an import: tag or branch that was asked for, and the commit that it was."""
    frozen: bool = False
    """Of an import: whether it stays as it is until `dvc update`."""


def project_of(folder: Path) -> Path:
    """Return the DVC project that a folder lies in. Raises UserError: in none."""
    here = folder.resolve()
    for candidate in (here, *here.parents):
        if (candidate / ".dvc").is_dir():
            return candidate
    raise UserError(f"{here}: lies in no DVC project. Work in a checkout, or make one of it: `dvc init`.")


def list_tracked(project: Path) -> list[Tracked]:
    """Return what DVC tracks, by path. Raises UserError: `dvc.lock` or a `.dvc` file is no YAML."""
    found = [*_from_lock(project), *(item for path in _pointers(project) for item in _from_pointer(project, path))]
    return sorted(found, key=lambda item: item.path)


def find_path(name: str, paths: Sequence[str]) -> str:
    """Return the path that a name means: a path, a stage, or the last part of a path.

    Raises:
        UserError: none, or more than one; the message lists them.
    """
    stage = FOLDERS.get(name)
    wanted = (stage.as_posix() if stage else name).rstrip("/").removeprefix("./")
    found = [path for path in paths if path == wanted] or [path for path in paths if Path(path).name == wanted]
    if len(found) == 1:
        return found[0]
    problem = f"{name} may mean {' or '.join(found)}" if found else f"no data set or model {name!r}"
    shown = [*paths[:MOST_NAMES], *(["…"] if len(paths) > MOST_NAMES else [])]
    raise UserError(f"{problem}; there is {', '.join(shown) or 'nothing'}")


def _from_lock(project: Path) -> Iterator[Tracked]:
    path = project / LOCK
    stages = (_read(path).get("stages") or {}) if path.is_file() else {}
    for stage in stages.values():
        for out in stage.get("outs", ()):
            if "md5" in out:
                yield Tracked(out["path"], out["md5"], int(out.get("size") or 0), LOCK)


def _from_pointer(project: Path, path: Path) -> Iterator[Tracked]:
    record = _read(path)
    repos = [dependency["repo"] for dependency in record.get("deps", ()) if "repo" in dependency]
    repo = repos[0] if repos else {}
    commit = str(repo.get("rev_lock", ""))
    revision = " = ".join(filter(None, [str(repo.get("rev", "")), commit[:10]]))
    for out in record.get("outs", ()):
        if "md5" in out:
            place = (path.parent / out["path"]).relative_to(project).as_posix()
            pointer = path.relative_to(project).as_posix()
            imported = str(repo.get("url", "")), revision, bool(repo and record.get("frozen"))
            yield Tracked(place, out["md5"], int(out.get("size") or 0), pointer, *imported)


def _pointers(project: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(project):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in _PASSED_BY)
        yield from (Path(folder) / name for name in sorted(files) if name.endswith(POINTER))


def _read(path: Path) -> dict[str, Any]:
    record = read_yaml(path.read_text(encoding="utf-8"), source=str(path))
    if not isinstance(record, dict):
        raise UserError(f"{path}: is none of DVC's files")
    return record
