"""The provenance names everything that made a model, says the same each time, and its models accept it."""

import json

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2

from geartrain.artifacts import MANIFEST, file_sha256
from geartrain.errors import TamperedError
from geartrain.lineage import origin
from geartrain.supply import provenance
from tests.fakes.promoted import ANCESTORS, INPUTS, promoted


@pytest.fixture(autouse=True)
def _outside(monkeypatch):
    for name in (origin.RUN_ID, origin.IMAGE, "KUBERNETES_SERVICE_HOST", "OPENLINEAGE_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GEARTRAIN_GIT_COMMIT", "c" * 40)
    monkeypatch.setenv("GEARTRAIN_GIT_REPOSITORY", "https://user:secret@git.example.org/team/repo.git")


@pytest.fixture
def made(tmp_path):
    manifest = promoted(tmp_path / "promoted")
    return tmp_path / "promoted", manifest


def statement(made, **byproducts):
    folder, manifest = made
    return provenance.make_statement(folder, manifest, byproducts)


def test_in_toto_s_models_read_it(made):
    told = json_format.Parse(statement(made), statement_pb2.Statement())
    assert told.predicate_type == "https://slsa.dev/provenance/v1"
    predicate = json_format.ParseDict(json_format.MessageToDict(told.predicate), provenance_pb2.Provenance())
    assert predicate.build_definition.build_type.startswith("https://")
    assert predicate.run_details.builder.id.startswith("https://")


def test_it_names_every_file_and_every_ancestor_down_to_the_raw_data(made):
    folder, manifest = made
    told = json.loads(statement(made))
    subjects = {entry["name"]: entry["digest"]["sha256"] for entry in told["subject"]}
    assert subjects == {**manifest.files, MANIFEST: file_sha256(folder / MANIFEST)}
    found = {entry["name"]: entry["digest"] for entry in provenance.dependencies(statement(made))}
    for name, digest in {**{name: digest for digest, name in ANCESTORS.items()}, **INPUTS}.items():
        assert found[name] == {"sha256": digest}
    assert found["code of the package"] == {"sha256": manifest.code}
    assert found["source"] == {"gitCommit": "c" * 40}
    assert "git+https://git.example.org/team/repo" in statement(made).decode()
    assert "secret" not in statement(made).decode()
    assert "image" not in found
    assert "metadata" not in told["predicate"]["runDetails"]


@pytest.mark.parametrize(
    ("image", "name"), [("sha256:" + "e" * 64, "image"), ("content:" + "e" * 64, "contents of the image")]
)
def test_in_a_pod_it_names_the_run_and_the_image(made, monkeypatch, image, name):
    monkeypatch.setenv(origin.RUN_ID, "b7c1c3f2-8d5e-4a39-9f0e-2a7d1f6f9d10")
    monkeypatch.setenv(origin.IMAGE, image)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    told = json.loads(statement(made))["predicate"]
    assert told["runDetails"]["metadata"]["invocationId"] == "b7c1c3f2-8d5e-4a39-9f0e-2a7d1f6f9d10"
    assert told["runDetails"]["builder"]["id"].endswith("/builders/kfp")
    assert {"name": name, "digest": {"sha256": "e" * 64}} in told["buildDefinition"]["resolvedDependencies"]


def test_changed_sources_are_said_to_be_changed(made, monkeypatch):
    monkeypatch.setenv("GEARTRAIN_GIT_COMMIT", "c" * 40 + "-dirty")
    (source,) = [entry for entry in provenance.dependencies(statement(made)) if entry["name"] == "source"]
    assert (source["digest"], source["annotations"]) == ({"gitCommit": "c" * 40}, {"changed": True})


def test_it_calls_us_what_lineage_calls_us():
    from geartrain.lineage import openlineage

    assert provenance.PRODUCER == openlineage.PRODUCER


def test_the_same_work_gives_the_same_bytes(made, tmp_path):
    again = promoted(tmp_path / "again")
    assert statement(made) == statement((tmp_path / "again", again))


def test_it_holds_neither_paths_of_this_machine_nor_times(made, tmp_path):
    text = statement(made).decode()
    assert str(tmp_path) not in text
    assert "startedOn" not in text


def test_what_does_not_fit_is_named(made, tmp_path):
    folder, manifest = made
    bill = tmp_path / "bill"
    bill.write_text("packages")
    text = statement(made, bill=bill)
    assert provenance.check_statement(text, folder, manifest, {"bill": bill}) == []
    bill.write_text("others")
    assert provenance.check_statement(text, folder, manifest, {"bill": bill}) == ["bill is not the file that it names"]
    bill.unlink()
    told = json.loads(text)
    told["predicate"]["runDetails"]["byproducts"] = []
    told["subject"] = [entry for entry in told["subject"] if entry["name"] != "decision.json"]
    parts = told["predicate"]["buildDefinition"]["resolvedDependencies"]
    told["predicate"]["buildDefinition"]["resolvedDependencies"] = [p for p in parts if p["name"] != "tasks"]
    faults = provenance.check_statement(json.dumps(told).encode(), folder, manifest, {})
    assert faults == ["decision.json is not in it", f"it leaves out tasks ({'3' * 12})"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"_type": "https://in-toto.io/Statement/v1", "subject": []}',
        b'{"_type": "https://in-toto.io/Statement/v1", "subject": [{"name": "a", "digest": {"sha256": "b"}}],'
        b' "predicateType": "https://slsa.dev/verification_summary/v1", "predicate": {"a": 1}}',
        b'{"_type": "https://in-toto.io/Statement/v1", "subject": [{"name": "a", "digest": {"sha256": "b"}}],'
        b' "predicateType": "https://slsa.dev/provenance/v1", "predicate": {"unknown": 1}}',
    ],
)
def test_another_statement_is_no_provenance(made, text):
    folder, manifest = made
    with pytest.raises(TamperedError, match="no SLSA provenance"):
        provenance.check_statement(text, folder, manifest, {})
