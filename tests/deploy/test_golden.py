"""The compiled pipeline is committed: a change of what the cluster is sent shows in the diff.

`make golden` rewrites it; kfp is pinned, for its version is part of the file.
"""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp.compiler import Compiler
from kfp.compiler.compiler_utils import KubernetesManifestOptions
from kfp.kubernetes.kubernetes_executor_config_pb2 import KubernetesExecutorConfig
from kfp.pipeline_spec import pipeline_spec_pb2

from geartrain.cluster.package import read_package
from geartrain.cluster.submission import run_parameters
from geartrain.config_file import load_config
from geartrain.errors import UserError
from pipelines.compile import compile_pipeline
from pipelines.native import native
from pipelines.training import training

GOLDEN = Path(__file__).parent / "golden"
VERSION_FIELDS = {"pipelineName", "displayName", "versionName", "description", "pipelineSpec", "platformSpec"} | {
    "pipelineSpecURI",
    "codeSourceURL",
    "tags",
}
"""Of a PipelineVersion, from the types in kubeflow/pipelines backend/src/crd (2.17)."""


@pytest.fixture(params=["dev", "prod"])
def site(request: pytest.FixtureRequest, compiled: Path, released: Path) -> Path:
    """The compiled pipeline of each site."""
    return compiled if request.param == "dev" else released / "training.yaml"


def golden(name: str) -> Path:
    return GOLDEN / f"{name}.yaml"


@pytest.mark.parametrize("name", ["training", "training-prod"])
def test_compiled_pipeline_is_the_committed_one(
    name: str, compiled: Path, released: Path, request: pytest.FixtureRequest
) -> None:
    made = compiled if name == "training" else released / "training.yaml"
    if request.config.getoption("--regenerate"):
        golden(name).write_bytes(made.read_bytes())
    assert made.read_text() == golden(name).read_text(), "wanted? then `make golden` and commit the diff"


def test_compiling_twice_gives_the_same_bytes(compiled: Path, tmp_path: Path) -> None:
    compile_pipeline(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_bytes() == compiled.read_bytes()


def strictly(document: dict[str, Any], message: Any) -> Any:
    """Parse as protobuf's JSON, which refuses unknown fields, and find nothing lost."""
    parsed = json_format.ParseDict(document, message)
    assert json_format.MessageToDict(parsed) == document
    return parsed


def check_documents(spec: dict[str, Any], platform: dict[str, Any]) -> None:
    parsed = strictly(spec, pipeline_spec_pb2.PipelineSpec())
    assert set(parsed.root.dag.tasks) == {"exit-handler-1", "conclude"}
    assert len(parsed.components["comp-exit-handler-1"].dag.tasks) == 11
    strictly(platform, pipeline_spec_pb2.PlatformSpec())
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(executors) == set(spec["deploymentSpec"]["executors"])
    for config in executors.values():
        strictly(config, KubernetesExecutorConfig())


def test_compiled_documents_fit_kubeflows_schemas(site: Path) -> None:
    check_documents(*yaml.safe_load_all(site.read_text()))


@pytest.mark.parametrize("place", ["spec", "pod"])
def test_an_unknown_field_is_refused(place: str, site: Path) -> None:
    spec, platform = yaml.safe_load_all(site.read_text())
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    (spec if place == "spec" else executors["exec-policy"])["readOnlyRoot"] = True
    with pytest.raises(json_format.ParseError):
        check_documents(spec, platform)


def test_a_configuration_becomes_the_defaults(tmp_path: Path, root: Path) -> None:
    compile_pipeline(tmp_path / "smoke.yaml", load_config(root / "profiles/smoke.yaml"))
    assert "threads: int [Default: 1.0]" in (tmp_path / "smoke.yaml").read_text()


def test_a_job_s_settings_become_a_default(tmp_path: Path, root: Path) -> None:
    given = {"image": "registry.example.org/geartrain/train@sha256:" + "7" * 64, "nodes": 4}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({**given, "critic": {"cpu": "8"}}))
    command = [sys.executable, "-m", "pipelines.compile", "--out", str(tmp_path)]
    variables = {**os.environ, "GEARTRAIN_SITE": "prod", "GEARTRAIN_CLUSTER": str(tmp_path / "cluster.yaml")}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=variables)
    assert ended.returncode == 0, ended.stderr
    package = read_package(tmp_path / "training.yaml")
    assert package.defaults["cluster"] == given
    assert package.defaults["critic_cluster"] == {"image": given["image"], "cpu": "8"}
    assert package.defaults["reward_model_cluster"] == {}
    assert run_parameters(package, load_config(root / "params.yaml"), None)  # its default describes the job
    variables["GEARTRAIN_CLUSTER"] = str(tmp_path / "nowhere.yaml")
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=variables)
    assert (ended.returncode, "no such file. It holds what the training job asks for" in ended.stderr) == (2, True)


