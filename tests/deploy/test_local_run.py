"""The real pipeline (exit handler, gate, real shells and stage machinery) on kfp.local, with stages of a few bytes."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from geartrain.artifacts import file_sha256, fingerprint, verify
from geartrain.cluster.failures import evidence, explain
from geartrain.lineage.events import read_events
from geartrain.stages.stage import FOLDERS
from tests.fakes.dvc_projects import shell, start
from tests.fakes.object_store import ObjectStore

TOYS = Path(__file__).with_name("toys")


@pytest.fixture
def workspace(tmp_path: Path, root: Path) -> Path:
    """A workspace of the smoke profile, whose raw data is one line."""
    (tmp_path / "params.yaml").write_text((root / "profiles/smoke.yaml").read_text())
    (tmp_path / "data/raw").mkdir(parents=True)
    (tmp_path / "data/raw/chinook.json").write_text("[]\n")
    return tmp_path


def run(workspace: Path, root: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join([str(TOYS), str(root), str(root / "src")])
    return subprocess.run(
        [sys.executable, "-m", "pipelines.local", *arguments],
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": search, "NO_COLOR": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def engine(tmp_path: Path, root: Path) -> Path:
    """A container engine that has the image."""
    path = tmp_path / "bin" / "engine"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {root / "tests/fakes/container_engine.py"} "$@"\n')
    path.chmod(0o755)
    return path


def conclusion(workspace: Path) -> dict[str, Any]:
    return json.loads((workspace / ".geartrain/conclusion.json").read_text())


def started(ran: subprocess.CompletedProcess[str]) -> list[str]:
    """The tasks that were started, in order."""
    return re.findall(r"Executing task \S*'([\w-]+)'", ran.stdout)


def test_whole_pipeline_runs_and_ends_with_its_records(workspace: Path, root: Path) -> None:
    before = time.monotonic()
    ran = run(workspace, root)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert time.monotonic() - before < 60  # seconds; about 7 on a machine that is idle
    tasks = started(ran)
    assert tasks[0] == "resolve"
    assert tasks[-2:] == ["register", "conclude"]
    assert len(tasks) == 12
    made = {stage: verify(workspace / folder) for stage, folder in FOLDERS.items()}
    assert made["promotion"].inputs == {name: made[name].digest for name in ("policy", "evaluation")}
    told = conclusion(workspace)
    assert (told["state"], told["failed_task"], told["reason"]) == ("SUCCEEDED", None, "")
    data = "sha256:" + fingerprint({"environment.source": file_sha256(workspace / "data/raw/chinook.json")})
    said = next(line for line in ran.stdout.splitlines() if "promoted: {" in line)
    record = json.loads(said.partition("promoted: ")[2])
    assert record["dataset_digest"] == data
    assert record["image_digest"].startswith("content:")
    assert record["model"]["digest"] == f"sha256:{made['promotion'].digest}"
    assert record["candidate"] == made["policy"].digest
    assert not (workspace / ".geartrain/kfp").exists()


def test_a_model_that_fails_the_gate_is_not_registered(workspace: Path, root: Path) -> None:
    ran = run(workspace, root, TOY_VERDICT="0")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "register" not in started(ran)
    assert conclusion(workspace)["state"] == "SUCCEEDED"
    assert (workspace / FOLDERS["promotion"] / "decision.json").is_file()


@pytest.mark.parametrize(
    ("kind", "code", "meaning"),
    [
        ("UserError", 2, "user"),
        ("OSError", 75, "infrastructure"),  # the disk is full
        ("ValueError", 1, "fault"),
    ],
)
def test_a_failed_stage_ends_the_run_with_its_code(
    kind: str, code: int, meaning: str, workspace: Path, root: Path
) -> None:
    note = {"task": "policy", "kind": "UserError", "exit_code": 2, "message": "of an earlier run"}
    (workspace / ".geartrain").mkdir()
    (workspace / ".geartrain/failure.json").write_text(json.dumps(note))
    ran = run(workspace, root, TOY_TROUBLE=f"tasks:{kind}")
    assert ran.returncode == code, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert started(ran) == ["resolve", "tasks", "conclude"]
    told = conclusion(workspace)
    assert (told["state"], told["failed_task"], told["kind"]) == ("FAILED", "tasks", meaning)
    # what `geartrain status` would read from the step's log on a cluster
    log = "\n".join(line.strip() for line in ran.stdout.partition("conclusion:")[0].splitlines())
    assert explain("tasks", evidence(log)).kind == meaning
    if code != 1:
        assert f"error: {'UserError' if code == 2 else 'InfrastructureError'}, exit code {code}: tasks: " in log


def test_data_that_is_not_there_stops_before_any_work(workspace: Path, root: Path) -> None:
    (workspace / "data/raw/chinook.json").unlink()
    ran = run(workspace, root)
    assert ran.returncode == 2
    assert started(ran) == ["resolve", "conclude"]
    told = conclusion(workspace)
    assert (told["failed_task"], told["kind"]) == ("resolve", "user")
    assert "data/raw/chinook.json" in told["reason"]


def test_data_is_fetched_by_content_from_a_bucket(
    workspace: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by tag when the run begins; the step that reads it has it from S3, and lineage says whence."""
    (workspace / "data/raw/chinook.json").unlink()
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
    with ObjectStore() as store:
        for name, value in {**store.environment, "DVC_SITE_CACHE_DIR": str(tmp_path / "site")}.items():
            monkeypatch.setenv(name, value)
        store.bucket("team")
        registry = start(tmp_path / "registry", "s3://team/data", git=True)
        shell(registry, "git remote add origin git@git.example.org:team/registry.git")
        (registry / "raw.json").write_text('["v1"]\n')
        shell(registry, "dvc add -q raw.json", "git add -A", "git commit -qm v1", "git tag v1")
        shell(registry, "dvc push -q --no-run-cache")
        pinned = ["--data", "environment.source=raw.json@v1", "--data-from", str(registry)]
        ran = run(workspace, root, *pinned)
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
        made = verify(workspace / FOLDERS["tasks"])
        digest = file_sha256(registry / "raw.json")
        assert made.inputs == {"environment.source": digest}
        assert made.parameters["environment"]["source"] == "data/raw/chinook.json"
        told = [event["inputs"] for event in read_events(workspace / ".geartrain/lineage") if event["inputs"]]
        assert "git+https://git.example.org/team/registry@" in json.dumps(told)
        assert not (workspace / "data/raw/chinook.json").exists(), "the workspace's own data is left alone"

        key = next(key for key in store.keys("team") if key.startswith("data/files/md5"))
        store.client.put_object(Bucket="team", Key=key, Body=b'["v2"]\n')
        shutil.rmtree(workspace / ".geartrain")
        ran = run(workspace, root, *pinned)
        assert ran.returncode == 2
        assert "has other bytes than its name says" in ran.stderr
        assert started(ran) == []


