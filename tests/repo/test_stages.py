"""A stage's body reads only the sections that it declares: others hold defaults, not what the user wrote."""

import ast
from typing import Any

import pytest

from geartrain.config import Config
from geartrain.sources import is_source
from geartrain.stages.stage import ORDER, load_stage


@pytest.mark.parametrize("name", ORDER)
def test_stage_reads_only_declared_sections(name: str, declarations: dict[str, Any]) -> None:
    allowed = {"seed", "threads", *declarations[name].sections}
    read = {
        node.attr
        for node in ast.walk(declarations[name].tree)
        if isinstance(node, ast.Attribute) and _is_config(node.value) and node.attr in Config.model_fields
    }
    assert read <= allowed


@pytest.mark.parametrize("name", ORDER)
def test_inputs_from_outside_are_told_from_stages_by_their_names(name: str) -> None:
    spec = load_stage(name)
    assert all(is_source(key) for key in spec.files)
    assert not any(is_source(key) for key in spec.inputs)


def _is_config(node: ast.expr) -> bool:
    """`config` or `job.config`, under any name that ends in config."""
    return (isinstance(node, ast.Attribute) and node.attr == "config") or (
        isinstance(node, ast.Name) and node.id.endswith("config")
    )
