"""A withdrawn digest is refused, with what was made from it; records are never edited, and show if one was."""

import json
import shutil
from pathlib import Path

import pytest

from geartrain import withdrawals
from geartrain.errors import UserError
from geartrain.withdrawals import LIFT, WITHDRAW, read_history, record, require_allowed, withdrawn

A, B = "a" * 64, "b" * 64


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "withdrawn"
    folder.mkdir()
    monkeypatch.setenv(withdrawals.PLACES, str(folder))
    return folder


def write(folder: Path, digest: str, action: str = WITHDRAW, at: str = "2026-03-01T10:00:00+00:00") -> Path:
    return record(folder, digest, action, name="data/rollouts", reason="a person asked for it", by="ada", at=at)


def test_nothing_is_refused_while_nothing_is_withdrawn(folder: Path) -> None:
    require_allowed({"tasks": A}, {"tasks": {B: "environment.source"}})


def test_a_withdrawn_input_is_refused_with_who_when_why_and_what_to_do(folder: Path) -> None:
    write(folder, A)
    require_allowed({"tasks": B})
    with pytest.raises(UserError) as refused:
        require_allowed({"tasks": B, "collect": A})
    message = str(refused.value)
    assert "collect (aaaaaaaaaaaa) was withdrawn on 2026-03-01 by ada: a person asked for it" in message
    assert "geartrain data status" in message
    assert "tasks" not in message


def test_what_was_made_from_it_is_refused_at_any_remove(folder: Path) -> None:
    write(folder, A)
    with pytest.raises(UserError, match=r"policy was made from environment\.source \(aaaaaaaaaaaa\), which was withd"):
        require_allowed({"policy": B}, {"policy": {A: "environment.source", "c" * 64: "tasks"}})


def test_lifting_is_a_record_of_its_own_and_the_history_stays(folder: Path) -> None:
    first = write(folder, A)
    before = first.read_bytes()
    write(folder, A, LIFT, at="2026-03-02T10:00:00+00:00")
    require_allowed({"tasks": A})
    write(folder, A, at="2026-03-03T10:00:00+00:00")
    with pytest.raises(UserError, match="2026-03-03"):
        require_allowed({"tasks": A})
    assert first.read_bytes() == before
    assert [(stone.action, stone.at[:10]) for stone in read_history(folder)[A]] == [
        (WITHDRAW, "2026-03-01"),
        (LIFT, "2026-03-02"),
        (WITHDRAW, "2026-03-03"),
    ]


@pytest.mark.parametrize(("action", "said"), [(WITHDRAW, "is already withdrawn on 2026"), (LIFT, "nothing to lift")])
def test_a_record_that_changes_nothing_is_refused(action: str, said: str, folder: Path) -> None:
    if action == WITHDRAW:
        write(folder, A)
    kept = sorted(folder.iterdir())
    with pytest.raises(UserError, match=said):
        write(folder, A, action)
    assert sorted(folder.iterdir()) == kept


def test_a_record_that_was_changed_dropped_or_torn_stops_everything(folder: Path) -> None:
    first, second = write(folder, A), write(folder, A, LIFT)
    untouched = first.read_text()
    first.write_text(untouched.replace("a person asked", "nobody asked"))
    with pytest.raises(UserError, match=r"\.2\.json: does not fit the tombstone before it"):
        withdrawn()
    first.unlink()
    with pytest.raises(UserError, match="this tombstone is missing"):
        withdrawn()
    second.unlink()
    for torn in (untouched[:40], "[]", "{}", untouched.replace('"withdraw"', '"forget"'), "[" * 100_000):
        first.write_text(torn)
        with pytest.raises(UserError, match="not a tombstone"):
            withdrawn()
    first.write_text(untouched)
    first.rename(folder / f"{B}.json")
    with pytest.raises(UserError, match="does not fit"):
        withdrawn()


def test_a_file_of_another_name_is_not_overlooked(folder: Path) -> None:
    (folder / "README.md").write_text("what this folder is")
    assert withdrawn() == {}
    (folder / "rollouts.json").write_text(json.dumps({}))
    with pytest.raises(UserError, match="not named after a digest"):
        withdrawn()


def test_every_place_counts_and_one_that_is_named_must_be_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "mounted"
    monkeypatch.setenv(withdrawals.PLACES, f"{folder}:{other}")
    with pytest.raises(UserError, match="mounted"):
        withdrawn()
    other.mkdir()
    write(other, A)
    assert set(withdrawn()) == {A}


def test_a_workspace_inside_a_project_hears_of_the_projects_tombstones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(withdrawals.PLACES, raising=False)
    run = tmp_path / "project/runs/one"
    run.mkdir(parents=True)
    (tmp_path / "project/.git").mkdir()
    write(tmp_path / "project" / withdrawals.FOLDER, A)
    monkeypatch.chdir(run)
    assert set(withdrawn()) == {A}


def test_a_config_map_that_is_mounted_beside_the_images_tombstones_counts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts the files of a ConfigMap as links into a folder that it replaces as a whole; none is empty."""
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    for place in (image, mounted):
        place.mkdir()
    monkeypatch.setenv(withdrawals.PLACES, f"{image}:{mounted}")
    require_allowed({"raw": A})
    write(folder, A)
    (folder / "README.md").write_text("is in the folder, and so in the ConfigMap\n")
    shutil.copytree(folder, mounted / "..2026_03_01")
    (mounted / "..data").symlink_to("..2026_03_01")
    for path in folder.iterdir():
        (mounted / path.name).symlink_to(f"..data/{path.name}")
    with pytest.raises(UserError, match="was withdrawn"):
        require_allowed({"raw": A})
