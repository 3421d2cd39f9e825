"""Stages `preferences` and `reward_model`, run as any shell runs them, on artifacts made here."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from geartrain import feature_commands, withdrawals
from geartrain.artifacts import read_manifest, verify, write_manifest
from geartrain.config import Config, parse_config
from geartrain.config_file import missing_files
from geartrain.datasets.task_sets import write_tasks
from geartrain.environments.environment import Task
from geartrain.errors import UserError
from geartrain.features.frames import read_frame
from geartrain.models.reward_model import RewardModel
from geartrain.preferences.forgeries import KINDS
from geartrain.preferences.pairs import SIBLINGS, read_pairs
from geartrain.stages import preferences, reward_model
from geartrain.stages.stage import FOLDERS
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn, write_trajectories
from tests.fakes.tiny_bert import save_encoder

TASKS = [Task(f"t{i}", "analyst", "ab"[i % 2], "train", f"report {'abcdefgh'[i % 8]} {i}", "w", 2) for i in range(24)]


def episode(task: Task, sibling: int, *, success: bool, says: str, **fields: Any) -> Trajectory:
    turns = [Turn([1], [2], [0.0], "x", ToolCall("query_database", {"sql": says}), ToolResult("q1"))]
    values = {"success": success, "progress": float(success), **fields}
    return Trajectory(task.task_id, task.family, task.task_id, sibling, 0, 0, 1.0, turns, end="finished", **values)


def siblings() -> list[Trajectory]:
    return [
        episode(task, i, success=i % 2 == 0, says=f"{'lost' if i % 2 else 'good'} {'abcdefgh'[i]}")
        for task in TASKS
        for i in range(4)
    ]


class Workspace:
    """Artifacts `tasks` and `collect`, sealed, and the two stages over them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def collect(self, trajectories: list[Trajectory]) -> None:
        (self.root / "tasks").mkdir()
        (self.root / "collect").mkdir()
        write_tasks(self.root / "tasks/train.jsonl", TASKS)
        write_trajectories(self.root / "collect/trajectories.parquet", trajectories)
        for name in ("tasks", "collect"):
            write_manifest(self.root / name, stage=name, parameters={}, inputs={}, metrics={})

    def run(self, stage: Any, output: str, *inputs: str, **sections: Any) -> Any:
        return stage.run(
            self.config(**sections), {name: self.root / name for name in inputs}, {output: self.root / output}
        )

    def preferences(self, **section: Any) -> Any:
        return self.run(preferences, "preferences", "tasks", "collect", preferences=section)

    def reward_model(self, **section: Any) -> Any:
        settings = {"encoder": str(self.root / "encoder"), "max_tokens": 32, "learning_rate": 1e-2, **section}
        return self.run(reward_model, "reward_model", "preferences", reward_model=settings)

    @staticmethod
    def config(**sections: Any) -> Config:
        return parse_config({"threads": 1, **sections}, source="test")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path / "home"))
    save_encoder(tmp_path / "encoder")
    return Workspace(tmp_path)


def test_pairs_and_their_report_are_written_and_sealed(workspace: Workspace) -> None:
    workspace.collect(siblings())
    metrics = workspace.preferences()
    folder = workspace.root / "preferences"
    verify(folder)
    pairs = read_pairs(folder / "pairs.parquet")
    siblings_only = [pair for pair in pairs if pair.origin == SIBLINGS]
    assert sum(metrics["pairs_by_split"].values()) == len(siblings_only) == 96
    assert {pair.split for pair in pairs} == {"train", "validation"}
    assert all("good" in pair.chosen and "lost" in pair.rejected for pair in siblings_only)
    assert metrics["forged_by_split"]["train"] == Counter(p.origin for p in pairs if p.split == "train") - Counter(
        {SIBLINGS: 96}
    )
    report = json.loads((folder / "quality.json").read_text())
    assert report["pairs"] == 96
    frame = read_frame(folder / "frames", "rlar_v1")
    assert frame.column("margin") == [pair.margin for pair in pairs]
    assert frame.column("source_id") == [pair.origin for pair in pairs]
    assert set(frame.column("success_rate")) == {0.5}
    assert set(frame.column("comparisons")) == {None}  # no reward model has judged yet
    assert metrics["features"]["definitions"] == frame.definitions
    assert metrics["features"]["services"] == ["critic_v1", "rlar_v1", "sampler_v1"]
    assert len(read_frame(folder / "frames", "sampler_v1").table) == len(TASKS)
    assert "Pairs by family" in (folder / "quality.md").read_text()
    assert json.loads((folder / "quarantine.json").read_text()) == []


