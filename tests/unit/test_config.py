"""`params.yaml` is checked whole, and every complaint names the key and the way out."""

from pathlib import Path

import pytest

from geartrain.config import Config, TinyModel, parse_config
from geartrain.config_file import load_config, missing_files
from geartrain.errors import UserError


def test_defaults_are_a_valid_run() -> None:
    config = parse_config({}, source="x")
    assert isinstance(config.model, TinyModel)
    assert config == Config()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"polcy": {}}, "polcy: unknown key; did you mean 'policy'?"),
        ({"policy": {"clip_lwo": 0.1}}, "policy.clip_lwo: unknown key; did you mean 'clip_low'?"),
        ({"model": {"kind": "tiny", "hiden": 64}}, "model.hiden: unknown key; did you mean 'hidden'?"),
        (
            {"collect": {"sampling": {"temprature": 1}}},
            "collect.sampling.temprature: unknown key; did you mean 'temper",
        ),
        ({"policy": {"iterations": 0}}, "policy.iterations: Input should be greater than or equal to 1 (got 0)"),
        ({"policy": {"iterations": "many"}}, "policy.iterations: Input should be a valid integer"),
        ({"policy": {"learning_rate": float("nan")}}, "policy.learning_rate: Input should be"),
        (
            {"policy": {"sampling": {"temperature": float("inf")}}},
            "policy.sampling.temperature: Input should be a finite",
        ),
        ({"policy": {"siblings": 1}}, "policy.siblings: Input should be greater than or equal to 2"),
        ({"model": {"kind": "tiny", "hidden": 96, "heads": 5}}, "model: hidden (96) must be an even multiple of heads"),
        ({"tasks": {"test": 4, "paraphrase": 5}}, "tasks: paraphrase (5) rewords test tasks, of which there are 4"),
        (
            {"policy": {"recipe": "direct_distillation", "kl_place": "reward"}},
            "policy: kl_place: direct_distillation learns from no reward, so a KL that is paid there holds nothing. "
            "Set kl_place: loss",
        ),
    ],
)
def test_a_bad_value_is_named(record: dict[str, object], said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config(record, source="params.yaml")
    assert str(caught.value).startswith("params.yaml: 1 problem(s)")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            {"model": {"kind": "tinny"}},
            "model.kind: must be one of tiny, pretrained; did you mean 'tiny'? (got 'tinny')",
        ),
        ({"policy": {"recipe": "gear_a_sgcdd"}}, "did you mean 'gear_a_sgcd'?"),
        ({"environment": {"prompt": "breif"}}, "environment.prompt: must be one of full, brief; did you mean 'brief'?"),
        ({"seed": True}, "seed: expected a number (got True)"),
        ({"policy": {"clip_low": 1.5}}, "policy.clip_low: Input should be less than 1"),
        ({"threads": 100_000}, "threads: Input should be less than or equal to 1024"),
        ({"policy": {"iterations": 10**400}}, "policy.iterations: "),
        ({"model": {"kind": "tiny", "context": 1}}, "model.context: Input should be greater than or equal to 64"),
    ],
)
def test_a_near_miss_and_an_impossible_value_are_named(record: dict[str, object], said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config(record, source="params.yaml")
    assert said in str(caught.value)


def test_a_section_is_not_dumped_into_the_message() -> None:
    with pytest.raises(UserError) as caught:
        parse_config({"tasks": {"test": 4, "paraphrase": 5}}, source="x")
    assert "got" not in str(caught.value)


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(UserError, match=r"2 problem\(s\)"):
        parse_config({"seed": -1, "critic": {"hiden": 3}}, source="x")


def test_sections_are_checked_against_one_another(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("tasks: {train: 8}\ncollect: {tasks: 9}\npolicy: {tasks_per_iteration: 2}\n")
    with pytest.raises(UserError, match=r"collect.tasks: 9 exceeds tasks.train \(8\)"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1\n", "expected sections"),
        ("a: [\n", "not YAML"),
        ("seed: 0\nthreads: 1\nseed: 1\n", "key 'seed' is given twice, in lines 1 and 3"),
        ("policy: {iterations: 2, iterations: 3}\n", "key 'iterations' is given twice"),
        ("seed: 2001-13-45\n", "not YAML: month must be in 1..12"),
        ("seed: " + "9" * 5000 + "\n", "not YAML: Exceeds the limit"),
        ("seed: " + "[" * 3000 + "\n", "not YAML"),
    ],
)
def test_a_file_that_is_no_mapping(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        load_config(path)
    with pytest.raises(UserError, match="no such file"):
        load_config(tmp_path / "absent.yaml")


def test_missing_files_are_named(tmp_path: Path) -> None:
    record = {"environment": {"source": str(tmp_path / "x.json")}, "model": {"kind": "pretrained", "path": "/absent"}}
    lines = missing_files(parse_config(record, source="x"))
    assert [line.split(":")[0].strip() for line in lines] == ["environment.source", "model.path"]


def test_a_folder_is_no_source_and_any_folder_no_encoder(tmp_path: Path) -> None:
    record = {"environment": {"source": str(tmp_path)}, "reward_model": {"encoder": str(tmp_path)}}
    record["critic"] = {"encoder": "x" * 5000}
    lines = missing_files(parse_config(record, source="x"))
    assert [line.split(":")[0].strip() for line in lines] == [
        "environment.source",
        "reward_model.encoder",
        "critic.encoder",
    ]


def test_numbers_that_came_through_a_protobuf_struct_are_accepted() -> None:
    """KFP hands dict parameters over as doubles: 2 arrives as 2.0."""
    config = parse_config({"seed": 3.0, "policy": {"iterations": 2.0}}, source="kfp")
    assert (config.seed, config.policy.iterations) == (3, 2)
