import pytest
import yaml

from geartrain.config import Config, parse_config
from geartrain.params import render


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"seed": 3, "model": {"kind": "pretrained", "path": "data/raw/a b.gguf"}, "policy": {"learning_rate": 1e-05}},
        {"critic": {"encoder": "yes"}},
    ],
)
def test_what_is_written_parses_back_to_the_same(record: dict) -> None:
    config = parse_config(record, source="test")
    assert parse_config(yaml.safe_load(render(config)), source="test") == config


def test_a_field_carries_what_it_does() -> None:
    text = render(Config(), only="policy")
    assert "  # High forgets the format" in text
    assert set(yaml.safe_load(text)) == {"policy"}