def test_a_run_where_the_policy_needs_a_job_is_told_of_one(compiled: Path, released: Path, root: Path) -> None:
    config = load_config(root / "params.yaml")
    assert read_package(compiled).launching == {}
    assert run_parameters(read_package(compiled), config, None)
    package = read_package(released / "training.yaml")
    assert package.launching == {"policy": "cluster"}
    with pytest.raises(UserError, match="where policy runs as a training job, and nothing describes that job"):
        run_parameters(package, config, None)


def test_native_objects_are_named_after_their_content(compiled: Path, tmp_path: Path, root: Path) -> None:
    pipeline, version = native(compiled, namespace="geartrain")
    assert (pipeline["kind"], pipeline["metadata"]["name"]) == ("Pipeline", "geartrain")
    assert version["metadata"]["name"] == read_package(compiled).version_name
    assert version["metadata"]["name"].startswith("geartrain-")
    assert native(compiled, namespace="geartrain") == [pipeline, version]
    compile_pipeline(tmp_path / "other.yaml", load_config(root / "profiles/smoke.yaml"))
    _, other = native(tmp_path / "other.yaml", namespace="geartrain")
    assert other["metadata"]["name"] != version["metadata"]["name"]


def test_native_objects_fit_their_schemas(released: Path) -> None:
    pipeline, version = yaml.safe_load_all((released / "native.yaml").read_text())
    assert set(pipeline["spec"]) == {"displayName", "description"}
    assert set(version["spec"]) <= VERSION_FIELDS
    assert version["spec"]["pipelineName"] == pipeline["metadata"]["name"]
    assert {found["apiVersion"] for found in (pipeline, version)} == {"pipelines.kubeflow.org/v2beta1"}
    assert {found["metadata"]["namespace"] for found in (pipeline, version)} == {"geartrain"}
    check_documents(version["spec"]["pipelineSpec"], version["spec"]["platformSpec"])
    stored = [*yaml.safe_load_all((released / "training.yaml").read_text())]
    assert [version["spec"]["pipelineSpec"], version["spec"]["platformSpec"]] == stored
    assert len(json.dumps(version)) < 1_000_000  # what one object may have in etcd: 1.5 MiB


def test_native_objects_are_those_of_kubeflows_compiler(compiled: Path, tmp_path: Path) -> None:
    ours = native(compiled, namespace="geartrain")
    options = KubernetesManifestOptions(
        pipeline_name="geartrain",
        pipeline_version_name=ours[1]["metadata"]["name"],
        pipeline_version_display_name=ours[1]["metadata"]["name"],
        namespace="geartrain",
        include_pipeline_manifest=True,
    )
    path = tmp_path / "theirs.yaml"
    Compiler().compile(training, str(path), kubernetes_manifest_format=True, kubernetes_manifest_options=options)
    theirs = list(yaml.safe_load_all(path.read_text()))
    plain = copy.deepcopy(ours)
    for found in plain:
        assert found["metadata"].pop("labels")["app.kubernetes.io/part-of"] == "geartrain"
    assert plain == theirs