def test_a_bad_record_is_quarantined_and_the_stage_goes_on(workspace: Workspace) -> None:
    stranger = Task("nowhere", "analyst", "a", "train", "report a", "w", 2)
    workspace.collect([*siblings(), episode(stranger, 0, success=True, says="good")])
    metrics = workspace.preferences()
    assert metrics["quarantined"] == {"unknown_task": 1}
    listed = json.loads((workspace.root / "preferences/quarantine.json").read_text())
    assert listed == [{"source": "nowhere/0", "reason": "unknown_task"}]


def test_too_many_bad_records_stop_the_stage_and_name_the_reason(workspace: Workspace) -> None:
    bad = [episode(task, 9, success=False, says="bad", progress=7.0) for task in TASKS]
    workspace.collect([*siblings(), *bad])
    with pytest.raises(UserError, match=r"24 of 120 records are unusable \(24 progress_out_of_range\)"):
        workspace.preferences(max_rejected_share=0.1)
    assert not (workspace.root / "preferences").exists()


def test_no_pair_is_an_error_that_says_what_to_change(workspace: Workspace) -> None:
    workspace.collect([episode(task, i, success=False, says=f"bad {i}") for task in TASKS for i in range(3)])
    with pytest.raises(UserError, match=r"no preference pair: of 72 episodes 0 succeeded.*collect.siblings"):
        workspace.preferences()


def test_a_model_is_trained_saved_and_explained(workspace: Workspace) -> None:
    workspace.collect(siblings())
    workspace.preferences()
    metrics = workspace.reward_model(epochs=3.0)
    assert metrics["validation_accuracy"] == 1.0
    assert metrics["trusted"] is True
    assert metrics["pairs"]["validation"] == sum(p["pairs"] for p in metrics["validation_by_family"].values())
    assert metrics["calibration_error_after"] is not None
    assert metrics["resistance"].keys() <= KINDS.keys()
    assert metrics["length_baseline_accuracy"] == 0.5
    model = RewardModel.load(workspace.root / "reward_model")
    good, bad = (model.tokens("report a", f"query {word} a", "finished") for word in ("good", "lost"))
    scores = model.score([good, bad])
    assert scores[0] > scores[1]
    history = (workspace.root / "reward_model/history.jsonl").read_text().splitlines()
    assert len(history) == metrics["steps"]


def test_few_pairs_are_enough_to_finish_without_trust(workspace: Workspace) -> None:
    workspace.collect(siblings()[:4])
    workspace.preferences(pairs_per_task=1, validation_share=0.001)
    metrics = workspace.reward_model()
    assert metrics["pairs"] == {"train": 1, "forged": 1, "validation": 0}  # no other task to borrow from
    assert (metrics["few_pairs"], metrics["trusted"], metrics["validation_accuracy"]) == (True, False, None)
    assert RewardModel.load(workspace.root / "reward_model").trusted is False


def test_no_training_pair_is_an_error_that_says_what_to_change(workspace: Workspace) -> None:
    workspace.collect(siblings()[:4])
    workspace.preferences(validation_share=0.999)
    with pytest.raises(UserError, match=r"no training pair \(4 held out.*validation_share"):
        workspace.reward_model()


def test_the_same_inputs_give_the_same_bytes(workspace: Workspace) -> None:
    workspace.collect(siblings())
    workspace.preferences()
    workspace.reward_model(epochs=1.0)
    first = verify(workspace.root / "reward_model").digest
    (workspace.root / "reward_model").rename(workspace.root / "earlier")
    workspace.reward_model(epochs=1.0)
    assert verify(workspace.root / "reward_model").digest == first


