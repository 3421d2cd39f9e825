"""Artifacts on disk: digests, manifests, atomic publication.

An artifact is a folder with a `manifest.json` that lists the sha256 of every
file, the parameters, the code and the digests of the inputs that made it. A
manifest holds no time and no path of this machine, so that the same work gives
the same digest anywhere.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from geartrain.errors import InfrastructureError, UserError

MANIFEST = "manifest.json"
ATTESTATIONS = frozenset(["model.sig", "provenance.json", "provenance.sig", "sbom.cdx.json"])
"""Files at the top of an artifact that say something of it once it is sealed (`geartrain.supply`). They are no part of
its digest: two signatures of the same bytes differ, and so do the packages of two machines."""
ATTESTED = "promotion"
"""The one stage whose artifacts may hold attestations."""
NOT_CODE_OF_A_RESULT = frozenset(
    [
        *("__main__.py", "cli.py", "cluster", "command_groups.py", "credit_table.py"),
        *("data_commands.py", "diagnose_command.py", "diagnosis", "differences", "engines.py"),
        *("exporter_command.py", "feature_commands.py", "home.py", "lineage_commands.py", "live.py", "logs.py"),
        *("metrics.py", "model_commands.py", "monitoring", "operations.py", "params.py", "places.py"),
        *("pointers.py", "preemption.py", "preference_commands.py", "processes.py", "progress.py", "reporting"),
        *("scheduling.py", "scrubbing.py", "serve_commands.py", "sources.py", "study", "supply", "telemetry"),
        *("versions", "viewer", "walkthrough.py", "withdrawals.py"),
    ]
)
"""Parts of the package that cannot change what a stage computes."""


@dataclass(frozen=True)
class Manifest:
    """What an artifact is and what made it."""

    stage: str
    files: Mapping[str, str]
    """Relative path -> sha256, hex."""
    parameters: Mapping[str, Any]
    inputs: Mapping[str, str]
    """Input name -> digest of the input artifact, or of a file from outside."""
    code: str
    """Digest of the package's sources."""
    metrics: Mapping[str, Any]
    ancestors: Mapping[str, str] = field(default_factory=dict)
    """Digest -> name of all that it was made from, at any remove, the inputs among them."""

    @property
    def digest(self) -> str:
        """Identity of the artifact's contents: sha256 over the sorted file digests."""
        return fingerprint(dict(self.files))


def fingerprint(value: Any) -> str:
    """Return the sha256 (hex) of a JSON-ready value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the sha256 (hex) of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_digest() -> str:
    """Return a digest of the package's sources and the feature definitions, as far as they can change a result."""
    root = Path(__file__).parent
    sources = {
        str(path.relative_to(root)): file_sha256(path)
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root).parts[0] not in NOT_CODE_OF_A_RESULT
    }
    return fingerprint([sources, definitions_digest()])


def checkout() -> Path:
    """Return the project's root, if this package was installed from a checkout; else a folder that means nothing."""
    return Path(__file__).resolve().parents[2]


def definitions_folder() -> Path:
    """Return the feature repository: `$GEARTRAIN_FEATURE_REPO`, or the checkout's; it need not be there."""
    own = os.environ.get("GEARTRAIN_FEATURE_REPO")
    return Path(own) if own else checkout() / "data" / "feature_repo"


def definitions_digest() -> str:
    """Return a digest of the feature definitions: they are code of a result that lies outside the package."""
    return fingerprint({path.name: file_sha256(path) for path in sorted(definitions_folder().glob("*.py"))})


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: sorted keys, no NaN, newline at the end."""
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n")


def list_files(folder: Path) -> dict[str, str]:
    """Return relative path -> sha256 of every file in a folder but its manifest and the attestations at its top."""
    named = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: file_sha256(path) for name, path in named.items() if name != MANIFEST and name not in ATTESTATIONS}


def read_manifest(folder: Path) -> Manifest:
    """Read an artifact's manifest.

    Raises:
        UserError: the folder or its manifest is missing or unreadable.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(
            f"{folder}: no {MANIFEST}, so this is not a finished artifact. Run the stage that writes it first."
        )
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        record.pop("digest", None)
        return _checked(Manifest(**record))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not a manifest ({error}). Delete {folder} and run its stage again.") from error


