"""A toy stage, and one that reads tasks and raw data."""

import pytest

from geartrain.stages import stage as stages
from geartrain.stages.stage import StageSpec
from tests.fakes.toy_stage import Body


@pytest.fixture
def body() -> Body:
    return Body()


@pytest.fixture
def toy(body: Body) -> StageSpec:
    return stages.stage(inputs=(), sections=("policy",))(body).spec


@pytest.fixture
def reader(body: Body) -> StageSpec:
    return stages.stage(inputs=("tasks",), sections=("policy", "environment"), files=("environment.source",))(body).spec
