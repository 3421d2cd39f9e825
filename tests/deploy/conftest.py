"""The compiled pipeline, as a document."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.compile import compile_pipeline


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled pipeline's file, without defaults."""
    path = tmp_path_factory.mktemp("compiled") / "training.yaml"
    compile_pipeline(path)
    return path


@pytest.fixture(scope="session")
def spec(compiled: Path) -> dict[str, Any]:
    """The first document of the compiled pipeline: the PipelineSpec."""
    return next(yaml.safe_load_all(compiled.read_text()))
