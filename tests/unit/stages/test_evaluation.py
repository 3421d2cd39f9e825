"""The stage end to end with a real, untrained model; its tables with players of known skill."""

import json

import pytest

from geartrain import artifacts, environments
from geartrain.config import Config, EvaluationSection
from geartrain.datasets.task_sets import write_tasks
from geartrain.errors import UserError
from geartrain.models.backbone import build_policy, save_policy
from geartrain.models.tokenizer import train_tokenizer
from geartrain.rollouts.collect import Limits
from geartrain.rollouts.suite import Suite, play_suite
from geartrain.stages import evaluation
from geartrain.trajectory import read_trajectories
from tests.fakes.errand import Errand, Player, make_tasks


@pytest.fixture
def suite():
    tasks = {"test": make_tasks(40), "ood": make_tasks(12, "ood")}
    return Suite(Errand(), tasks, EvaluationSection(samples=2, resamples=300), limits=Limits(64, 9), seed=5)


def play(suite, skill, folder, label):
    return play_suite(suite, lambda: skill, work=folder, label=label, play=Player())


def test_tables_show_the_gain_on_every_split_and_decoding(suite, tmp_path):
    before, after = play(suite, 0.4, tmp_path, "before"), play(suite, 0.95, tmp_path, "after")
    tables = evaluation.compare(suite, before, after)
    assert {(s, d) for s, ds in tables["splits"].items() for d in ds} == {
        (split, decoding) for split in ("test", "ood") for decoding in ("greedy", "sampled")
    }
    test = tables["splits"]["test"]["sampled"]
    assert test["gain"]["low"] > 0
    assert test["after"]["success"]["estimate"] > 0.7 > test["before"]["success"]["estimate"]
    assert [row["family"] for row in test["families"]] == ["long", "short"]
    assert sum(row["tasks"] for row in test["families"]) == test["after"]["tasks"] == 40
    assert tables["splits"]["test"]["greedy"]["gain"]["mcnemar_p_value"] < 0.01
    json.dumps(tables, allow_nan=False)


def test_main_numbers_are_flat_and_leave_out_what_cannot_be_measured(suite, tmp_path):
    never = play(suite, 0.0, tmp_path, "before")
    metrics = evaluation.main_numbers(evaluation.compare(suite, never, never))
    assert metrics["test_sampled_success_after"] == 0.0
    assert metrics["probe_successes"] == 0
    assert "test_sampled_zero_tool_successes" not in metrics
    assert all(isinstance(value, int | float) for value in metrics.values())


def test_gullible_verifier_shows_in_the_main_numbers(tmp_path):
    suite = Suite(
        Errand(gullible=True), {"test": make_tasks(4)}, EvaluationSection(resamples=50), limits=Limits(9, 5), seed=0
    )
    episodes = play(suite, 0.5, tmp_path, "x")
    assert evaluation.main_numbers(evaluation.compare(suite, episodes, episodes))["probe_successes"] == 12


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """Inputs and outputs of the real stage: two untrained models, the errand in place of the analyst."""
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(environments.ENVIRONMENTS, "analyst", (lambda settings, worlds: Errand(), None))
    config = Config.model_validate(
        {
            "threads": 1,
            "model": {"kind": "tiny", "vocabulary": 300, "hidden": 16, "layers": 1, "heads": 1, "context": 160},
            "environment": {"max_turns": 3},
            "evaluation": {"samples": 2, "resamples": 50, "chunk_episodes": 4, "sampling": {"max_new_tokens": 8}},
        }
    )
    inputs = {name: tmp_path / name for name in ("tasks", "warm_start", "policy")}
    for folder in inputs.values():
        folder.mkdir()
    for split, count in {"test": 3, "ood": 2, "paraphrase": 0, "val": 1, "train": 1}.items():
        write_tasks(inputs["tasks"] / f"{split}.jsonl", make_tasks(count, split))
    tokenizer = train_tokenizer(['{"name": "take", "arguments": {"item": "tea"}}'] * 4, vocabulary=300)
    for seed, name in enumerate(("warm_start", "policy")):
        save_policy(build_policy(tokenizer, config.model, seed=seed), inputs[name])
    for name, folder in inputs.items():
        artifacts.write_manifest(folder, stage=name, parameters={}, inputs={}, metrics={})
    return config, inputs, {"evaluation": tmp_path / "evaluation"}


def test_stage_writes_metrics_tables_and_episodes_and_repeats_bit_for_bit(stage, tmp_path):
    config, inputs, outputs = stage
    metrics = evaluation.run(config, inputs, outputs)
    folder = outputs["evaluation"]
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    tables = json.loads((folder / "tables.json").read_text())
    assert set(tables["splits"]) == {"test", "ood"}  # paraphrase is empty, val chose the checkpoint
    assert tables["models"]["after"] == artifacts.read_manifest(inputs["policy"]).digest
    names = {path.name for path in (folder / "episodes").iterdir()}
    assert names == {
        f"{role}_{split}_{decoding}.parquet"
        for role in ("before", "after")
        for split in ("test", "ood")
        for decoding in ("greedy", "sampled")
    }
    played = list(read_trajectories(folder / "episodes" / "after_test_sampled.parquet"))
    assert [(t.task_id, t.sibling) for t in played] == [(f"test-{i:03d}", s) for i in range(3) for s in range(2)]
    evaluation.run(config, inputs, {"evaluation": tmp_path / "again"})
    assert artifacts.read_manifest(tmp_path / "again").digest == artifacts.read_manifest(folder).digest


def test_any_model_folder_can_be_measured(stage, tmp_path):
    config, inputs, _ = stage
    found = evaluation.evaluate_model(inputs["policy"], inputs["tasks"], config, splits=("test",), work=tmp_path / "w")
    assert found["splits"]["test"]["greedy"]["tasks"] == 3
    assert found["splits"]["test"]["sampled"]["episodes"] == 6
    assert {probe["successes"] for probe in found["probes"].values()} == {0}


def test_empty_splits_are_an_error_that_says_what_to_do(stage, tmp_path):
    config, inputs, _ = stage
    with pytest.raises(UserError, match="no tasks in paraphrase"):
        evaluation.evaluate_model(
            inputs["policy"], inputs["tasks"], config, splits=("paraphrase",), work=tmp_path / "w"
        )
