"""What the house rules look at: sources, the import graph, the declarations of the stages."""

import ast
from dataclasses import dataclass
from pathlib import Path

import grimp
import pytest
import yaml

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Declaration:
    """What a stage's decorator says, read without importing it."""

    inputs: tuple[str, ...]
    sections: tuple[str, ...]
    tree: ast.Module


@pytest.fixture(scope="session")
def declarations() -> dict[str, Declaration]:
    """Stage name -> declaration, for every module of src/geartrain/stages."""
    return {
        path.stem: _declaration(ast.parse(path.read_text()))
        for path in sorted((ROOT / "src/geartrain/stages").glob("[!_]*.py"))
        if path.stem != "stage"
    }


def _declaration(tree: ast.Module) -> Declaration:
    (run,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    (decorator,) = run.decorator_list
    assert isinstance(decorator, ast.Call)
    keywords = {word.arg: ast.literal_eval(word.value) for word in decorator.keywords if word.arg != "sealed"}
    return Declaration(keywords["inputs"], keywords["sections"], tree)


@pytest.fixture(scope="session")
def imports() -> grimp.ImportGraph:
    """Who imports whom, external packages included; imports inside functions count."""
    return grimp.build_graph("geartrain", "components", "pipelines", include_external_packages=True, cache_dir=None)


@pytest.fixture(scope="session")
def dvc() -> dict[str, dict]:
    """The stages of dvc.yaml."""
    return yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
