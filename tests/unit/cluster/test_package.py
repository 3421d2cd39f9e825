"""A compiled pipeline: one name per content, parameters that fit, differences that can be read."""

from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format, struct_pb2
from kfp.pipeline_spec import pipeline_spec_pb2

from geartrain.cluster.package import SIZE_LIMIT, arguments, differences, read_package, same_content, spec_digest
from geartrain.errors import UserError
from tests.fakes.pipeline import SPEC, write_pipeline


def test_the_name_depends_on_content_and_not_on_layout(tmp_path):
    plain = write_pipeline(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("# a comment\n" + yaml.safe_dump(SPEC, default_flow_style=True, sort_keys=False))
    assert read_package(plain).digest == read_package(tmp_path / "b.yaml").digest
    other = write_pipeline(tmp_path / "c.yaml", image="other")
    assert read_package(other).version_name != read_package(plain).version_name


def test_numbers_are_what_protobuf_makes_of_them():
    assert spec_digest({"retries": 2, "factor": 2.0}) == spec_digest({"factor": 2, "retries": 2.0})
    assert spec_digest({"on": True}) != spec_digest({"on": 1})


def test_the_real_pipeline_is_known_again_after_protobuf_wrote_it_anew():
    golden = Path(__file__).parents[2] / "deploy/golden/training.yaml"
    package = read_package(golden)
    documents = list(yaml.safe_load_all(golden.read_text()))
    parsed = json_format.ParseDict(documents[0], pipeline_spec_pb2.PipelineSpec())
    # as the server: into a message, out as JSON, and through a Struct, which knows no integers
    written = json_format.ParseDict(json_format.MessageToDict(parsed), struct_pb2.Struct())
    stored = json_format.MessageToDict(written)
    if len(documents) > 1:
        stored = {"pipeline_spec": stored, "platform_spec": documents[1]}
    assert same_content(stored, package)
    other = read_package(golden)
    stored.get("pipeline_spec", stored)["root"]["dag"]["tasks"].popitem()
    assert not same_content(stored, other)


@pytest.mark.parametrize("text", ["", "just text", "a: [", "pipelineInfo: {name: x}\n", "- 1\n"])
def test_what_is_no_pipeline_is_refused(tmp_path, text):
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(UserError, match="not a compiled pipeline"):
        read_package(tmp_path / "p.yaml")


def test_a_file_that_is_missing_or_too_large_says_so(tmp_path):
    with pytest.raises(UserError, match="geartrain compile"):
        read_package(tmp_path / "absent.yaml")
    (tmp_path / "p.yaml").write_text("#" * (SIZE_LIMIT + 1))
    with pytest.raises(UserError, match="kubeflow/pipelines#13738"):
        read_package(tmp_path / "p.yaml")


def test_parameters_fit_the_pipeline_or_are_refused(tmp_path):
    inputs = {"seed": {}, "policy": {}, "dataset_rev": {"defaultValue": "main"}, "note": {"isOptional": True}}
    package = read_package(write_pipeline(tmp_path / "p.yaml", inputs=inputs))
    assert arguments(package, {"seed": 1, "policy": {}}, {}) == {"seed": 1, "policy": {}}
    with pytest.raises(UserError, match="no parameter critic; it has dataset_rev, note, policy, seed"):
        arguments(package, {"seed": 1, "policy": {}, "critic": {}}, {})
    with pytest.raises(UserError, match="needs policy;"):
        arguments(package, {"seed": 1}, {})


def test_differences_are_told_leaf_by_leaf():
    new = {"a": {"b": 1, "c": [1, 2], "new": "x"}, "same": 1.0}
    old = {"a": {"b": 2, "c": [1], "old": None}, "same": 1}
    assert differences(new, old) == [
        "a.b: 1 (default 2)",
        "a.c: [1,2] (default [1])",
        'a.new: "x" (default: none)',
        "a.old: none (default null)",
    ]
