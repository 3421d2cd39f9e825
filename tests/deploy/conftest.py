"""The compiled pipeline, as documents, for each site."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.compile import compile_pipeline
from pipelines.compiled import Compiled, read_compiled

RELEASED = "registry.example.org/geartrain/python@sha256:" + "5" * 64


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled pipeline's file, for the site `dev`, without defaults."""
    path = tmp_path_factory.mktemp("compiled") / "training.yaml"
    compile_pipeline(path)
    return path


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """The folder of what a release for the site `prod` writes: training.yaml and native.yaml."""
    folder = tmp_path_factory.mktemp("released")
    command = [sys.executable, "-m", "pipelines.compile", "--release", "--native", "--out", str(folder)]
    variables = {**os.environ, "GEARTRAIN_SITE": "prod", "GEARTRAIN_IMAGE": RELEASED}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=variables)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="session")
def compiled_pipeline(compiled: Path) -> Compiled:
    """The compiled pipeline, read back."""
    return read_compiled(compiled)


@pytest.fixture(scope="session")
def spec(compiled: Path) -> dict[str, Any]:
    """The first document of the compiled pipeline: the PipelineSpec."""
    return next(yaml.safe_load_all(compiled.read_text()))


@pytest.fixture(scope="session")
def pods(compiled: Path) -> dict[str, Any]:
    """The second document's settings of each executor."""
    _, platform = yaml.safe_load_all(compiled.read_text())
    return platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
