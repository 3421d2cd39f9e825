"""A stage's body reads only the sections that it declares: others hold defaults, not what the user wrote."""

import ast
from typing import Any

import pytest

from geartrain.config import Config
from geartrain.stages.stage import ORDER


@pytest.mark.parametrize("name", ORDER)
def test_stage_reads_only_declared_sections(name: str, declarations: dict[str, Any]) -> None:
    allowed = {"seed", "threads", *declarations[name].sections}
    read = {
        node.attr
        for node in ast.walk(declarations[name].tree)
        if isinstance(node, ast.Attribute) and _is_config(node.value) and node.attr in Config.model_fields
    }
    assert read <= allowed


def _is_config(node: ast.expr) -> bool:
    """`config` or `job.config`, under any name that ends in config."""
    return (isinstance(node, ast.Attribute) and node.attr == "config") or (
        isinstance(node, ast.Name) and node.id.endswith("config")
    )
