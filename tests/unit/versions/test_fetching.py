"""The registry pattern with real repositories: fetch by tag, import, update, freeze, resolve."""

import json
from pathlib import Path

import pytest

from geartrain import artifacts, withdrawals
from geartrain.errors import UserError
from geartrain.versions import dvc_command, fetching
from geartrain.versions.fetching import parse_source
from geartrain.versions.state import read_states
from geartrain.versions.tracked import find_path, list_tracked
from tests.fakes.dvc_projects import say, seal, shell, start


def text_of(folder: Path) -> str:
    return (folder / "rows.jsonl").read_text()


@pytest.mark.parametrize(("name", "version"), [("rollouts@v1", "v1"), ("collect@v2", "v2"), ("data/rollouts", "v2")])
def test_one_version_is_copied_and_its_manifest_vouches_for_it(
    name: str, version: str, registry: Path, tmp_path: Path
) -> None:
    found = fetching.get(parse_source(name, project=str(registry)), tmp_path / "copy", folder=tmp_path)
    assert f'"text": "{version}"' in text_of(found.folder)
    assert found.verified
    assert found.digest == artifacts.verify(tmp_path / "copy").digest
    assert found.withdrawn == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rollouts@v9", r"unknown Git revision 'v9'\n`git tag` lists the tags of that project"),
        ("pictures@v1", r"no data set or model 'pictures'; there is data, data/rollouts"),
        ("rollouts@", "expected NAME or NAME@REVISION"),
        ("@v1", "expected NAME or NAME@REVISION"),
    ],
)
def test_what_is_not_there_is_named(name: str, said: str, registry: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        fetching.get(parse_source(name, project=str(registry)), tmp_path / "copy", folder=tmp_path)
    assert not (tmp_path / "copy").exists()


def test_nothing_is_overwritten(registry: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with pytest.raises(UserError, match="is there already"):
        fetching.get(parse_source("rollouts@v1", project=str(registry)), tmp_path / "copy", folder=tmp_path)


def test_a_copy_that_does_not_match_its_manifest_is_not_kept(tmp_path: Path) -> None:
    project = start(tmp_path / "p", str(tmp_path / "remote"), git=False)
    seal(project / "data", "one")
    (project / "data/rows.jsonl").write_text("forged")  # whoever saved it saved the forgery
    shell(project, "dvc add -q data")
    with pytest.raises(UserError, match=r"rows\.jsonl was changed"):
        fetching.get(parse_source("data", project=str(project)), tmp_path / "copy", folder=project)
    assert not (tmp_path / "copy").exists()


def test_what_is_withdrawn_is_told(registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(withdrawals.PLACES, str(tmp_path))
    source = parse_source("rollouts@v1", project=str(registry))
    digest = fetching.get(source, tmp_path / "first", folder=tmp_path).digest
    withdrawals.record(tmp_path, digest, "withdraw", name="r", reason="asked for", by="ada", at="2026-03-01")
    assert "asked for" in fetching.get(source, tmp_path / "second", folder=tmp_path).withdrawn


def test_name_and_revision_become_a_commit_a_digest_an_address_and_files(registry: Path, tmp_path: Path) -> None:
    first, second = (
        fetching.resolve(parse_source(f"rollouts@{tag}", project=str(registry)), folder=tmp_path)
        for tag in ("v1", "v2")
    )
    assert first.path == "data/rollouts"
    assert len(first.commit) == 40
    assert first.commit != second.commit
    assert first.md5.endswith(".dir")
    assert first.uri == str(registry.parent / "remote/files/md5" / first.md5[:2] / first.md5[2:])
    assert Path(first.uri).is_file(), "of a folder the remote has a list, and no folder"
    assert set(first.files) == {"manifest.json", "rows.jsonl"}
    assert first.files["rows.jsonl"] != second.files["rows.jsonl"]
    for md5 in first.files.values():
        assert (registry.parent / "remote/files/md5" / md5[:2] / md5[2:]).is_file()


def test_import_by_tag_update_and_freeze(registry: Path, tmp_path: Path) -> None:
    team = start(tmp_path / "team", str(tmp_path / "remote"), git=True)
    (team / "data").mkdir()
    shell(team, f"dvc import -q {registry} data/rollouts --rev v1 -o data/theirs", "git add -A", "git commit -qm v1")
    (item,) = list_tracked(team)
    assert (item.path, item.source, item.frozen) == ("data/theirs", str(registry), True)
    assert item.revision.startswith("v1 = ")
    assert '"v1"' in text_of(team / "data/theirs")

    shell(team, "dvc repro -q data/theirs.dvc")
    assert '"v1"' in text_of(team / "data/theirs"), "frozen: nothing but an update moves it"
    shell(team, "dvc update -q --rev v2 data/theirs.dvc")
    (moved,) = list_tracked(team)
    assert moved.revision.startswith("v2 = ")
    assert moved.md5 != item.md5
    assert '"v2"' in text_of(team / "data/theirs")
    assert fetching.resolve(parse_source("rollouts@v2", project=str(registry)), folder=team).md5 == moved.md5

    shell(team, "dvc unfreeze data/theirs.dvc")
    assert not list_tracked(team)[0].frozen
    shell(team, "dvc freeze data/theirs.dvc")
    assert list_tracked(team)[0].frozen
    (state,) = read_states(team)[0]
    assert (state.workspace, state.cache, state.version.split(" = ")[0]) == ("ok", "ok", "v2")

    shell(team, "git checkout -q -f HEAD", "dvc checkout -q data/theirs.dvc")
    assert '"v1"' in text_of(team / "data/theirs"), "the version is what git says, years later as well"


def test_a_fresh_clone_gets_an_import_back_from_the_registry(registry: Path, tmp_path: Path) -> None:
    team = start(tmp_path / "team", str(tmp_path / "remote"), git=True)
    (team / "data").mkdir()
    shell(team, f"dvc import -q {registry} data/rollouts --rev v1 -o data/theirs", "git add -A", "git commit -qm v1")
    shell(tmp_path, f"git clone -q {team} clone")
    dvc_command.transfer("pull", ["data/theirs"], folder=tmp_path / "clone")
    assert artifacts.verify(tmp_path / "clone/data/theirs").digest == artifacts.verify(team / "data/theirs").digest


def test_an_import_is_what_it_was_imported_from(registry: Path, tmp_path: Path) -> None:
    team = start(tmp_path / "team", str(tmp_path / "of-the-team"), git=True)
    (team / "data").mkdir()
    shell(team, f"dvc import -q {registry} data/rollouts --rev v1 -o data/theirs", "git add -A", "git commit -qm v1")
    shell(team, "git tag first", "dvc update -q --rev v2 data/theirs.dvc")
    for name, tag in (("data/theirs@first", "v1"), ("data/theirs", "v2")):
        found = fetching.resolve(parse_source(name, project=str(team)), folder=team)
        assert found == fetching.resolve(parse_source(f"rollouts@{tag}", project=str(registry)), folder=team)


def test_a_name_is_a_stage_a_path_or_the_end_of_one() -> None:
    paths = ["data/rollouts", "data/tasks", "models/policy", "old/tasks"]
    assert find_path("collect", paths) == "data/rollouts"
    assert find_path("rollouts", paths) == "data/rollouts"
    assert find_path("./models/policy/", paths) == "models/policy"
    assert find_path("tasks", paths) == "data/tasks", "the stage's own folder comes first"
    with pytest.raises(UserError, match="may mean a/x or b/x"):
        find_path("x", ["a/x", "b/x"])


def test_the_commands_take_names_with_revisions(registry: Path, tmp_path: Path) -> None:
    told = say("get", "rollouts@v1", "--dir", str(registry), "--out", str(tmp_path / "copy"))
    assert "its manifest matches" in told
    record = json.loads(say("resolve", "rollouts@v1", "--dir", str(registry)))
    assert set(record) == {"path", "commit", "md5", "uri", "files"}
    options = ["--dir", str(registry), "--id", "id", "--file", "rows.jsonl"]
    difference = say("diff", "rollouts@v1", "rollouts@v2", *options, "--format", "json")
    assert json.loads(difference)["columns"] == {"text": 3}
    same = say("diff", str(tmp_path / "copy"), "rollouts@v1", *options)
    assert same.startswith("The same 3 rows")


def test_the_place_of_a_copy_is_named_after_the_version(registry: Path, tmp_path: Path) -> None:
    assert say("get", "rollouts@v1", "--dir", str(registry)).startswith("rollouts-v1: ")
    assert artifacts.verify(tmp_path / "rollouts-v1")
