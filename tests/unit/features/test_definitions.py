"""The feature repository holds definitions of what the code writes, and Feast's own command line applies it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from geartrain import artifacts
from geartrain.features import definitions
from geartrain.features.errors import DefinitionError
from geartrain.features.tables import TABLES, write_tables

TYPES = {"Int64": pa.int64(), "Float64": pa.float64(), "String": pa.string()}


def test_views_are_the_tables(store_of):
    store = store_of({})
    views = {view.name: view for service in store.services() for view in store.needs(service.name).views}
    assert set(views) == set(TABLES)
    for name, view in views.items():
        fields = {column.name: TYPES[str(column.dtype)] for column in (*view.entity_columns, *view.features)}
        assert fields == {field.name: field.type for field in TABLES[name] if not field.name.endswith("_timestamp")}
        assert Path(view.batch_source.path).name == f"{name}.parquet"
        assert not view.ttl


def test_every_definition_is_described(store_of):
    store = store_of({})
    assert all(service.description for service in store.services())
    assert all(view.description for service in store.services() for view in store.needs(service.name).views)


def test_the_repository_holds_definitions_only(root):
    """Feast runs every file that it finds there: a script among them would run on each apply."""
    for path in (root / "data/feature_repo").rglob("*.py"):
        loose = [
            node
            for node in ast.parse(path.read_text()).body
            if not isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.Assign)
            and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        ]
        assert loose == [], path


@pytest.mark.slow
def test_feasts_own_command_line_applies_it(root, tmp_path):
    write_tables(tmp_path / "tables", {})
    variables = {
        **os.environ,
        definitions.HOME_VARIABLE: str(tmp_path),
        "PYTHONPATH": str(root / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    code, folder = "from feast.cli.cli import cli; cli()", str(root / "data/feature_repo")
    command = [sys.executable, "-W", "ignore", "-c", code, "-c", folder]
    done = subprocess.run([*command, "apply"], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [*command, "feature-services", "list"], env=variables, capture_output=True, text=True, check=False
    )
    assert {"sampler_v1", "rlar_v1", "critic_v1"} <= set(listed.stdout.split())


def test_definitions_are_code_of_the_results(tmp_path, monkeypatch):
    monkeypatch.setenv("GEARTRAIN_FEATURE_REPO", str(tmp_path))
    with pytest.raises(DefinitionError, match=r"no feature repository.*GEARTRAIN_FEATURE_REPO"):
        definitions.find_definitions()
    digests = []
    for text in ("a = 1\n", "a = 2\n"):
        (tmp_path / "views.py").write_text(text)
        artifacts.code_digest.cache_clear()
        digests.append(artifacts.code_digest())
    artifacts.code_digest.cache_clear()
    assert digests[0] != digests[1]
