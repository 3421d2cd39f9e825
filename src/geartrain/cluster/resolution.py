"""What a run is made from, by content: the data from outside, and the code. The pipeline's first step asks this.

Kubeflow's cache compares parameters and the name of an image, never bytes (kubeflow/pipelines#12751). So the digests
found here go to every later step as parameters: same digests, same work.
"""

import re
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

from geartrain import withdrawals
from geartrain.artifacts import code_digest, fingerprint, known_origins
from geartrain.cluster.pinned import Pin, require_named
from geartrain.config import Config
from geartrain.config_file import missing_files
from geartrain.errors import UserError
from geartrain.pointers import identifier, pointer_of, read_import
from geartrain.sources import content_digest, named_files

SHA256 = "sha256:"
SHORTEST_REVISION = 7
"""Characters of a commit that name it."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def dataset_digest(config: Config, dataset_rev: str, pins: Mapping[str, Pin] | None = None) -> str:
    """Return the digest of every file from outside that the settings name, `sha256:…`; checked against a revision.

    With `twophase` and a tiny model nothing is from outside: then it is the digest of nothing, always the same.

    Args:
        config: the settings; paths are as seen from the working directory (in the image: /app).
        dataset_rev: "" takes what is there; "sha256:…" demands that digest; anything else is a revision (a tag or a
            commit) of `environment.source`: of its pin, or of the DVC import that it has to be. Every import is held to
            its `.dvc` file.
        pins: what the run was pinned to, by key; these files need not be here.

    Raises:
        UserError: a file is missing, is withdrawn, or is not of that revision.
    """
    pins = pins or {}
    require_named(pins, config)
    missing = missing_files(config, but=pins)
    if missing:
        raise UserError("\n".join(["what the settings name is not in this image (or workspace):", *missing]))
    places = {key: path for key, path, _ in named_files(config) if key not in pins}
    found = {key: content_digest(path) for key, path in places.items()} | {key: p.sha256 for key, p in pins.items()}
    withdrawals.require_allowed(found, {key: known_origins(path) for key, path in places.items()})
    digest = SHA256 + fingerprint(found)
    known = {key: _check_import(path) for key, path in places.items() if pointer_of(path).is_file()}
    known |= {key: pin.revisions for key, pin in pins.items()}
    if dataset_rev.startswith(SHA256):
        if dataset_rev != digest:
            raise UserError(
                f"dataset_rev {dataset_rev}: what is here is {digest} ({', '.join(sorted(found)) or 'nothing'}). "
                "Put the right files into the image, or ask for these."
            )
    elif dataset_rev:
        _check_revision(dataset_rev, config, known.get("environment.source"), digest)
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


def _check_import(path: Path) -> list[str]:
    """Return the revisions that name an import, tag and commit. Raises UserError: what is here is another version."""
    pointer = pointer_of(path)
    about, here = read_import(pointer), identifier(path)
    if here != about.md5:
        raise UserError(f"{path}: md5 {here} is not that of {pointer.name} ({about.md5}). Run `dvc pull`.")
    return about.revisions


def _check_revision(revision: str, config: Config, known: list[str] | None, digest: str) -> None:
    source = config.environment.source if config.environment.name == "analyst" else None
    if known is None:
        raise UserError(
            f"dataset_rev {revision!r}: the data is no DVC import (no .dvc file beside "
            f"{source or 'anything: nothing is read from outside'}) and not pinned (`geartrain submit --data "
            f"environment.source=NAME@REV`), so no revision of it is known. Leave dataset_rev out, or give {digest}."
        )
    short = len(revision) >= SHORTEST_REVISION and any(name.startswith(revision) for name in known)
    if revision not in known and not short:
        raise UserError(
            f"dataset_rev {revision!r}: {source} is {' = '.join(known) or 'of no revision'}. Where it is an import, "
            f"`dvc update --rev {revision} {source}.dvc`, then build the image anew; where it is pinned, pin the other."
        )
