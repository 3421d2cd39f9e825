"""What a run is made from, by content: the data from outside, and the code. The pipeline's first step asks this.

Kubeflow's cache compares parameters and the name of an image, never bytes (kubeflow/pipelines#12751). So the digests
found here go to every later step as parameters: same digests, same work.
"""

import hashlib
import json
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from geartrain import withdrawals
from geartrain.artifacts import code_digest, fingerprint, known_origins
from geartrain.config import Config
from geartrain.config_file import missing_files, read_yaml
from geartrain.errors import UserError
from geartrain.sources import content_digest, named_files

SHA256 = "sha256:"
SHORTEST_REVISION = 7
"""Characters of a commit that name it."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def dataset_digest(config: Config, dataset_rev: str) -> str:
    """Return the digest of every file from outside that the settings name, `sha256:…`; checked against a revision.

    With `twophase` and a tiny model nothing is from outside: then it is the digest of nothing, always the same.

    Args:
        config: the settings; paths are as seen from the working directory (in the image: /app).
        dataset_rev: "" takes what is there; "sha256:…" demands that digest; anything else is a revision (a tag or a
            commit) of the DVC import that `environment.source` has to be. Every import is held to its `.dvc` file.

    Raises:
        UserError: a file is missing, is withdrawn, or is not of that revision.
    """
    missing = missing_files(config)
    if missing:
        raise UserError("\n".join(["what the settings name is not in this image (or workspace):", *missing]))
    places = {key: path for key, path, _ in named_files(config)}
    found = {key: content_digest(path) for key, path in places.items()}
    withdrawals.require_allowed(found, {key: known_origins(path) for key, path in places.items()})
    digest = SHA256 + fingerprint(found)
    imports = {key: _check_import(path) for key, path in places.items() if _pointer(path).is_file()}
    source = config.environment.source if "environment.source" in found else None
    if source is not None and "environment.source" in imports:
        if dataset_rev and not dataset_rev.startswith(SHA256):
            _check_revision(dataset_rev, _pointer(source), imports["environment.source"])
    elif dataset_rev and not dataset_rev.startswith(SHA256):
        raise UserError(
            f"dataset_rev {dataset_rev!r}: the data is no DVC import (no .dvc file beside "
            f"{source or 'anything: nothing is read from outside'}), so no revision of it is known. "
            f"Leave dataset_rev out, or give {digest}."
        )
    if dataset_rev.startswith(SHA256) and dataset_rev != digest:
        raise UserError(
            f"dataset_rev {dataset_rev}: what is here is {digest} ({', '.join(sorted(found)) or 'nothing'}). "
            "Put the right files into the image, or ask for these."
        )
    return digest


def image_digest(image: str) -> str:
    """Return what code runs: the digest in the image's name; without one, a digest of the code and packages here.

    The second is as good for the cache (a new build under an old tag is seen), and says nothing about the rest of the
    image.
    """
    _, _, digest = image.rpartition("@")
    if _DIGEST.fullmatch(digest):
        return digest
    packages = sorted({f"{found.name.lower()}=={found.version}" for found in distributions() if found.name})
    return f"content:{fingerprint([code_digest(), packages])}"


def _pointer(path: Path) -> Path:
    return path.with_name(f"{path.name}.dvc")


def _check_import(path: Path) -> list[str]:
    """Return the revisions that name an import, tag and commit. Raises UserError: what is here is another version."""
    pointer = _pointer(path)
    md5, revisions = _read_import(pointer)
    here = _identifier(path)
    if here != md5:
        raise UserError(f"{path}: md5 {here} is not that of {pointer.name} ({md5}). Run `dvc pull`.")
    return revisions


def _identifier(path: Path) -> str:
    """Return DVC's name for what lies at a path: a file's md5; of a folder that of the list of its files and `.dir`."""
    if path.is_file():
        with path.open("rb") as file:
            return str(hashlib.file_digest(file, _md5).hexdigest())
    inside = {one.relative_to(path).as_posix(): one for one in path.rglob("*") if one.is_file()}
    listed = [{"md5": _identifier(inside[name]), "relpath": name} for name in sorted(inside)]
    return f"{_md5(json.dumps(listed, sort_keys=True).encode()).hexdigest()}.dir"


def _md5(data: bytes = b"") -> Any:
    return hashlib.md5(data, usedforsecurity=False)


def _read_import(pointer: Path) -> tuple[str, list[str]]:
    """Return (md5, revisions) of a `.dvc` file. Raises UserError: it is no import of one file or folder."""
    record = read_yaml(pointer.read_text(encoding="utf-8"), source=str(pointer))
    try:
        (dependency,), (output,) = record["deps"], record["outs"]
        repo = dependency["repo"]
        revisions = [str(repo[key]) for key in ("rev", "rev_lock") if key in repo]
        return str(output["md5"]), revisions
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{pointer}: no import of one file or folder (`dvc import REPO PATH --rev TAG` makes one)"
        ) from error


def _check_revision(revision: str, pointer: Path, known: list[str]) -> None:
    short = len(revision) >= SHORTEST_REVISION and any(name.startswith(revision) for name in known)
    if revision not in known and not short:
        raise UserError(
            f"dataset_rev {revision!r}: {pointer.name} imports {' = '.join(known) or 'no revision'}. "
            f"`dvc update --rev {revision} {pointer.name}`, then build the image anew."
        )
