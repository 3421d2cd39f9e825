"""A promoted model is signed where there is a key; whatever is changed afterwards is found and named."""

import json
import shutil

import pytest

from geartrain import artifacts
from geartrain.cli import main
from geartrain.errors import TamperedError, UserError
from geartrain.supply import attestation, sbom, signing
from tests.fakes.promoted import image_packages, promoted


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return signing.generate(tmp_path_factory.mktemp("keys"))


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.setattr(sbom, "OF_THE_IMAGE", image_packages(tmp_path / "image.json"))
    monkeypatch.delenv(signing.KEY, raising=False)


@pytest.fixture
def signed(tmp_path, keys, monkeypatch):
    folder = tmp_path / "promoted"
    promoted(folder)
    monkeypatch.setenv(signing.KEY, str(keys[0]))
    attestation.attest(folder)
    return folder


def test_what_was_signed_verifies_and_its_digest_has_not_changed(signed, keys, tmp_path):
    unsigned = promoted(tmp_path / "unsigned")
    found = attestation.verify(signed, keys[1])
    assert (found.digest, found.key_id) == (unsigned.digest, keys[2])
    assert artifacts.verify(signed) == unsigned
    assert found.dependencies["environment.source"] == "5" * 64
    assert attestation.signed_by(signed) == keys[2]


def test_it_still_verifies_where_it_was_copied_to(signed, keys, tmp_path):
    shutil.copytree(signed, tmp_path / "elsewhere" / "named otherwise")
    attestation.verify(tmp_path / "elsewhere" / "named otherwise", keys[1])


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


FILES = ["model/model.safetensors", "model/README.md", "decision.json", *sorted(artifacts.ATTESTATIONS)]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found_and_its_file_named(signed, keys, name):
    _flip(signed / name)
    with pytest.raises(TamperedError, match=name):
        attestation.verify(signed, keys[1])


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_taken_away_is_named(signed, keys, name):
    (signed / name).unlink()
    with pytest.raises(TamperedError, match=name):
        attestation.verify(signed, keys[1])


def test_a_manifest_that_was_made_to_fit_does_not_help(signed, keys):
    (signed / "decision.json").write_text("{}")
    record = json.loads((signed / "manifest.json").read_text())
    record["files"]["decision.json"] = artifacts.file_sha256(signed / "decision.json")
    record["digest"] = artifacts.fingerprint(record["files"])
    artifacts.write_json(signed / "manifest.json", record)
    artifacts.verify(signed)
    with pytest.raises(TamperedError, match=r"decision\.json is not the file that it names"):
        attestation.verify(signed, keys[1])


def test_another_model_under_these_signatures_is_found(signed, keys, tmp_path):
    promoted(tmp_path / "other", weights="other weights")
    for name in artifacts.ATTESTATIONS:
        shutil.copy(signed / name, tmp_path / "other")
    with pytest.raises(TamperedError, match=r"model\.safetensors was changed"):
        attestation.verify(tmp_path / "other", keys[1])


def test_without_a_key_it_says_that_it_is_unsigned(tmp_path, keys):
    promoted(tmp_path / "promoted")
    assert "not signed" in attestation.attest(tmp_path / "promoted")
    assert sorted(p.name for p in (tmp_path / "promoted").glob("*.*")) == [
        "decision.json",
        "manifest.json",
        "provenance.json",
        "sbom.cdx.json",
    ]
    assert attestation.signed_by(tmp_path / "promoted") is None
    with pytest.raises(TamperedError, match=r"model\.sig is missing(?s:.*)provenance\.sig is missing"):
        attestation.verify(tmp_path / "promoted", keys[1])


def test_a_required_signature_is_not_left_out(tmp_path):
    promoted(tmp_path / "promoted", require_signature=True)
    with pytest.raises(UserError, match="no key to sign with"):
        attestation.attest(tmp_path / "promoted")


def test_a_package_that_is_not_installed_is_named():
    attestation.require_packages("model_signing")
    with pytest.raises(UserError, match=r"no_such_package: not installed.*geartrain\[supply\]"):
        attestation.require_packages("model_signing", "no_such_package")


def test_a_candidate_that_failed_gets_none(tmp_path, keys, monkeypatch):
    promoted(tmp_path / "failed", passed=False)
    monkeypatch.setenv(signing.KEY, str(keys[0]))
    attestation.attest(tmp_path / "failed")
    assert not artifacts.ATTESTATIONS & {path.name for path in (tmp_path / "failed").iterdir()}
    with pytest.raises(UserError, match="holds no promoted model"):
        attestation.verify(tmp_path / "failed", keys[1])


def geartrain(monkeypatch, *words):
    """Run the command line; return its exit code."""
    monkeypatch.setattr("sys.argv", ["geartrain", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def test_the_command_line_makes_a_key_signs_and_verifies(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "promoted"
    promoted(folder)
    assert geartrain(monkeypatch, "model", "sign", folder) == 2
    assert "GEARTRAIN_SIGNING_KEY" in capsys.readouterr().err
    assert geartrain(monkeypatch, "model", "keygen", "--out", tmp_path / "keys") == 0
    told = capsys.readouterr().out
    assert f"export {signing.KEY}={tmp_path}/keys/signing.key.pem" in told
    monkeypatch.setenv(signing.KEY, str(tmp_path / "keys"))
    assert geartrain(monkeypatch, "model", "sign", folder) == 0
    public = tmp_path / "keys" / signing.PUBLIC
    assert geartrain(monkeypatch, "model", "verify", folder, "--key", public) == 0
    assert "environment.source" in capsys.readouterr().out
    _flip(folder / "model/model.safetensors")
    assert geartrain(monkeypatch, "model", "verify", folder, "--key", public) == 3
    assert "model.safetensors was changed" in capsys.readouterr().err
    assert geartrain(monkeypatch, "model", "verify", folder) == 2
    assert geartrain(monkeypatch, "model", "verify", tmp_path, "--key", public) == 2
