"""What comes from outside is known by its content, with what we know of its licence."""

import runpy
from pathlib import Path

from geartrain import sources
from geartrain.artifacts import definitions_digest
from geartrain.config import Config, parse_config
from geartrain.environments import ENVIRONMENTS
from geartrain.sources import read_sources
from geartrain.stages.stage import ORDER, load_stage

ROOT = Path(__file__).parents[2]


def test_the_raw_data_is_that_which_fetch_gets() -> None:
    fetched = runpy.run_path(str(ROOT / "data/fetch.py"))["SHA256"]
    licence, origin = sources.KNOWN[fetched]
    assert "Freely Distributable" in (ROOT / "NOTICE").read_text()
    assert licence == "Freely Distributable"
    name, _, version = origin.removeprefix("pkg:pypi/").partition("@")
    assert f"{name}=={version}" in (ROOT / "requirements/chinook.txt").read_text()


def test_the_encoder_is_that_of_the_pinned_package() -> None:
    (encoder,) = read_sources(Config(), ("reward_model.encoder",))
    text = (ROOT / "requirements/data.txt").read_text()
    assert encoder.licence in text
    assert encoder.origin.removeprefix("pkg:pypi/").replace("@", "==") in text


def test_a_file_that_nobody_knows_has_no_licence(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    config = parse_config({"environment": {"source": str(tmp_path / "x.json")}}, source="x")
    (source,) = read_sources(config, ("environment.source", "model.path"))
    assert (source.name, source.licence, source.origin) == ("environment.source", "", "")


def test_every_file_that_a_configuration_may_name_is_read_by_a_stage() -> None:
    record = {
        "model": {"kind": "pretrained", "path": "m"},
        "critic": {"encoder": "c"},
        "reward_model": {"encoder": "r"},
        "preferences": {"history": "h", "files": [{"path": "a", "licence": "mit"}, {"path": "b"}]},
    }
    assert "analyst" in ENVIRONMENTS
    keys = {key for key, _, _ in sources.named_files(parse_config(record, source="x"))}
    declared = {key for name in ORDER for key in load_stage(name).files}
    named = {"environment.source", "model.path", "critic.encoder", "reward_model.encoder"}
    assert keys == named | {"preferences.history", "preferences.files.0", "preferences.files.1"}
    assert declared == named | {"preferences.history", "preferences.files", sources.DEFINITIONS}
    assert set(sources.read_keys(sorted(declared), keys)) == keys


def test_a_file_of_preferences_has_the_licence_that_the_configuration_says(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("{}\n")
    config = parse_config({"preferences": {"files": [{"path": "mine.jsonl", "licence": "mit"}]}}, source="x")
    (source,) = read_sources(config, ["preferences.files"], root=tmp_path)
    assert (source.name, source.path, source.licence) == ("preferences.files.0", "mine.jsonl", "mit")


def test_the_feature_definitions_are_a_source_of_the_stage_that_uses_them() -> None:
    (found,) = read_sources(Config(), load_stage("preferences").files)
    assert found.digest == definitions_digest()
    assert "Apache-2.0" in (ROOT / "NOTICE").read_text() + (ROOT / "pyproject.toml").read_text()
