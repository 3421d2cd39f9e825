"""Whoever calls a stage gets the same guarantees."""

import hashlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from geartrain import artifacts, live, withdrawals
from geartrain.config import Config, parse_config
from geartrain.errors import UserError
from geartrain.lineage.events import digests, read_events
from geartrain.preemption import PreemptedError
from geartrain.stages import stage as stages
from geartrain.stages.stage import StageSpec, event_log
from tests.fakes.toy_stage import OUT, Body, seal_tasks


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_stage_seals_what_it_wrote_and_says_so(toy: StageSpec) -> None:
    metrics = toy.run(Config(), {}, OUT)
    manifest = artifacts.verify(OUT["toy"])
    assert metrics == manifest.metrics == {"calls_seen": 1}
    assert set(manifest.parameters) == {"seed", "threads", "policy"}
    start, complete = read_events(event_log())
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert complete["outputs"][0]["facets"]["version"]["datasetVersion"] == f"sha256:{manifest.digest}"


def test_a_stage_can_be_watched_and_what_was_seen_outlives_it(toy: StageSpec, body: Body) -> None:
    body.error = UserError("why")
    with pytest.raises(UserError):
        toy.run(Config(), {}, OUT)
    body.error = None
    metrics = toy.run(Config(), {}, OUT)
    (path,) = (stages.home() / live.FOLDER).iterdir()
    lines = live.read(path)
    assert [line["kind"] for line in lines] == ["begin", "end", "begin", "end"]
    assert [line.get("outcome") for line in lines] == [None, "failed", None, "complete"]
    assert lines[-1]["metrics"] == metrics
    assert path.stem == f"toy-{lines[0]['key'][:16]}"
    toy.run(Config(), {}, OUT)
    assert live.read(path) == lines, "what is finished is not begun again"


def test_a_finished_stage_is_not_repeated_and_a_changed_one_is(toy: StageSpec, body: Body) -> None:
    for _ in range(2):
        toy.run(Config(), {}, OUT)
    assert body.calls == 1
    toy.run(parse_config({"critic": {"epochs": 1}}, source="x"), {}, OUT)
    assert body.calls == 1, "a section that the stage does not read changes nothing"
    toy.run(parse_config({"policy": {"iterations": 5}}, source="x"), {}, OUT)
    assert body.calls == 2
    assert (OUT["toy"] / "result").read_text() == "0 5"


def test_a_harmed_output_is_made_again(toy: StageSpec, body: Body) -> None:
    toy.run(Config(), {}, OUT)
    (OUT["toy"] / "result").write_text("tampered")
    toy.run(Config(), {}, OUT)
    assert body.calls == 2
    assert (OUT["toy"] / "result").read_text() == f"0 {Config().policy.iterations}"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(UserError("why"), "FAIL"), (KeyboardInterrupt(), "ABORT"), (PreemptedError("SIGTERM"), "ABORT")],
)
def test_a_failure_leaves_the_old_output_and_the_checkpoint(
    toy: StageSpec, body: Body, error: BaseException, kind: str
) -> None:
    toy.run(Config(), {}, OUT)
    body.error = error
    changed = parse_config({"seed": 1}, source="x")
    with pytest.raises(type(error)):
        toy.run(changed, {}, OUT)
    assert (OUT["toy"] / "result").read_text().startswith("0 ")
    assert read_events(event_log())[-1]["eventType"] == kind
    body.error = None
    assert toy.run(changed, {}, OUT) == {"calls_seen": 2}, "the second try finds the first one's checkpoint"


def test_inputs_are_checked_before_work_starts(body: Body) -> None:
    reader = stages.stage(inputs=("tasks",), sections=())(body).spec
    with pytest.raises(UserError, match="not a finished artifact"):
        reader.run(Config(), {"tasks": Path("absent")}, OUT)
    with pytest.raises(UserError, match="reads \\['tasks'\\]"):
        reader.run(Config(), {}, OUT)
    assert body.calls == 0


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(UserError, match="the stages are tasks, warm_start"):
        stages.load_stage("polic")


def test_a_file_that_a_killed_run_was_writing_is_not_published(body: Body, toy: StageSpec) -> None:
    body.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        toy.run(Config(), {}, OUT)
    (staged,) = stages.home().glob("work/toy-*/output")
    (staged / "worlds").mkdir()
    (staged / "worlds/.world.sqlite.4711").write_text("half")
    body.error = None
    toy.run(Config(), {}, OUT)
    assert artifacts.verify(OUT["toy"]).files.keys() == {"result"}


def kinds(run: str | None = None) -> list[str]:
    return [event["eventType"] for event in read_events(event_log()) if run in (None, event["run"]["runId"])]


