"""`geartrain data withdraw`: a tombstone, the list of what was reached, and everything that heeds it afterwards."""

import json
import shutil
from pathlib import Path

import pytest

from geartrain import artifacts, withdrawals
from geartrain.errors import UserError
from geartrain.lineage import events
from geartrain.lineage.events import Data
from geartrain.versions.reach import Reached, identify, reached_by
from tests.fakes.dvc_projects import say, seal


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Raw data that made tasks, rollouts, and a policy; and, in a run of its own, another policy."""
    project = tmp_path / "project"
    (project / ".dvc").mkdir(parents=True)
    (project / "data/raw").mkdir(parents=True)
    (project / "data/raw/chinook.json").write_text("[]")
    raw, _ = identify(str(project / "data/raw/chinook.json"), project)
    tasks = seal(project / "data/tasks", "t", stage="tasks", inputs={"environment.source": raw})
    rollouts = seal(project / "data/rollouts", "r", stage="collect", inputs={"tasks": tasks})
    seal(project / "models/policy", "p", stage="policy", inputs={"collect": rollouts})
    seal(project / "runs/other/models/policy", "q", stage="policy", inputs={"collect": rollouts})
    seal(project / "models/warm_start", "w", stage="warm_start", inputs={"tasks": "e" * 64})
    return project


def digest_of(place: str, project: Path) -> str:
    return identify(str(project / place), project)[0]


def withdraw(project: Path, target: str, *more: str) -> str:
    return say("withdraw", target, "--reason", "asked for", "--by", "ada", "--dir", str(project), *more)


def test_the_models_it_reached_are_listed_first(project: Path) -> None:
    told = withdraw(project, str(project / "data/rollouts")).splitlines()
    digest = digest_of("data/rollouts", project)
    assert told[0].startswith(f"data/rollouts {digest} is withdrawn: ")
    assert (project / f"data/withdrawn/{digest}.json").is_file()
    assert [line.split()[0] for line in told[2:]] == ["model", "model", "lies"]
    assert [line.split()[-1] for line in told[2:4]] == ["models/policy", "runs/other/models/policy"]


@pytest.mark.parametrize("target", ["path", "name", "digest", "sha256:digest"])
def test_a_thing_is_named_by_path_stage_or_digest(target: str, project: Path) -> None:
    digest = digest_of("data/rollouts", project)
    spelt = {"path": "data/rollouts", "name": "collect", "digest": digest, "sha256:digest": f"sha256:{digest}"}[target]
    assert identify(spelt, project) == (digest, "data/rollouts")


def test_an_unknown_digest_may_be_withdrawn_before_it_arrives(project: Path) -> None:
    assert "nothing that lies here" in withdraw(project, "d" * 64)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("data/rollouts/rows.jsonl", "withdrawn as a whole"),
        ("abc", "neither a digest"),
        ("data/raw", "no manifest.json"),
    ],
)
def test_what_cannot_be_withdrawn_says_why(target: str, said: str, project: Path) -> None:
    with pytest.raises(UserError, match=said):
        withdraw(project, str(project / target))
    assert not (project / "data/withdrawn").exists()


def test_every_copy_of_what_it_reached_is_listed(project: Path) -> None:
    shutil.copytree(project / "models/policy", project / "runs/copy/models/policy")
    told = withdraw(project, str(project / "data/rollouts")).splitlines()
    assert [line.split()[-1] for line in told[2:] if line.startswith("model")] == [
        "models/policy",
        "runs/copy/models/policy",
        "runs/other/models/policy",
    ]


def test_a_reason_is_asked_for(project: Path) -> None:
    with pytest.raises(UserError, match="say why"):
        say("withdraw", "d" * 64, "--reason", " ", "--dir", str(project))


def test_status_shows_it_and_what_was_made_from_it_until_it_is_lifted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    withdraw(project, "data/raw/chinook.json")
    by_path = {one["path"]: one["withdrawn"] for one in json.loads(say("status", "--json", "--offline"))}
    assert "made from environment.source" in by_path["data/tasks"]
    assert by_path["models/warm_start"] == ""
    assert "data/tasks must not be used" in say("status", "--offline")
    told = withdraw(project, digest_of("data/raw/chinook.json", project), "--undo")
    assert "is no longer withdrawn" in told
    assert not any(one["withdrawn"] for one in json.loads(say("status", "--json", "--offline")))
    assert len(list((project / "data/withdrawn").iterdir())) == 2, "a record more, and none less"


def test_programs_get_json(project: Path) -> None:
    record = json.loads(withdraw(project, str(project / "data/tasks"), "--json"))
    assert record["name"] == "data/tasks"
    assert [one["name"] for one in record["reached"]] == ["collect"], "manifests without ancestors know their inputs"
    assert Path(record["tombstone"]).is_file()


def test_lineage_knows_of_models_that_do_not_lie_here(project: Path) -> None:
    log = project / ".geartrain/lineage"
    steps = (("collect", "d" * 64, "rollouts", "5" * 64), ("policy", "5" * 64, "policy", "9" * 64))
    for job, read, made, digest in steps:
        kind = "model" if made == "policy" else "dataset"
        run = {"run_id": events.new_run_id(), "job": job, "inputs": [Data("tasks", read)], "facets": {}}
        events.emit(log, "START", **run, outputs=())
        events.emit(log, "COMPLETE", **run, outputs=[Data(made, digest, kind)])
    homes = [project / ".geartrain"]
    assert reached_by("d" * 64, project, homes) == [Reached("policy", "9" * 64, "lineage", True)]
    assert reached_by("c" * 64, project, homes) == []
    assert withdraw(project, "d" * 64).splitlines()[-1] == f"model  policy  {'9' * 64}  lineage"


def test_who_withdraws_is_as_git_knows_them(project: Path) -> None:
    say("withdraw", "d" * 64, "--reason", "why", "--dir", str(project))
    (stone,) = withdrawals.read_history(project / "data/withdrawn")["d" * 64]
    assert stone.by == "Ada <ada@example.org>"


def tell_of_a_policy(log: Path, read: str, digest: str, *, key: str = "7" * 64) -> None:
    facets = {"stage": {"name": "policy", "key": key, "attempt": 1}}
    run = {"run_id": events.new_run_id(), "job": "policy", "inputs": [Data("tasks", read)], "facets": facets}
    events.emit(log, "START", **run, outputs=())
    events.emit(log, "COMPLETE", **run, outputs=[Data("policy", digest, "model")])


def test_the_lineage_of_every_run_is_asked(project: Path) -> None:
    tell_of_a_policy(project / "runs/study/cell/.geartrain/lineage", "d" * 64, "8" * 64)
    assert withdraw(project, "d" * 64).splitlines()[-1] == f"model  policy  {'8' * 64}  lineage"


def test_where_one_workspace_goes_on_from_another_the_way_is_followed(project: Path) -> None:
    """Each has a lineage of its own, no folder is left, and neither knows the whole way."""
    steps = {"a": ("tasks", "d", "1"), "b": ("collect", "1", "2"), "c": ("policy", "2", "3")}
    for cell, (job, read, made) in reversed(steps.items()):
        kind = "model" if job == "policy" else "dataset"
        run = {"run_id": events.new_run_id(), "job": job, "inputs": [Data("x", read * 64)], "facets": {}}
        log = project / f"runs/{cell}/.geartrain/lineage"
        events.emit(log, "START", **run, outputs=())
        events.emit(log, "COMPLETE", **run, outputs=[Data(job, made * 64, kind)])
    assert withdraw(project, "d" * 64).splitlines()[-1] == f"model  policy  {'3' * 64}  lineage"


def test_what_holds_its_rows_is_listed_for_who_has_to_erase_them(project: Path) -> None:
    """Copies, wherever they lie; what was recorded and left half done; feature tables. Not what others left."""
    digest = digest_of("data/rollouts", project)
    log = project / "runs/other/.geartrain/lineage"
    tell_of_a_policy(log, digest, "8" * 64, key="a1" * 32)
    tell_of_a_policy(log, "e" * 64, "9" * 64, key="b2" * 32)
    shutil.copytree(project / "data/rollouts", project / "rollouts-v3")
    seal(project / "data/history", "h", stage="history", inputs={"collect": digest})
    home = log.parent
    for left in ("live/policy-a1a1a1a1a1a1a1a1/episodes", "live/policy-b2b2b2b2b2b2b2b2/episodes", "features/tables"):
        (home / left).mkdir(parents=True)
    (home / "work/policy-a1a1a1a1a1a1a1a1").mkdir(parents=True)
    (home / "work/critic-c3c3c3c3c3c3c3c3").mkdir(parents=True)
    told = withdraw(project, "data/rollouts").splitlines()
    assert any(line.startswith("data  history") and line.endswith("data/history") for line in told)
    assert [line.split(maxsplit=2)[2] for line in told if line.startswith("lies in")] == [
        "data/rollouts  (the same bytes)",
        "rollouts-v3  (the same bytes)",
        "runs/other/.geartrain/live/policy-a1a1a1a1a1a1a1a1  (what was recorded while policy ran)",
        "runs/other/.geartrain/work/critic-c3c3c3c3c3c3c3c3  (work in progress of critic; no lineage tells of what)",
        "runs/other/.geartrain/work/policy-a1a1a1a1a1a1a1a1  (work in progress of policy)",
        "runs/other/.geartrain/features  (gathered feature tables)",
    ]


def test_a_digest_may_be_cut_short_where_lineage_knows_the_rest(project: Path) -> None:
    tell_of_a_policy(project / ".geartrain/lineage", "abcd" * 16, "8" * 64)
    for spelt in ("ABCDabcd", "dataset:abcdab", "abcd" * 16):
        assert identify(spelt, project, project / ".geartrain")[0] == "abcd" * 16
    with pytest.raises(UserError, match="write the whole digest"):
        identify("abcdabcd", project)
    with pytest.raises(UserError, match="no run has read or written such a digest"):
        identify("ffff0000", project, project / ".geartrain")


def test_a_file_of_an_artifact_is_no_alias_for_it(project: Path) -> None:
    part = artifacts.file_sha256(project / "data/rollouts/rows.jsonl")
    with pytest.raises(UserError, match=r"is rows.jsonl, a part of .*data/rollouts, which is withdrawn as a whole"):
        withdraw(project, part)
    assert not (project / "data/withdrawn").exists()


def test_a_withdrawal_is_told_in_lineage_by_its_hash_and_without_its_reason(project: Path) -> None:
    withdraw(project, str(project / "data/rollouts"))
    start, complete = events.read_events(project / ".geartrain/lineage")
    digest = digest_of("data/rollouts", project)
    told = complete["run"]["facets"]["geartrain_withdrawal"]
    assert (told["digest"], told["action"]) == (digest, "withdraw")
    assert told["sha256"] == artifacts.file_sha256(project / "data/withdrawn" / told["record"])
    assert events.digests(start, "inputs") == {"data/rollouts": digest}
    assert "asked for" not in json.dumps([start, complete])
    with pytest.raises(UserError, match="is already withdrawn"):
        withdraw(project, digest)
    assert events.read_events(project / ".geartrain/lineage")[-1]["eventType"] == "FAIL"
