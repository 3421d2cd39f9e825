"""What a registry is told is what the artifact says, and nothing else."""

import pytest

from geartrain import artifacts, withdrawals
from geartrain.errors import UserError
from geartrain.supply import registration
from tests.fakes.promoted import ANCESTORS, INPUTS, promoted


def test_an_entry_says_what_the_artifact_says(tmp_path):
    manifest = promoted(tmp_path / "promoted")
    entry = registration.describe(tmp_path / "promoted", uri="s3://bucket/key", run_id="b7c1")
    assert (entry.name, entry.digest, entry.promoted) == ("geartrain-analyst", manifest.digest, True)
    assert entry.version == manifest.digest[:12]
    assert entry.numbers == {
        "gate_gain_low": 0.05,
        "success_test_greedy": 0.675,
        "success_test_sampled": 0.5958,
    }
    assert entry.data == {**{name: digest for digest, name in ANCESTORS.items()}, **INPUTS}
    assert entry.properties["geartrain.digest"] == manifest.digest
    assert (entry.properties["geartrain.signed_by"], entry.properties["geartrain.run"]) == ("nobody", "b7c1")


def test_a_signature_is_told_by_its_digest(tmp_path):
    promoted(tmp_path / "promoted")
    (tmp_path / "promoted/model.sig").write_text('{"verificationMaterial": {"publicKey": {"hint": "abc"}}}')
    entry = registration.describe(tmp_path / "promoted")
    assert entry.properties["geartrain.signed_by"] == "abc"
    signature = artifacts.file_sha256(tmp_path / "promoted/model.sig")
    assert entry.properties["geartrain.sha256.model.sig"] == signature


@pytest.mark.parametrize("uri", [None, "", "/somewhere/here", "file:///somewhere/here"])
def test_a_place_on_this_machine_is_no_address(tmp_path, uri):
    promoted(tmp_path / "promoted")
    assert registration.describe(tmp_path / "promoted", uri=uri).uri is None


def test_a_damaged_artifact_is_not_entered(tmp_path):
    promoted(tmp_path / "promoted")
    (tmp_path / "promoted/model/model.safetensors").write_text("other")
    with pytest.raises(UserError, match=r"model\.safetensors was changed"):
        registration.register(tmp_path / "promoted", ("mlflow",))


def test_what_was_made_from_withdrawn_data_is_not_entered(tmp_path, monkeypatch):
    promoted(tmp_path / "promoted")
    told = {"name": "raw data", "reason": "consent", "by": "legal", "at": "2026-12-01T00:00:00+00:00"}
    withdrawals.record(tmp_path / "withdrawn", "5" * 64, withdrawals.WITHDRAW, **told)
    monkeypatch.setenv(withdrawals.PLACES, str(tmp_path / "withdrawn"))
    with pytest.raises(UserError, match=r"made from environment\.source .* consent"):
        registration.describe(tmp_path / "promoted")


def test_another_stage_s_artifact_is_not_entered(tmp_path):
    (tmp_path / "policy").mkdir()
    artifacts.write_manifest(tmp_path / "policy", stage="policy", parameters={}, inputs={}, metrics={})
    with pytest.raises(UserError, match="written by the stage policy"):
        registration.describe(tmp_path / "policy")


def test_without_a_registry_nobody_is_asked(tmp_path):
    promoted(tmp_path / "promoted")
    assert registration.register(tmp_path / "promoted") == []


@pytest.mark.parametrize("digest", ["a" * 64, "sha256:" + "a" * 64, "b" * 32 + ".dir", "c" * 5])
def test_a_short_digest_fits_mlflow_and_is_its_beginning(digest):
    short = registration.short_digest(digest)
    assert 0 < len(short) <= 36
    assert digest.rpartition(":")[2].startswith(short)
