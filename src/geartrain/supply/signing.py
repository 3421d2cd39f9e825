"""Signatures with a key file: of a model's folder (OpenSSF model-signing) and of statements about it (DSSE envelopes).

The one importer of model_signing, securesystemslib and cryptography. A key is a PEM file of an elliptic curve (P-256,
P-384 or P-521) without a password; who may read the file may sign. Its path comes from the environment, never from the
configuration: that is stored with every run. Nothing here prints or returns a private key.
"""

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geartrain.artifacts import list_files, write_atomically
from geartrain.errors import TamperedError, UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

KEY = "GEARTRAIN_SIGNING_KEY"
"""Variable with the path of the private key, or of a folder that may hold one (a Secret that need not be there)."""
PRIVATE, PUBLIC = "signing.key.pem", "signing.pub.pem"
CURVES = ("secp256r1", "secp384r1", "secp521r1")
STATEMENT = "application/vnd.in-toto+json"
"""Type of what the envelopes hold."""


@dataclass(frozen=True)
class SigningKey:
    """A private key; its text representation names the file and the public half alone."""

    path: Path
    key_id: str
    """sha256 (hex) of the public key's PEM, as model-signing names it."""


def find_key() -> SigningKey | None:
    """Return the key that `$GEARTRAIN_SIGNING_KEY` names; None if it is not set, or names a folder without a key.

    Raises:
        UserError: there is no such file, or it is no key that can sign.
    """
    named = os.environ.get(KEY)
    if not named:
        return None
    path = Path(named)
    if path.is_dir():
        path = path / PRIVATE
        if not path.exists():
            return None
    return SigningKey(path, key_id(_load_private(path).public_key()))


def generate(folder: Path) -> tuple[Path, Path, str]:
    """Make a pair of keys in a folder; return the paths of the private and the public one, and the key's id.

    Raises:
        UserError: a key is there already; nothing is overwritten.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private, public = folder / PRIVATE, folder / PUBLIC
    for path in (private, public):
        if path.exists():
            raise UserError(
                f"{path}: is there already, and what it has signed could not be verified. Give another --out."
            )
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    write_atomically(public, _pem(key.public_key()).decode())
    return private, public, key_id(key.public_key())


def public_key_id(path: Path) -> str:
    """Return the id of a public key's file. Raises UserError: it is none."""
    return key_id(_load_public(path))


def sign_model(model: Path, signature: Path, key: SigningKey) -> None:
    """Sign every file of a folder; write the signature, a Sigstore bundle as `model_signing verify key` reads it."""
    from model_signing import signing

    signing.Config().use_elliptic_key_signer(private_key=key.path).sign(model, signature)


def verify_model(model: Path, signature: Path, public_key: Path) -> None:
    """Hold a folder against its signature.

    Raises:
        TamperedError: a file was changed, added or removed (the message names it), the signature is not of this key,
            or is none.
        UserError: the key's file is no public key.
    """
    _load_public(public_key)
    from model_signing import verifying

    try:
        verifying.Config().use_elliptic_key_verifier(public_key=public_key).verify(model, signature)
    except Exception as error:
        # whatever a forged file makes the library raise, the check has failed
        changes = _changes(model, signature) if str(error).startswith("Signature mismatch") else []
        raise TamperedError(f"{signature.name}: {'; '.join(changes) or _told(error)}") from error


def sign_statement(statement: bytes, key: SigningKey) -> dict[str, Any]:
    """Return a DSSE envelope that holds a statement and its signature."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, SSlibKey

    private = _load_private(key.path)
    envelope = Envelope(statement, STATEMENT, {})
    envelope.sign(CryptoSigner(private, SSlibKey.from_crypto(private.public_key(), keyid=key.key_id)))
    return dict(envelope.to_dict())


def open_statement(envelope: Path, public_key: Path) -> bytes:
    """Return the statement in an envelope's file, once its signature is found to be of this key.

    Raises:
        TamperedError: it is not, or the file is no envelope.
        UserError: the key's file is no public key.
    """
    public = _load_public(public_key)
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

    try:
        opened = Envelope.from_dict(json.loads(envelope.read_bytes()))
        if opened.payload_type != STATEMENT:
            raise ValueError(f"holds {opened.payload_type}")
        opened.verify([SSlibKey.from_crypto(public, keyid=key_id(public))], 1)
    except Exception as error:
        raise TamperedError(f"{envelope.name}: {_told(error)}") from error
    return bytes(opened.payload)


def key_id(public_key: "ec.EllipticCurvePublicKey") -> str:
    """Return what a key is called: sha256 (hex) of its PEM."""
    return hashlib.sha256(_pem(public_key)).hexdigest()


def _pem(public_key: "ec.EllipticCurvePublicKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return public_key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _load_private(path: Path) -> "ec.EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no private key in PEM, or one with a password"
        raise UserError(f"{path} ({KEY}): {why}. `geartrain model keygen` makes a pair.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name not in CURVES:
        raise UserError(
            f"{path} ({KEY}): not of the curves {', '.join(CURVES)}. `geartrain model keygen` makes a pair."
        )
    return key


def _load_public(path: Path) -> "ec.EllipticCurvePublicKey":
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no public key in PEM"
        raise UserError(f"{path}: {why}. `geartrain model keygen` writes {PUBLIC}; get the signer's.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in CURVES:
        raise UserError(f"{path}: not of the curves {', '.join(CURVES)}, so it cannot have signed a model.")
    return key


def _changes(model: Path, signature: Path) -> list[str]:
    """Return what differs from a signature that is valid in itself: the library's words for it are no text to show."""
    payload = json.loads(signature.read_bytes())["dsseEnvelope"]["payload"]
    resources = json.loads(base64.b64decode(payload))["predicate"]["resources"]
    signed, found = {entry["name"]: entry["digest"] for entry in resources}, list_files(model)
    lines = {name: f"{name} was changed" for name in signed if found.get(name) != signed[name]}
    lines |= {name: f"{name} is missing" for name in signed.keys() - found.keys()}
    lines |= {name: f"{name} was added" for name in found.keys() - signed.keys()}
    return [lines[name] for name in sorted(lines)]


def _told(error: Exception) -> str:
    """Return why a check failed, in a line."""
    text = " ".join(str(error).split())
    if "Key mismatch" in text or "do not match threshold" in text:
        return "was not signed with this key, or was changed since"
    return f"no valid signature ({type(error).__name__}{': ' if text else ''}{text:.200})"
