"""The compiled pipeline is committed: a change of what the cluster is sent shows in the diff.

`make golden` rewrites it; kfp is pinned, for its version is part of the file.
"""

from pathlib import Path

import pytest
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from geartrain.config_file import load_config
from pipelines.compile import compile_pipeline

GOLDEN = Path(__file__).parent / "golden/training.yaml"


def test_compiled_pipeline_is_the_committed_one(compiled: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--regenerate"):
        GOLDEN.write_bytes(compiled.read_bytes())
    assert compiled.read_text() == GOLDEN.read_text(), "wanted? then `make golden` and commit the diff"


def test_compiling_twice_gives_the_same_bytes(compiled: Path, tmp_path: Path) -> None:
    compile_pipeline(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_bytes() == compiled.read_bytes()


def test_compiled_pipeline_fits_kubeflows_schema(spec: dict) -> None:
    # ParseDict refuses an unknown field
    parsed = json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    assert len(parsed.root.dag.tasks) == 9


def test_a_configuration_becomes_the_defaults(tmp_path: Path, root: Path) -> None:
    compile_pipeline(tmp_path / "smoke.yaml", load_config(root / "profiles/smoke.yaml"))
    assert "threads: int [Default: 1.0]" in (tmp_path / "smoke.yaml").read_text()
