"""The commands against a remote: a folder, and S3 by configuration alone."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from geartrain import artifacts
from geartrain.errors import InfrastructureError, UserError
from geartrain.versions import dvc_command, fetching
from geartrain.versions.state import State, read_states
from tests.fakes.dvc_projects import say, seal, shell, start
from tests.fakes.object_store import ObjectStore


def states(project: Path, **options: bool) -> dict[str, State]:
    return {state.path: state for state in read_states(project, **options)[0]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = start(tmp_path / "project", str(tmp_path / "remote"), git=False)
    seal(project / "data/rollouts", "one")
    shell(project, "dvc add -q data/rollouts")
    return project


def test_status_follows_a_data_set_through_workspace_cache_and_remote(project: Path) -> None:
    def told() -> tuple[str, str, str]:
        state = states(project)["data/rollouts"]
        return state.workspace, state.cache, state.remote

    assert told() == ("ok", "ok", "missing")
    assert "pushed" in say("push", "--dir", str(project))
    assert told() == ("ok", "ok", "ok")
    digest = artifacts.read_manifest(project / "data/rollouts").digest
    seal(project / "data/rollouts", "two")
    assert told() == ("changed", "ok", "ok")
    shutil.rmtree(project / "data/rollouts")
    assert told() == ("missing", "ok", "ok")
    shutil.rmtree(project / ".dvc/cache")
    assert told() == ("missing", "missing", "ok")
    say("pull", "rollouts", "--dir", str(project))
    assert told() == ("ok", "ok", "ok")
    assert states(project)["data/rollouts"].digest == digest


def test_status_for_people_and_for_programs(project: Path) -> None:
    table = say("status", "--dir", str(project))
    (row,) = [line.split() for line in table.splitlines() if "data/rollouts" in line]
    assert row[3:] == ["ok", "ok", "missing", "none"], "whole lines for other programs, however narrow the terminal"
    (record,) = json.loads(say("status", "--dir", str(project), "--json", "--offline"))
    assert record["remote"] == "unknown"
    assert record["digest"] == artifacts.read_manifest(project / "data/rollouts").digest


def test_what_dvc_has_not_heard_of_is_shown_too(project: Path) -> None:
    seal(project / "data/tasks", "made by a run in a folder of its own")
    state = states(project)["data/tasks"]
    assert (state.workspace, state.md5) == ("untracked", "")
    plain = project / "runs/one"
    seal(plain / "models/policy", "x", stage="policy")
    assert [state.path for state in read_states(plain)[0]] == ["models/policy"]


def test_a_tag_names_the_version_where_runs_are_in_git(tmp_path: Path) -> None:
    project = start(tmp_path / "p", str(tmp_path / "remote"), git=True)
    (project / "dvc.yaml").write_text("stages:\n  t:\n    cmd: mkdir -p out && touch out/x\n    outs: [out]\n")
    shell(project, "dvc repro -q t", "git add -A", "git commit -qm run", "git tag v1")
    assert states(project)["out"].version == "v1"
    (project / "dvc.lock").write_text((project / "dvc.lock").read_text() + "# changed\n")
    assert states(project)["out"].version == ""


def test_pull_refuses_to_overwrite_work(project: Path) -> None:
    say("push", "--dir", str(project))
    seal(project / "data/rollouts", "work of a day")
    with pytest.raises(UserError, match="Those files were changed here"):
        say("pull", "--dir", str(project))
    assert "work of a day" in (project / "data/rollouts/rows.jsonl").read_text()


def test_what_nobody_pushed_cannot_be_pulled(project: Path) -> None:
    shutil.rmtree(project / ".dvc/cache")
    shutil.rmtree(project / "data/rollouts")
    with pytest.raises(UserError, match="has to push it"):
        say("pull", "--dir", str(project))


def test_where_nothing_is_tracked_nothing_is_up_to_date(tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    seal(tmp_path / "data/tasks", "made by `geartrain run`")
    for verb in ("push", "pull"):
        with pytest.raises(UserError, match=r"DVC tracks nothing here, so nothing was moved; `dvc repro`"):
            say(verb, "--dir", str(tmp_path))


def test_outside_a_project_the_way_in_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lies in no DVC project"):
        say("push", "--dir", str(tmp_path))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        store.bucket("team")
        yield store


def test_s3_is_one_line_of_configuration(store: ObjectStore, project: Path, tmp_path: Path) -> None:
    stage = "stages:\n  t:\n    cmd: touch out\n    deps: [data/rollouts]\n    outs: [out]\n"
    (project / "dvc.yaml").write_text(stage)
    shell(project, "dvc repro -q t", "dvc remote add -q --force here s3://team/geartrain")
    assert states(project)["data/rollouts"].remote == "missing"
    say("push", "--dir", str(project))
    keys = store.keys("team")
    assert keys
    assert all(key.startswith("geartrain/files/md5/") for key in keys), "the run cache stays here"
    assert states(project)["data/rollouts"].remote == "ok"
    sent = len(store.sent)
    say("push", "--dir", str(project))
    assert len(store.sent) == sent, "what is there is not sent again"

    found = fetching.resolve(fetching.parse_source("rollouts", project=str(project)), folder=project)
    assert found.uri == f"s3://team/geartrain/files/md5/{found.md5[:2]}/{found.md5[2:]}"
    assert set(found.files) == {"manifest.json", "rows.jsonl"}
    assert {f"geartrain/files/md5/{md5[:2]}/{md5[2:]}" for md5 in found.files.values()} <= set(keys)

    shutil.rmtree(project / ".dvc/cache")
    copy = fetching.get(fetching.parse_source("rollouts", project=str(project)), tmp_path / "copy", folder=project)
    assert copy.digest == artifacts.read_manifest(project / "data/rollouts").digest


def test_a_store_that_does_not_answer_is_no_mistake_and_status_goes_without(
    store: ObjectStore, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell(project, "dvc remote add -q --force here s3://team/geartrain")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(InfrastructureError, match="the remote does not answer"):
        dvc_command.transfer("push", [], folder=project)
    found, notes = read_states(project)
    assert [state.remote for state in found] == ["unknown"]
    assert "the remote could not be asked" in notes[0]