def test_the_next_run_knows_what_the_last_one_learned(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.collect(siblings())
    workspace.preferences()
    first, root = workspace.root / "preferences", workspace.root
    kept = feature_commands._keep
    for run, stage in (("run", "preferences"), ("run", "policy")):
        (root / run / FOLDERS[stage].parent).mkdir(parents=True, exist_ok=True)
        shutil.copytree(first, root / run / FOLDERS[stage])
    kept([root / "run"], root / "history")
    digest = verify(root / "history").digest
    kept([root / "run"], root / "history")
    assert verify(root / "history").digest == digest, "the same run twice is the run"
    made_of = verify(first)
    assert {made_of.digest, *made_of.inputs.values()} <= set(read_manifest(root / "history").ancestors)
    (root / "first").mkdir()
    first.rename(root / "first/preferences")

    later = {"known_from": "2000-02-01T00:00:00Z", "history": str(root / "history")}
    metrics = workspace.preferences(**later)
    assert metrics["features"]["earlier"]["rows"] > 0
    assert verify(first).inputs["preferences.history"] == digest
    assert made_of.digest in verify(first).ancestors, "withdrawn data reaches what knew of it"
    before = read_frame(root / "first/preferences/frames", "sampler_v1")
    after = read_frame(first / "frames", "sampler_v1")
    assert after.column("attempts") == [2 * count for count in before.column("attempts")]
    with pytest.raises(UserError, match="nothing in these tables was known before this run"):
        workspace.preferences(history=str(root / "history"))

    stones = root / "stones"
    stones.mkdir()
    monkeypatch.setenv(withdrawals.PLACES, str(stones))
    withdrawals.record(stones, made_of.inputs["collect"], "withdraw", name="c", reason="why", by="ada", at="2026")
    with pytest.raises(UserError, match=r"made from collect .* withdrawn"):
        workspace.preferences(**{**later, "min_margin": 0.03})
    with pytest.raises(UserError, match=r"made from collect .* withdrawn"):
        kept([root / "run"], root / "other")
    assert not (root / "other").exists()


def test_files_are_learned_from_beside_the_siblings(workspace: Workspace) -> None:
    workspace.collect(siblings())
    workspace.preferences()
    alone = (workspace.root / "preferences/quality.md").read_bytes()
    rows = [
        {"prompt": f"ask {word}{n} now", "chosen": f"good {word}", "rejected": f"lost {word}"}
        for n in range(30)
        for word in "abc"
    ]
    rows.append({"prompt": TASKS[0].prompt, "chosen": "a", "rejected": "b"})
    write_tasks(workspace.root / "tasks/test.jsonl", TASKS[:1])
    write_manifest(workspace.root / "tasks", stage="tasks", parameters={}, inputs={}, metrics={})
    path = workspace.root / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = workspace.preferences(files=[{"path": str(path), "licence": "mit"}])
    folder = workspace.root / "preferences"
    assert metrics["files"]["left_out"] == {"leaks_into_held_out": 1}
    assert "preferences.files.0" in verify(folder).inputs
    assert (folder / "quality.md").read_bytes() == alone, "the report speaks of siblings"
    pairs = [pair for pair in read_pairs(folder / "pairs.parquet") if pair.origin == "file:mine.jsonl"]
    assert len(pairs) == metrics["files"]["kept"] == 90
    assert {pair.split for pair in pairs} == {"train", "validation"}
    trained = workspace.reward_model()
    assert trained["pairs"]["files"] == sum(pair.split == "train" for pair in pairs)
    assert trained["files"]["mine.jsonl"]["pairs"] == sum(pair.split == "validation" for pair in pairs)
    fewer = workspace.preferences(files=[{"path": str(path)}], file_pairs=10)
    assert sum(fewer["files"]["pairs_by_split"].values()) <= 10


def test_a_file_that_is_not_there_is_named_by_its_key(workspace: Workspace) -> None:
    config = workspace.config(preferences={"files": [{"path": "nowhere.jsonl"}]})
    assert "  preferences.files.0: no such file: nowhere.jsonl" in missing_files(config)
