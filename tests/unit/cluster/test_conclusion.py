import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from geartrain.artifacts import write_json, write_manifest
from geartrain.cluster.conclusion import conclude
from geartrain.cluster.interface import NotFoundError
from geartrain.cluster.records import Run, Task
from geartrain.cluster.release import publish_record
from geartrain.errors import UserError
from geartrain.supply.kubeflow_registry import ADDRESS
from tests.fakes.model_registry import ModelRegistryServer
from tests.fakes.promoted import promoted as seal_promoted

LATER = timedelta(seconds=1)
THEN = datetime(2026, 11, 30, tzinfo=UTC)
MARKS = {"dataset_rev": "v3"}


class Server:
    """A Kubeflow whose run has one failed step."""

    def __init__(self, *, failed: bool = True, log: str | None = None) -> None:
        state = "FAILED" if failed else "SUCCEEDED"
        executor = Task("n2", "executor(0)", state, started=THEN, ended=THEN + LATER, parent="n1", pod="pod-2")
        policy = Task("n1", "policy", state, started=THEN, ended=THEN + 2 * LATER, children=("n2",))
        self.known = Run("run-1", "smoke", "RUNNING", tasks=(policy, executor))
        self.log = log

    def run(self, run_id: str) -> Run:
        if run_id != "run-1":
            raise NotFoundError(f"no run {run_id}")
        return self.known

    def node_log(self, run_id: str, node: str) -> str:
        if self.log is None:
            raise NotFoundError("no log")
        return self.log

    def terminate(self, run_id: str) -> None:
        raise AssertionError

    retry = terminate


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    return tmp_path / "home"


def told(tmp_path: Path, state: str, server: Server | None = None, run: str = "run-1") -> dict[str, Any]:
    connect = None if server is None else (lambda: server)
    record = conclude(run_id=run, state=state, output=tmp_path / "record.json", marks=MARKS, connect=connect)
    assert json.loads((tmp_path / "record.json").read_text()) == record
    return record


@pytest.mark.parametrize("state", ["COMPLETE", "SUCCEEDED", "CACHED"])
def test_success_has_one_name(state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = told(tmp_path, state, Server(failed=False))
    assert (record["state"], record["failed_task"], record["dataset_rev"]) == ("SUCCEEDED", None, "v3")
    assert capsys.readouterr().err == f"conclusion: {json.dumps(record, sort_keys=True)}\n"


@pytest.mark.parametrize("state", ["FAILED", "RUNNING"])
def test_failed_task_and_its_reason_are_asked_of_kubeflow(state: str, tmp_path: Path) -> None:
    log = "error: InfrastructureError, exit code 75: policy: the bucket does not answer\n"
    record = told(tmp_path, state, Server(log=log))
    assert (record["state"], record["failed_task"], record["kind"]) == ("FAILED", "policy", "infrastructure")
    assert "the bucket does not answer" in record["reason"]


def test_a_record_is_written_where_kubeflow_is_silent(tmp_path: Path) -> None:
    record = told(tmp_path, "FAILED", Server(), run="run-2")
    assert (record["state"], record["failed_task"]) == ("FAILED", None)
    assert record["reason"] == "Kubeflow was asked which task failed: no run run-2"
    assert "no step left a note" in told(tmp_path, "FAILED")["reason"]
    assert told(tmp_path, "CANCELED")["state"] == "CANCELLED"


@pytest.mark.parametrize("note", ["", "[]", '{"task": "policy"}'])
def test_half_a_note_is_none(note: str, tmp_path: Path, home: Path) -> None:
    home.mkdir()
    (home / "failure.json").write_text(note)
    assert told(tmp_path, "SUCCEEDED")["state"] == "SUCCEEDED"


def promoted(folder: Path, *, verdict: bool) -> Path:
    write_json(folder / "model/config.json", {})
    decision = {"promoted": verdict, "candidate": "c", "evaluation": "e", "checks": [{"name": "gain", "value": 0.5}]}
    write_json(folder / "decision.json", decision)
    write_manifest(folder, stage="promotion", parameters={}, inputs={}, metrics={})
    return folder


def test_the_record_of_a_model_says_what_it_is_made_from(tmp_path: Path) -> None:
    folder = promoted(tmp_path / "promoted", verdict=True)
    there = {"promoted": folder, "run_id": "run-1", "marks": MARKS, "output": tmp_path / "record.json"}
    record = publish_record(uri="s3://bucket/promotion", **there)
    assert json.loads((tmp_path / "record.json").read_text()) == record
    assert record["model"]["uri"] == "s3://bucket/promotion"
    assert list(record["model"]["files"]) == ["model/config.json"]
    assert (record["checks"], record["run"], record["dataset_rev"]) == ({"gain": 0.5}, "run-1", "v3")
    assert publish_record(uri=str(folder), **there)["model"]["uri"] is None


def test_only_a_whole_and_promoted_model_has_a_record(tmp_path: Path) -> None:
    refused = promoted(tmp_path / "refused", verdict=False)
    there: dict[str, Any] = {"uri": "", "run_id": "run-1", "marks": MARKS, "output": tmp_path / "record.json"}
    with pytest.raises(UserError, match="did not promote"):
        publish_record(promoted=refused, **there)
    damaged = promoted(tmp_path / "damaged", verdict=True)
    (damaged / "model/config.json").write_text("[]")
    with pytest.raises(UserError, match="was changed"):
        publish_record(promoted=damaged, **there)
    assert not (tmp_path / "record.json").exists()


def test_a_promoted_model_is_entered_where_its_run_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = seal_promoted(tmp_path / "promoted", registries=["kubeflow"])
    told: dict[str, Any] = {"promoted": tmp_path / "promoted", "run_id": "run-1", "marks": MARKS}
    with ModelRegistryServer() as server:
        monkeypatch.setenv(ADDRESS, server.url)
        record = publish_record(uri="s3://bucket/promotion", output=tmp_path / "record.json", **told)
        ((_, artifact),) = server.state.artifacts.values()
    assert (artifact["uri"], artifact["modelSourceId"]) == ("s3://bucket/promotion/model", "run-1")
    assert record["registered"] == {"kubeflow": {"name": "geartrain-analyst", "version": sealed.digest[:12]}}
    assert record["signed_by"] is None
