"""Every public function of the maths says where it comes from, itself or for its module: a paper, or ours."""

import ast
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "src/geartrain/algorithms"
SOURCE = re.compile(r"Source:|arXiv[: ]?\d{4}\.\d{4,5}|\bours\b|\(\d{4}\)", re.IGNORECASE)
FUNCTIONS = [
    pytest.param(module, node, id=f"{path.stem}.{node.name}")
    for path in sorted(FOLDER.glob("*.py"))
    for module in [ast.parse(path.read_text())]
    for node in module.body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
]


@pytest.mark.parametrize(("module", "function"), FUNCTIONS)
def test_docstring_names_a_source(module: ast.Module, function: ast.FunctionDef) -> None:
    text = "\n".join(ast.get_docstring(node) or "" for node in (module, function))
    assert SOURCE.search(text), f"{function.name}: name the paper (arXiv id) or say 'ours'"