def folders_in(root: Path) -> list[Path]:
    """Return the folders with a manifest at most two below a folder; hidden ones are left out."""
    found = {path.parent for pattern in (f"*/{MANIFEST}", f"*/*/{MANIFEST}") for path in root.glob(pattern)}
    return sorted(one for one in found if not any(part.startswith(".") for part in one.relative_to(root).parts))


def manifest_sha256(folder: Path) -> str:
    """Return the sha256 (hex) of an artifact's manifest: of all that it says of how the files were made."""
    return file_sha256(folder / MANIFEST)


def origins(manifest: Manifest) -> dict[str, str]:
    """Return digest -> name of all that an artifact was made from, as far as its manifest says.

    One of an older version of geartrain knows its inputs and no more.
    """
    return {**manifest.ancestors, **{digest: name for name, digest in manifest.inputs.items()}}


def known_origins(path: Path) -> dict[str, str]:
    """Return the origins of what lies at a path: those of an artifact of ours, else none."""
    return origins(read_manifest(path)) if (path / MANIFEST).is_file() else {}


def _checked(manifest: Manifest) -> Manifest:
    records = ("files", "parameters", "inputs", "metrics", "ancestors")
    for name, kind in {"stage": str, "code": str, **dict.fromkeys(records, dict)}.items():
        if not isinstance(getattr(manifest, name), kind):
            raise TypeError(f"{name} is {type(getattr(manifest, name)).__name__}")
    return manifest


def verify(folder: Path) -> Manifest:
    """Read the manifest and check every file against it.

    Raises:
        UserError: a file is missing, changed, or not listed.
    """
    manifest = read_manifest(folder)
    found = list_files(folder)
    wrong = [f"{name} is missing" for name in manifest.files.keys() - found.keys()]
    wrong += [f"{name} is not in the manifest" for name in found.keys() - manifest.files.keys()]
    wrong += [
        f"{name} was changed" for name in found.keys() & manifest.files.keys() if found[name] != manifest.files[name]
    ]
    wrong += _strangers(folder, manifest.stage)
    told = json.loads((folder / MANIFEST).read_text(encoding="utf-8")).get("digest", manifest.digest)
    if told != manifest.digest:
        wrong.append(f"the digest in it ({told!s:.12}) is not that of its files ({manifest.digest[:12]})")
    if wrong:
        raise UserError(f"{folder}: does not match its {MANIFEST}: {'; '.join(sorted(wrong))}. Run its stage again.")
    return manifest


def _strangers(folder: Path, stage: str) -> list[str]:
    """Return what in an artifact no digest covers: links to folders and what is no file; attestations of no model."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    odd = [f"{n} is no file" for n, p in found.items() if not p.is_file() and (p.is_symlink() or not p.is_dir())]
    misplaced = ATTESTATIONS & found.keys() if stage != ATTESTED else ()
    return odd + [f"{name} is not in the manifest" for name in sorted(misplaced)]


def write_manifest(
    folder: Path,
    *,
    stage: str,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str],
    metrics: Mapping[str, Any],
    ancestors: Mapping[str, str] | None = None,
) -> Manifest:
    """Seal a folder: hash its files, sync them to disk and write the manifest last.

    `ancestors` are those of the inputs (`origins`); the inputs themselves join them here.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    known = {**(ancestors or {}), **{digest: name for name, digest in inputs.items()}}
    manifest = Manifest(stage, list_files(folder), parameters, inputs, code_digest(), metrics, known)
    write_json(folder / MANIFEST, {**asdict(manifest), "digest": manifest.digest})
    return manifest


def publish(staged: Path, target: Path) -> None:
    """Put a sealed folder in its place by renames; a crash leaves the old one, the new one, or none.

    Raises:
        InfrastructureError: the disk is full or refuses.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    incoming = target.with_name(f".{target.name}.incoming")
    outgoing = target.with_name(f".{target.name}.outgoing")
    try:
        for leftover in (incoming, outgoing):
            _remove(leftover)
        shutil.copytree(staged, incoming)
        if target.exists() or target.is_symlink():
            target.rename(outgoing)
        incoming.rename(target)
        _remove(outgoing)
        _sync_folder(target.parent)
    except OSError as error:
        reason = f"could not publish the output ({error})"
        raise InfrastructureError(f"{target}: {reason}. Free space or mend the mount, then run again.") from error


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
