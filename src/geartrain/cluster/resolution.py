"""What a run is made from, by content: the data from outside, and the code. The pipeline's first step asks this.

Kubeflow's cache compares parameters and the name of an image, never bytes (kubeflow/pipelines#12751). So the digests
found here go to every later step as parameters: same digests, same work.
"""

import hashlib
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from geartrain import withdrawals
from geartrain.artifacts import code_digest, fingerprint
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
            commit) of the DVC import that `environment.source` has to be.

    Raises:
        UserError: a file is missing, is withdrawn, or is not of that revision.
    """
    missing = missing_files(config)
    if missing:
        raise UserError("\n".join(["what the settings name is not in this image (or workspace):", *missing]))
    found = {key: content_digest(path) for key, path, _ in named_files(config)}
    withdrawals.require_allowed(found)
    digest = SHA256 + fingerprint(found)
    source = config.environment.source if "environment.source" in found else None
    pointer = None if source is None else source.with_name(f"{source.name}.dvc")
    if pointer is not None and pointer.is_file():
        imported = _read_import(pointer)
        _check_bytes(source or pointer, pointer, imported)
        if dataset_rev and not dataset_rev.startswith(SHA256):
            _check_revision(dataset_rev, pointer, imported)
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


def _read_import(pointer: Path) -> dict[str, Any]:
    """Return {md5, revisions} of a `.dvc` file. Raises UserError: it is no import of one file."""
    record = read_yaml(pointer.read_text(encoding="utf-8"), source=str(pointer))
    try:
        (dependency,), (output,) = record["deps"], record["outs"]
        repo = dependency["repo"]
        revisions = [str(repo[key]) for key in ("rev", "rev_lock") if key in repo]
        return {"md5": str(output["md5"]), "revisions": revisions}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{pointer}: no import of one file (`dvc import REPO PATH --rev TAG` makes one)") from error


def _check_bytes(source: Path, pointer: Path, imported: dict[str, Any]) -> None:
    md5 = hashlib.md5(source.read_bytes(), usedforsecurity=False).hexdigest()  # DVC's identifier
    if md5 != imported["md5"]:
        raise UserError(f"{source}: md5 {md5} is not that of {pointer.name} ({imported['md5']}). Run `dvc pull`.")


def _check_revision(revision: str, pointer: Path, imported: dict[str, Any]) -> None:
    known = imported["revisions"]
    short = len(revision) >= SHORTEST_REVISION and any(name.startswith(revision) for name in known)
    if revision not in known and not short:
        raise UserError(
            f"dataset_rev {revision!r}: {pointer.name} imports {' = '.join(known) or 'no revision'}. "
            f"`dvc update --rev {revision} {pointer.name}`, then build the image anew."
        )
