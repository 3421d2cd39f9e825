"""What is said of a promoted model once it is sealed: its signature, its provenance, its SBOM; made and checked here.

They lie in the artifact's folder, outside of its digest (`artifacts.ATTESTATIONS`), so that they go wherever it goes:

    model.sig         signature of model/, as `model_signing verify key` reads it
    provenance.json   the SLSA statement, to read
    provenance.sig    the same statement, signed (a DSSE envelope)
    sbom.cdx.json     packages of the environment; the statement names its digest
"""

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from geartrain import artifacts
from geartrain.artifacts import Manifest, write_atomically, write_json
from geartrain.errors import TamperedError, UserError
from geartrain.supply import provenance, sbom, signing

MODEL, SIGNATURE = "model", "model.sig"
STATEMENT, ENVELOPE, SBOM = "provenance.json", "provenance.sig", "sbom.cdx.json"


@dataclass(frozen=True)
class Verified:
    """A promoted model that is what its signer has signed."""

    digest: str
    key_id: str
    dependencies: dict[str, str]
    """Name -> digest of what it was made from, as its signed provenance says."""


def attest(folder: Path, run: str = "") -> str:
    """Write the attestations of a sealed artifact of the stage `promotion`; return in a line how it is signed.

    Of a candidate that failed there are none. Without a key they are unsigned; `promotion.require_signature` refuses
    that.

    Args:
        folder: of the artifact.
        run: id of the run that made it.

    Raises:
        UserError: the key is missing where one is required, or is none; or the gate did not let the model through.
    """
    manifest = artifacts.read_manifest(folder)
    if not is_promoted(manifest):
        return "the candidate is not signed: the gate did not pass it"
    require_packages("model_signing", "in_toto_attestation", "cyclonedx_py")
    key = signing.find_key()
    if key is None and manifest.parameters["promotion"].get("require_signature"):
        raise UserError(
            f"promotion.require_signature is set, and there is no key to sign with. Name its file in {signing.KEY} "
            "(`geartrain model keygen` makes a pair), or switch the setting off."
        )
    sbom.write_sbom(folder / SBOM, manifest)
    statement = provenance.make_statement(folder, manifest, {SBOM: folder / SBOM}, run)
    write_atomically(folder / STATEMENT, statement.decode())
    if key is None:
        for name in (SIGNATURE, ENVELOPE):
            (folder / name).unlink(missing_ok=True)
        return f"the model is not signed: {signing.KEY} names no key (`geartrain model sign` does it later)"
    signing.sign_model(folder / MODEL, folder / SIGNATURE, key)
    write_json(folder / ENVELOPE, signing.sign_statement(statement, key))
    return f"the model is signed with the key {key.key_id[:12]}"


def verify(folder: Path, public_key: Path) -> Verified:
    """Check everything that is said of a promoted model: manifest, signature, provenance, SBOM.

    Raises:
        TamperedError: something does not fit, or is not there; the message has a line for each.
        UserError: the folder is no artifact of the stage `promotion`, it holds no model, or the key is none.
    """
    manifest = artifacts.read_manifest(folder)
    if manifest.stage != "promotion" or not is_promoted(manifest):
        raise UserError(f"{folder}: holds no promoted model; models/promoted does, once the gate has let one through.")
    key = signing.public_key_id(public_key)
    faults = [*_files(folder), *_signature(folder, public_key), *_provenance(folder, manifest, public_key)]
    if faults:
        raise TamperedError(
            "\n".join([f"{folder}: {len(faults)} fault(s)", *(f"  {fault}" for fault in faults), _HINT])
        )
    named = provenance.dependencies((folder / STATEMENT).read_bytes())
    digests = {entry["name"]: next(iter(entry["digest"].values())) for entry in named}
    return Verified(manifest.digest, key, digests)


def require_packages(*names: str) -> None:
    """Raise UserError unless these packages are installed; all come with the extra `supply`."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UserError(
            f"{', '.join(missing)}: not installed. `make setup` does it, or pip install 'geartrain[supply]'."
        )


def is_promoted(manifest: Manifest) -> bool:
    """Whether the gate has let the model of an artifact through."""
    return manifest.stage == "promotion" and manifest.metrics.get("promoted") == 1


def signed_by(folder: Path) -> str | None:
    """Return the id of the key that a model's signature names, unchecked; None if it is not signed."""
    try:
        bundle = json.loads((folder / SIGNATURE).read_bytes())
        return str(bundle["verificationMaterial"]["publicKey"]["hint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _files(folder: Path) -> list[str]:
    try:
        artifacts.verify(folder)
    except UserError as error:
        return [str(error).partition("manifest.json: ")[2].rpartition(". ")[0] or str(error)]
    return []


def _signature(folder: Path, public_key: Path) -> list[str]:
    if not (folder / SIGNATURE).is_file():
        return [f"{SIGNATURE} is missing: the model was not signed, or the signature was taken away"]
    try:
        signing.verify_model(folder / MODEL, folder / SIGNATURE, public_key)
    except TamperedError as error:
        return [str(error)]
    return []


def _provenance(folder: Path, manifest: Manifest, public_key: Path) -> list[str]:
    missing = [name for name in (STATEMENT, ENVELOPE) if not (folder / name).is_file()]
    if missing:
        return [f"{name} is missing" for name in missing]
    try:
        statement = signing.open_statement(folder / ENVELOPE, public_key)
        faults = provenance.check_statement(statement, folder, manifest, {SBOM: folder / SBOM})
    except TamperedError as error:
        return [str(error)]
    if statement != (folder / STATEMENT).read_bytes():
        faults.append(f"{STATEMENT} is not what was signed")
    return [f"{ENVELOPE}: {fault}" if not fault.startswith(STATEMENT) else fault for fault in faults]


_HINT = "Do not use it. Get it again from where it was published, and find out who changed it."
