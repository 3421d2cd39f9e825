"""`geartrain diagnose` as a person meets it, and which records it reads."""

import fcntl
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geartrain import live
from geartrain.cli import app, main
from geartrain.diagnosis.ranking import diagnose
from geartrain.errors import EXIT_UNHEALTHY, UserError
from geartrain.reporting.health import read_records
from tests.fakes import workspace as finished

FAR = {"update_kl": 0.9, "clip_fraction": 0.4, "success": 0.2}


@pytest.fixture(autouse=True)
def own_home(monkeypatch):
    monkeypatch.delenv("GEARTRAIN_HOME", raising=False)


def told(path, records, *, ending=None, parameters=None):
    """Write a live record as a stage does, by the same hand."""
    section = {"policy": {"recipe": "grpo", "iterations": 20, "minibatches": 2, "learning_rate": 0.003}}
    try:
        with live.telling(path, stage="policy", key="k", pid=os.getpid(), parameters=parameters or section):
            for index, record in enumerate(records):
                live.emit("iteration", index=index, seconds={}, tokens={}, record={"iteration": index, **record})
            if ending is not None:
                raise ending
    except UserError:
        pass
    return path


def shown(*arguments):
    return CliRunner().invoke(app, ["diagnose", *map(str, arguments)])


def test_the_cause_comes_first_with_its_evidence_and_what_to_change(tmp_path):
    told(tmp_path / ".geartrain/live/policy-1.jsonl", [FAR] * 6, ending=UserError("there is nothing to learn from"))
    text = shown(tmp_path).stdout
    assert text.splitlines()[0] == "6 of 20 iterations, grpo, failed"
    assert "it says: there is nothing to learn from" in text
    assert text.index("learning_rate_high") < text.index("evidence:") < text.index("change:")
    assert "steps moved the policy by 0.9 nats a token (limit 0.1) at iteration 1" in text
    assert "policy.learning_rate: 0.003 → 0.0003" in text
    assert "not recorded, so not examined:" in text
    assert "(needs trained_share)" in text


def test_programs_get_the_same_as_json(tmp_path):
    path = told(tmp_path / "policy-1.jsonl", [FAR] * 6)
    found = json.loads(shown(path, "--format", "json").stdout)
    assert found["healthy"] is False
    assert found["causes"][0]["name"] == "learning_rate_high"
    assert found["causes"][0]["evidence"][0]["iteration"] == 1
    assert found["causes"][0]["changes"][0]["key"] == "policy.learning_rate"


def test_ci_can_be_told_to_fail(tmp_path):
    sick = told(tmp_path / "policy-1.jsonl", [FAR] * 6)
    well = told(tmp_path / "policy-2.jsonl", [{"success": 0.3, "update_kl": 0.001}] * 3)
    assert (shown(sick).exit_code, shown(sick, "--fail").exit_code) == (0, EXIT_UNHEALTHY)
    assert shown(well, "--fail").exit_code == 0
    assert "healthy: none of" in shown(well).stdout


def test_who_was_killed_is_not_at_work(tmp_path):
    """A killed training says no end: its lock is free, and its record grows no more."""
    path = told(tmp_path / ".geartrain/live/policy-1.jsonl", [FAR] * 6)
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if '"end"' not in line))
    work = tmp_path / ".geartrain/work"
    work.mkdir()
    assert shown(path).stdout.splitlines()[0] == "6 of 20 iterations, grpo, running", (
        "written just now, in a pod perhaps"
    )
    os.utime(path, (1.0, 1.0))
    with (work / "policy-1.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert json.loads(shown(path, "--format", "json").stdout)["outcome"] == "running"
    text = shown(tmp_path).stdout.splitlines()
    assert text[0] == "6 of 20 iterations, grpo, killed"
    assert "the same command goes on from its checkpoint" in text[1]
    assert any(line.startswith("learning_rate_high") for line in text)


@pytest.mark.parametrize(
    ("arguments", "words"), [(["nowhere"], "no such run"), (["--format", "xml"], "expected one of")]
)
def test_mistakes_are_named(arguments, words, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(lambda: app(["diagnose", *arguments], standalone_mode=False))
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_workspace_without_a_training_says_what_to_run(tmp_path):
    with pytest.raises(UserError, match="geartrain run --until policy"):
        read_records(tmp_path)
    finished.build(tmp_path, stages=("tasks", "warm_start"))
    with pytest.raises(UserError, match="no record of a training"):
        read_records(tmp_path)


def test_a_finished_run_is_read_from_its_artifacts(tmp_path):
    finished.build(tmp_path)
    records = read_records(tmp_path)
    assert (len(records.history), records.outcome, records.recipe) == (30, "complete", "gear_a_sgcd")
    assert records.metric("critic", "correlation") == 0.4127
    assert set(records.credit) == {"before", "after"}
    assert records.tables["splits"]
    assert diagnose(records).healthy
    folder = read_records(tmp_path / "models/policy")
    assert folder.history == records.history
    assert read_records(tmp_path / "models/policy/history.jsonl").parameters == records.parameters


def test_a_run_that_is_on_is_read_while_it_runs_and_what_it_was_before_does_not_count(tmp_path):
    finished.build(tmp_path)
    path = tmp_path / ".geartrain/live/policy-2.jsonl"
    with live.telling(path, stage="policy", parameters={"policy": {"recipe": "grpo", "iterations": 9}}):
        live.emit("iteration", index=0, record={"iteration": 0, "success": 0.5})
        records = read_records(tmp_path)
    assert (records.outcome, records.recipe, len(records.history)) == ("running", "grpo", 1)
    assert records.metrics["critic"], "what came before it is known"
    assert read_records(tmp_path).outcome == "complete"


def test_a_stage_that_failed_before_it_told_anything_is_told_by_lineage(tmp_path):
    finished.build(tmp_path, stages=("tasks", "warm_start"), failed="policy")
    records = read_records(tmp_path)
    assert (records.outcome, list(records.history)) == ("failed", [])
    assert "finite" in records.reason


def test_a_name_is_looked_for_in_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told(Path("runs/mine/.geartrain/live/policy-1.jsonl"), [FAR] * 6)
    assert "learning_rate_high" in shown("mine").stdout
