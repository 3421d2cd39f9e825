"""DVC's pointer files: `NAME.dvc` beside a file or folder says which version it is, and what it was imported from.

Read and written without DVC, which a pod has not. A pointer counts only for bytes that have its md5.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from geartrain.errors import UserError
from geartrain.places import web_address

FOLDER = ".dir"
"""End of DVC's identifier of a folder."""


@dataclass(frozen=True)
class Import:
    """What a pointer of an import says."""

    md5: str
    """DVC's identifier of the bytes."""
    url: str
    """Of the project that it is from: a folder or git URL; "" where that is nobody's business."""
    path: str
    """In that project."""
    revision: str = ""
    """Tag or branch that was asked for."""
    commit: str = ""
    uri: str = ""
    """Where the bytes were fetched from, if a run was pinned to them."""

    @property
    def revisions(self) -> list[str]:
        """What the version may be called: tag and commit."""
        return [name for name in (self.revision, self.commit) if name]


def pointer_of(path: Path) -> Path:
    """Return where the pointer of a file or folder lies."""
    return path.with_name(f"{path.name}.dvc")


def read_import(pointer: Path) -> Import:
    """Return what a pointer says. Raises UserError: it is no import of one file or folder."""
    try:
        return parse_import(pointer.read_text(encoding="utf-8"), pointer)
    except UnicodeDecodeError as error:
        raise _no_import(pointer) from error


def parse_import(text: str, pointer: Path) -> Import:
    """Return what the text of a pointer says. Raises UserError: it is no import of one file or folder."""
    try:
        record = yaml.safe_load(text)
        (dependency,), (output,) = record["deps"], record["outs"]
        repo, meta = dependency["repo"], record.get("meta") or {}
        told = [str(repo.get(key) or "") for key in ("url", "rev", "rev_lock")]
        return Import(str(output["md5"]), told[0], str(dependency["path"]), told[1], told[2], str(meta.get("uri", "")))
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _no_import(pointer) from error


def _no_import(pointer: Path) -> UserError:
    return UserError(f"{pointer}: no import of one file or folder (`dvc import REPO PATH --rev TAG` makes one)")


def write_import(path: Path, about: Import) -> None:
    """Write the pointer of a file or folder, as `dvc import` does; DVC leaves `meta` to its users."""
    repo = {"url": about.url, "rev": about.revision, "rev_lock": about.commit}
    record = {
        "frozen": True,
        "deps": [{"path": about.path, "repo": {key: value for key, value in repo.items() if value}}],
        "outs": [{"md5": about.md5, "hash": "md5", "path": path.name}],
        **({"meta": {"uri": about.uri}} if about.uri else {}),
    }
    pointer_of(path).write_text(yaml.safe_dump(record, sort_keys=False), encoding="utf-8")


def identifier(path: Path) -> str:
    """Return DVC's name for what lies at a path: a file's md5; of a folder that of the list of its files and `.dir`."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, md5).hexdigest()
    inside = {one.relative_to(path).as_posix(): one for one in path.rglob("*") if one.is_file()}
    listed = [{"md5": identifier(inside[name]), "relpath": name} for name in sorted(inside)]
    return f"{md5(json.dumps(listed, sort_keys=True).encode()).hexdigest()}{FOLDER}"


def origin_of(path: Path) -> str:
    """Return where a file or folder was imported from, as an URI; "" if no pointer says so, or it has other bytes.

    `git+https://HOST/REPOSITORY@COMMIT#PATH`, as SLSA names what is in git; without a web address the object's own URI.
    """
    pointer = pointer_of(path)
    if not pointer.is_file():
        return ""
    try:
        about = read_import(pointer)
    except UserError:  # something else of DVC's: added here, not imported
        return ""
    if identifier(path) != about.md5:
        return ""
    address = web_address(about.url)
    if address and about.commit:
        return f"git+{address}@{about.commit}#{about.path}"
    return about.uri if "://" in about.uri else ""


def md5(data: bytes = b"") -> Any:
    """Return a hash that names bytes, and vouches for nothing."""
    return hashlib.md5(data, usedforsecurity=False)