@pytest.mark.parametrize("place", ["before the output is renamed", "after it"])
def test_a_crash_around_publication_leaves_no_gap_in_the_lineage(
    toy: StageSpec, body: Body, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child process is killed between output rename and COMPLETE (or before both); the rerun says what happened."""
    child = os.fork()
    if child == 0:
        publish = artifacts.publish

        def killed(staged: Path, target: Path) -> None:
            if place == "after it":
                publish(staged, target)
            os.kill(os.getpid(), signal.SIGKILL)

        artifacts.publish = killed
        toy.run(Config(), {}, OUT)
    os.waitpid(child, 0)
    assert kinds() == ["START"]
    first = read_events(event_log())[0]["run"]["runId"]
    toy.run(Config(), {}, OUT)
    digest = artifacts.verify(OUT["toy"]).digest
    told = [event for event in read_events(event_log()) if event["eventType"] == "COMPLETE"]
    assert [digests(event, "outputs") for event in told] == [{"toy": digest}], "one COMPLETE, for what is in place"
    if place == "after it":
        assert body.calls == 0, "nothing is done again"
        assert kinds(first) == ["START", "COMPLETE"]
        assert "no COMPLETE told of it" in told[0]["run"]["facets"]["geartrain_recovery"]["reason"]
    else:
        assert kinds(first) == ["START", "ABORT"], "the try that was killed is ended by the next one"
        assert told[0]["run"]["facets"]["geartrain_stage"]["attempt"] == 2
    before = len(read_events(event_log()))
    toy.run(Config(), {}, OUT)
    assert len(read_events(event_log())) == before, "and said once"


def test_an_output_that_nobody_told_of_gets_a_run_of_its_own(toy: StageSpec) -> None:
    toy.run(Config(), {}, OUT)
    shutil.rmtree(event_log())
    toy.run(Config(), {}, OUT)
    start, complete = read_events(event_log())
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert "geartrain_recovery" in complete["run"]["facets"]


def test_files_from_outside_are_inputs(body: Body, tmp_path: Path) -> None:
    (tmp_path / "data/raw").mkdir(parents=True)
    (tmp_path / "data/raw/chinook.json").write_text("[]")
    reader = stages.stage(inputs=(), sections=("environment",), files=("environment.source",))(body).spec
    reader.run(Config(), {}, OUT)
    assert digests(read_events(event_log())[0], "inputs") == {"environment.source": hashlib.sha256(b"[]").hexdigest()}


def test_an_engine_that_skips_a_stage_mends_its_lineage(tmp_path: Path) -> None:
    target = tmp_path / stages.FOLDERS["tasks"]
    target.mkdir(parents=True)
    artifacts.write_manifest(target, stage="tasks", parameters={}, inputs={}, metrics={"n": 1})
    for _ in range(2):
        stages.record_current(Path(), "tasks")
    assert kinds() == ["START", "COMPLETE"]
    elsewhere = tmp_path / "cell"
    (elsewhere / "data").mkdir(parents=True)
    (elsewhere / stages.FOLDERS["tasks"]).symlink_to(target)
    stages.record_current(elsewhere, "tasks")
    assert not (elsewhere / event_log()).exists(), "a link belongs to another workspace"


def test_a_manifest_names_all_that_it_was_made_from(reader: StageSpec) -> None:
    Path("raw.json").write_text("[]")
    config = parse_config({"environment": {"source": "raw.json"}}, source="x")
    digest = seal_tasks({"collect": "c" * 64})
    reader.run(config, {"tasks": Path("tasks")}, OUT)
    manifest = artifacts.read_manifest(OUT["toy"])
    raw = artifacts.file_sha256(Path("raw.json"))
    assert manifest.inputs == {"tasks": digest, "environment.source": raw}
    assert manifest.ancestors == {
        digest: "tasks", raw: "environment.source", "c" * 64: "collect", "f" * 64: "older",
    }  # fmt: skip
    start, _ = read_events(event_log())
    assert [item["name"] for item in start["inputs"]] == ["environment.source", "tasks"]


def test_a_file_from_outside_that_changed_makes_the_stage_anew(reader: StageSpec, body: Body) -> None:
    config = parse_config({"environment": {"source": "raw.json"}}, source="x")
    seal_tasks({})
    for text, calls in (("[]", 1), ("[]", 1), ("[1]", 2)):
        Path("raw.json").write_text(text)
        reader.run(config, {"tasks": Path("tasks")}, OUT)
        assert body.calls == calls


@pytest.mark.parametrize("which", ["tasks", "raw.json", "older"])
def test_what_is_withdrawn_starts_nothing_however_far_up_it_is(
    which: str, reader: StageSpec, body: Body, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(withdrawals.PLACES, str(tmp_path / "withdrawn"))
    Path("raw.json").write_text("[]")
    Path("withdrawn").mkdir()
    config = parse_config({"environment": {"source": "raw.json"}}, source="x")
    digest = {"tasks": seal_tasks({}), "raw.json": artifacts.file_sha256(Path("raw.json")), "older": "f" * 64}[which]
    reader.run(config, {"tasks": Path("tasks")}, OUT)
    withdrawals.record(Path("withdrawn"), digest, "withdraw", name=which, reason="asked for", by="ada", at="2026-03-01")
    with pytest.raises(UserError, match=f"{digest[:12]}.*was withdrawn on 2026-03-01 by ada: asked for"):
        reader.run(config, {"tasks": Path("tasks")}, OUT)
    assert body.calls == 1
    withdrawals.record(Path("withdrawn"), digest, "lift", name=which, reason="a mistake", by="ada", at="2026-03-02")
    reader.run(config, {"tasks": Path("tasks")}, OUT)
