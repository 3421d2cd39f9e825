"""The SBOM: what CycloneDX's own schema accepts, with the packages that are here and the model that it is about."""

import json
from importlib.metadata import version

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from geartrain.errors import InfrastructureError
from geartrain.supply import sbom
from tests.fakes.promoted import image_packages, promoted


def write(tmp_path):
    manifest = promoted(tmp_path / "promoted")
    sbom.write_sbom(tmp_path / "sbom.cdx.json", manifest)
    return json.loads((tmp_path / "sbom.cdx.json").read_text()), manifest


def faults(bom):
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bom))
    return None if error is None else str(error.data)


def test_an_image_s_own_list_is_taken_and_the_model_added(tmp_path, monkeypatch):
    monkeypatch.setattr(sbom, "OF_THE_IMAGE", image_packages(tmp_path / "image.json"))
    bom, manifest = write(tmp_path)
    assert [component["name"] for component in bom["components"]] == ["torch"]
    model = bom["metadata"]["component"]
    assert (model["type"], model["version"]) == ("machine-learning-model", manifest.digest)
    hashes = {part["name"]: part["hashes"][0]["content"] for part in model["components"]}
    assert hashes == {name: digest for name, digest in manifest.files.items() if name.startswith("model/")}
    assert faults(bom) is None


def test_elsewhere_the_packages_of_this_python_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(sbom, "OF_THE_IMAGE", tmp_path / "absent")
    bom, _ = write(tmp_path)
    found = {component["name"]: component["version"] for component in bom["components"]}
    assert found["torch"] == version("torch")
    assert {"numpy", "pydantic", "geartrain"} <= found.keys()
    assert str(tmp_path) not in json.dumps(bom)
    assert "timestamp" not in bom["metadata"]
    some = {
        **bom,
        "components": bom["components"][:5],
        "dependencies": [],
    }  # all of them take the validator half a minute
    assert faults(some) is None
    assert not list(tmp_path.glob("*.part"))


def test_a_list_that_cannot_be_made_is_no_empty_one(tmp_path, monkeypatch):
    monkeypatch.setattr(sbom, "OF_THE_IMAGE", tmp_path / "absent")
    monkeypatch.setattr(sbom.sys, "executable", "/bin/false")
    with pytest.raises(InfrastructureError, match="could not list"):
        write(tmp_path)
