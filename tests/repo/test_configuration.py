"""Every committed configuration parses, says everything, and the root's is the demo's."""

from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from geartrain.config_file import load_config

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "params.yaml", *sorted((ROOT / "profiles").glob("*.yaml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_configuration_is_valid_and_names_every_field(path: Path) -> None:
    config = load_config(path)
    assert _missing(config, yaml.safe_load(path.read_text())) == []


def test_params_are_the_demo_profile() -> None:
    assert (ROOT / "params.yaml").read_bytes() == (ROOT / "profiles/demo.yaml").read_bytes()


def test_every_yaml_in_the_repository_parses() -> None:
    for path in [*ROOT.glob("*.yaml"), *(ROOT / "profiles").glob("*.yaml"), *(ROOT / "tests/deploy").rglob("*.yaml")]:
        assert list(yaml.safe_load_all(path.read_text())), path


def _missing(section: BaseModel, record: dict) -> list[str]:
    absent = [name for name in type(section).model_fields if name not in record]
    for name, value in section:
        if isinstance(value, BaseModel) and name in record:
            absent += [f"{name}.{inner}" for inner in _missing(value, record[name])]
    return absent