IMAGES = {"GEARTRAIN_IMAGE": "geartrain/python:dev", "ENGINE_IMAGES": "geartrain/python:dev"}


def test_with_an_engine_every_task_is_a_container(workspace: Path, root: Path, engine: Path) -> None:
    ran = run(workspace, root, "--engine", str(engine), **IMAGES)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert len(started(ran)) == 12
    for stage, folder in FOLDERS.items():
        assert verify(workspace / folder).stage == stage
    assert conclusion(workspace)["state"] == "SUCCEEDED"
    ends = [event["eventType"] for event in read_events(workspace / ".geartrain/lineage")]
    assert ends.count("COMPLETE") == 9


@pytest.mark.parametrize(
    ("variables", "code", "says"),
    [
        ({"TOY_TROUBLE": "tasks:UserError"}, 2, "error: tasks: on purpose"),
        ({"ENGINE_KILLS": "tasks"}, 137, "FAILURE"),
        ({"ENGINE_BROKEN": "1"}, 125, "itself failed, see above: the task was not run"),
        ({"ENGINE_IMAGES": "another"}, 2, "has no image geartrain/python:dev (Error: no such image). Build it with"),
    ],
)
def test_a_container_that_fails_is_never_a_success(
    variables: dict[str, str], code: int, says: str, workspace: Path, root: Path, engine: Path
) -> None:
    ran = run(workspace, root, "--engine", str(engine), **{**IMAGES, **variables})
    assert ran.returncode == code, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert says in ran.stdout + ran.stderr
    assert not (workspace / "models/policy").exists()


def test_an_engine_that_is_not_there_is_a_mistake(workspace: Path, root: Path) -> None:
    ran = run(workspace, root, "--engine", "dokker", **IMAGES)
    assert ran.returncode == 2
    assert "error: --engine dokker cannot be started" in ran.stderr
    assert started(ran) == []
