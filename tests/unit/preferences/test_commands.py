"""`geartrain preferences build`, as a shell runs it."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from geartrain.artifacts import read_manifest, verify
from geartrain.datasets.task_sets import write_tasks
from geartrain.environments.environment import Task
from geartrain.errors import UserError
from geartrain.preference_commands import PAGE, STAGE, app
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn, write_trajectories
from tests.fakes import preference_files as files


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def jsonl(name: str, first: int, last: int, maker: str = "pairs") -> str:
    rows = [files.MAKERS[maker][1](number) for number in range(first, last)]
    files.write(Path(name), files.text_of(".jsonl", rows))
    return name


def splits(folder: str) -> dict[str, str]:
    rows = pq.read_table(Path(folder) / "records.parquet").to_pylist()
    return {row["prompt"][-1]["content"]: row["split"] for row in rows}


def test_files_of_several_forms_become_one_sealed_folder_with_a_page() -> None:
    a, b = jsonl("a.jsonl", 0, 30), jsonl("b.jsonl", 30, 50, "ab")
    told = run("--from", a, "--from", b, "--licence", "mit", "--licence", "cc0", "--out", "data/made", "--report")
    assert "50 records kept" in told
    manifest = verify(Path("data/made"))
    assert (manifest.stage, set(manifest.inputs)) == (STAGE, {"a.jsonl", "b.jsonl"})
    assert {path.name for path in Path("data").iterdir()} == {"made"}, "nothing is left beside it"
    page = (Path("data/made") / PAGE).read_text()
    assert "<svg" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", ""), "nothing is fetched"
    quality = json.loads((Path("data/made") / "quality.json").read_text())
    assert quality["licences"] == {"mit": 30, "cc0": 20}


def test_the_same_build_gives_the_same_bytes() -> None:
    a = jsonl("a.jsonl", 0, 40, "ultrafeedback")
    for folder in ("one", "two"):
        run("--from", a, "--out", folder, "--report")
    assert read_manifest(Path("one")).digest == read_manifest(Path("two")).digest


def test_a_later_build_keeps_the_splits_of_what_lies_there() -> None:
    a, b = jsonl("a.jsonl", 0, 60), jsonl("b.jsonl", 60, 120)
    run("--from", a, "--out", "made", "--validation-share", "0.5")
    before = splits("made")
    run("--from", b, "--from", a, "--out", "made", "--validation-share", "0.1")
    after = splits("made")
    assert {prompt: after[prompt] for prompt in before} == before
    assert read_manifest(Path("made")).inputs.keys() == {"a.jsonl", "b.jsonl", "earlier build"}
    run("--from", b, "--from", a, "--out", "made", "--validation-share", "0.1", "--anew")
    assert splits("made") != after


def test_a_build_that_fails_leaves_what_was_there() -> None:
    a = jsonl("a.jsonl", 0, 10)
    run("--from", a, "--out", "made")
    before = read_manifest(Path("made")).digest
    Path("bad.jsonl").write_text('{"prompt": "q", "chosen": null, "rejected": "b"}\n' * 9)
    with pytest.raises(UserError, match="missing_key"):
        run("--from", "bad.jsonl", "--out", "made")
    assert verify(Path("made")).digest == before
    assert not list(Path().glob(".made*"))


def test_mistakes_are_named_before_any_work() -> None:
    a = jsonl("a.jsonl", 0, 10)
    Path("a.xml").write_text("<a/>")
    for words, message in (
        (("--from", "none.jsonl"), "none.jsonl: no such file"),
        (("--from", "a.xml"), "what is it"),
        (("--from", a, "--form", "hg"), "did you mean 'hh'"),
        (("--from", a, "--form", "hh", "--form", "ab"), "given 2 times for 1 files"),
        (("--from", a, "--from", a), "given twice"),
        (("--from", a, "--tasks", "nowhere"), "no task sets there"),
        (("--from", a, "--held-out", "nowhere.txt"), "nowhere.txt: no such file"),
    ):
        with pytest.raises(UserError, match=message):
            run(*words, "--out", "made")
        assert not Path("made").exists()


def test_what_is_no_preference_data_is_not_overwritten() -> None:
    a = jsonl("a.jsonl", 0, 10)
    Path("other").mkdir()
    with pytest.raises(UserError, match="other"):
        run("--from", a, "--out", "other")


def test_our_own_rollouts_are_read_with_their_tasks() -> None:
    tasks = [Task(f"t{n}", "analyst", "join", "train", files.question(n), "w", 2) for n in range(4)]
    Path("tasks").mkdir()
    write_tasks(Path("tasks/train.jsonl"), tasks)
    played = [
        Trajectory(
            task.task_id,
            task.family,
            task.task_id,
            sibling,
            0,
            0,
            1.0,
            [Turn([1], [2], [0.0], "x", ToolCall("query_database", {"sql": f"look {sibling}"}), ToolResult("q1"))],
            sibling == 1,
            float(sibling == 1),
            "finished",
        )
        for task in tasks
        for sibling in range(2)
    ]
    write_trajectories(Path("rollouts.parquet"), played)
    run("--from", "rollouts.parquet", "--tasks", "tasks", "--out", "made")
    rows = pq.read_table("made/records.parquet").to_pylist()
    assert [row["id"] for row in rows] == ["t0", "t1", "t2", "t3"]
    assert all(row["candidates"][row["label"]]["messages"][0]["content"] == "query look 1\nfinished" for row in rows)
    with pytest.raises(UserError, match="--tasks data/tasks"):
        run("--from", "rollouts.parquet", "--out", "again")
