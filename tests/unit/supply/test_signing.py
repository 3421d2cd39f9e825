"""Keys and signatures: what was signed is recognised, anything else is not, and no key is ever shown."""

import json
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from geartrain.errors import TamperedError, UserError
from geartrain.supply import signing


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    private, public, key_id = signing.generate(tmp_path_factory.mktemp("keys"))
    return signing.SigningKey(private, key_id), public


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    (folder / "part").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "part/weights"):
        (folder / name).write_text(f"content of {name}")
    return folder


def test_a_pair_is_private_and_never_overwritten(tmp_path):
    private, public, key_id = signing.generate(tmp_path / "keys")
    assert private.stat().st_mode & 0o777 == 0o600
    assert signing.public_key_id(public) == key_id
    before = private.read_bytes()
    with pytest.raises(UserError, match="is there already"):
        signing.generate(tmp_path / "keys")
    assert private.read_bytes() == before


def test_the_environment_names_a_key_or_a_folder_that_may_hold_one(pair, tmp_path, monkeypatch):
    key, _ = pair
    monkeypatch.delenv(signing.KEY, raising=False)
    assert signing.find_key() is None
    for named in (key.path, key.path.parent):
        monkeypatch.setenv(signing.KEY, str(named))
        assert signing.find_key() == key
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv(signing.KEY, str(tmp_path / "empty"))
    assert signing.find_key() is None, "an optional Secret that is not there is an empty folder"


def _pem(key, password=None):
    hidden = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        (b"not a key", "no private key in PEM"),
        (_pem(ec.generate_private_key(ec.SECP256R1()), b"secret"), "one with a password"),
        (_pem(rsa.generate_private_key(65537, 2048)), "not of the curves"),
        (_pem(ec.generate_private_key(ec.SECP256K1())), "not of the curves"),
    ],
)
def test_what_cannot_sign_is_refused_without_showing_it(text, said, tmp_path, monkeypatch):
    path = tmp_path / "key.pem"
    if text is not None:
        path.write_bytes(text)
    monkeypatch.setenv(signing.KEY, str(path))
    with pytest.raises(UserError, match=said) as caught:
        signing.find_key()
    assert caught.value.__cause__ is None
    assert "PRIVATE" not in str(caught.value)


def test_the_key_is_in_no_text_about_it(pair):
    key, _ = pair
    secret = "".join(key.path.read_text().split("\n")[1:-2])
    assert secret not in repr(key)
    assert key.key_id in repr(key)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda model: (model / "part/weights").write_text("other"), "part/weights was changed"),
        (lambda model: (model / "part/weights").unlink(), "part/weights is missing"),
        (lambda model: (model / "extra.bin").write_text(""), "extra.bin was added"),
        (
            lambda model: (model / "config.json").rename(model / "other.json"),
            "config.json is missing; other.json was added",
        ),
    ],
)
def test_a_changed_model_is_named(pair, model, harm, said):
    key, public = pair
    signature = model.with_name("model.sig")
    signing.sign_model(model, signature, key)
    signing.verify_model(model, signature, public)
    harm(model)
    with pytest.raises(TamperedError, match=said):
        signing.verify_model(model, signature, public)


def test_another_key_and_a_forged_signature_do_not_pass(pair, model, tmp_path):
    key, public = pair
    signature = model.with_name("model.sig")
    private, other, key_id = signing.generate(tmp_path / "other")
    signing.sign_model(model, signature, key)
    with pytest.raises(TamperedError, match="not signed with this key"):
        signing.verify_model(model, signature, other)
    (model / "config.json").write_text("other")
    signing.sign_model(model, signature, signing.SigningKey(private, key_id))
    forged = json.loads(signature.read_text())
    forged["verificationMaterial"]["publicKey"]["hint"] = key.key_id  # says that the known key has signed it
    signature.write_text(json.dumps(forged))
    with pytest.raises(TamperedError, match="no valid signature"):
        signing.verify_model(model, signature, public)
    for text in ("", "{}", "[" * 3000):
        signature.write_text(text)
        with pytest.raises(TamperedError, match=r"model\.sig: no valid signature"):
            signing.verify_model(model, signature, public)


def test_openssf_s_own_command_verifies_what_we_sign(pair, model):
    key, public = pair
    signature = model.with_name("model.sig")
    signing.sign_model(model, signature, key)
    command = [sys.executable, "-m", "model_signing", "verify", "key", str(model)]
    command += ["--signature", str(signature), "--public_key", str(public)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stdout + done.stderr


def test_an_envelope_opens_with_its_key_alone(pair, tmp_path):
    key, public = pair
    envelope = tmp_path / "provenance.sig"
    signed = signing.sign_statement(b'{"a": 1}', key)
    envelope.write_text(json.dumps(signed))
    assert signing.open_statement(envelope, public) == b'{"a": 1}'
    _, other, _ = signing.generate(tmp_path / "other")
    with pytest.raises(TamperedError, match="not signed with this key"):
        signing.open_statement(envelope, other)
    for part, value in (("payload", "eyJhIjogMn0="), ("payloadType", "text/plain"), ("signatures", []), ("payload", 1)):
        envelope.write_text(json.dumps({**signed, part: value}))
        with pytest.raises(TamperedError, match=r"provenance\.sig"):
            signing.open_statement(envelope, public)


@pytest.mark.parametrize("text", [None, "not a key"])
def test_a_public_key_that_is_none_is_the_user_s_to_mend(text, model, tmp_path):
    path = tmp_path / "pub.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match="get the signer's"):
        signing.verify_model(model, model, path)
