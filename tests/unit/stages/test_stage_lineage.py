"""What a stage refuses is known by its lineage too, and what it did not make is not told of as its own."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from geartrain import artifacts, withdrawals
from geartrain.config import Config, parse_config
from geartrain.errors import UserError, WithdrawnError
from geartrain.lineage.events import digests, error_of, read_events, stage_of
from geartrain.lineage.index import make_anew
from geartrain.lineage.verification import check_events
from geartrain.stages import stage as stages
from geartrain.stages.stage import Job, Metrics, StageSpec, event_log
from tests.fakes.toy_stage import OUT, Body, seal_tasks


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hide(folder: Path, digest: str) -> None:
    """Take a digest out of what a manifest says of an artifact's making."""
    path = folder / artifacts.MANIFEST
    record = json.loads(path.read_text())
    for part in ("ancestors", "inputs"):
        record[part] = {key: value for key, value in record[part].items() if digest not in (key, value)}
    artifacts.write_json(path, record)


@pytest.fixture
def withdrawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    monkeypatch.setenv(withdrawals.PLACES, str(tmp_path / "withdrawn"))
    (tmp_path / "withdrawn").mkdir()
    told = {"name": "x", "reason": "asked for", "by": "ada", "at": "2026-03-01"}
    return lambda digest: withdrawals.record(tmp_path / "withdrawn", digest, "withdraw", **told) and None


CONFIG = parse_config({"environment": {"source": "raw.json"}}, source="x")


@pytest.fixture
def tasks() -> StageSpec:
    """A stage that makes the same tasks of whatever raw data."""

    def body(job: Job) -> Metrics:
        (job.outputs["tasks"] / "train.jsonl").write_text("{}")
        return {}

    body.__module__ = "tasks"
    return stages.stage(inputs=(), sections=("environment",), files=("environment.source",))(body).spec


@pytest.fixture
def after(body: Body) -> StageSpec:
    return stages.stage(inputs=("tasks",), sections=("policy",))(body).spec


def test_an_edited_manifest_does_not_hide_what_is_withdrawn(
    tasks: StageSpec, after: StageSpec, body: Body, withdrawn: Callable[[str], None]
) -> None:
    Path("raw.json").write_text("[1]")
    tasks.run(CONFIG, {}, {"tasks": Path("tasks")})
    raw = artifacts.file_sha256(Path("raw.json"))
    hide(Path("tasks"), raw)
    withdrawn(raw)
    with pytest.raises(UserError, match=r"tasks was made from environment.source .*asked for"):
        after.run(CONFIG, {"tasks": Path("tasks")}, OUT)
    assert body.calls == 0


def test_it_does_not_help_to_edit_the_manifest_before_the_next_stage_reads_it(
    tasks: StageSpec, after: StageSpec, body: Body, withdrawn: Callable[[str], None]
) -> None:
    Path("raw.json").write_text("[1]")
    tasks.run(CONFIG, {}, {"tasks": Path("tasks")})
    raw = artifacts.file_sha256(Path("raw.json"))
    hide(Path("tasks"), raw)
    after.run(CONFIG, {"tasks": Path("tasks")}, OUT)
    assert raw not in artifacts.read_manifest(OUT["toy"]).ancestors
    withdrawn(raw)
    last = stages.stage(inputs=("toy",), sections=())(body).spec
    with pytest.raises(UserError, match=r"toy was made from environment.source .*asked for"):
        last.run(CONFIG, {"toy": OUT["toy"]}, OUT)


def test_the_same_bytes_made_from_other_data_may_be_used(
    tasks: StageSpec, after: StageSpec, body: Body, withdrawn: Callable[[str], None]
) -> None:
    """After an erasure the tasks may come out as they were: which making is meant, the manifest's sha256 tells."""
    Path("raw.json").write_text("[1]")
    tasks.run(CONFIG, {}, {"tasks": Path("tasks")})
    first = artifacts.read_manifest(Path("tasks")).digest
    withdrawn(artifacts.file_sha256(Path("raw.json")))
    Path("raw.json").write_text("[]")
    tasks.run(CONFIG, {}, {"tasks": Path("tasks")})
    assert artifacts.read_manifest(Path("tasks")).digest == first
    after.run(CONFIG, {"tasks": Path("tasks")}, OUT)
    assert body.calls == 1


def test_a_refusal_is_told_each_time_with_what_was_to_be_read(
    tasks: StageSpec, after: StageSpec, withdrawn: Callable[[str], None]
) -> None:
    """An auditor sees who tried, with what, and why it was not begun; to have been refused is not to have reached."""
    Path("raw.json").write_text("[1]")
    tasks.run(CONFIG, {}, {"tasks": Path("tasks")})
    raw, made = artifacts.file_sha256(Path("raw.json")), artifacts.read_manifest(Path("tasks")).digest
    withdrawn(raw)
    for tries in (1, 2):
        with pytest.raises(WithdrawnError, match=r"was made from environment\.source"):
            after.run(CONFIG, {"tasks": Path("tasks")}, OUT)
        start, fail = read_events(event_log())[-2:]
        assert [event["eventType"] for event in (start, fail)] == ["START", "FAIL"]
        assert start["run"]["runId"] == fail["run"]["runId"]
        assert (stage_of(fail), digests(fail, "inputs"), fail["outputs"]) == ("toy", {"tasks": made}, [])
        assert error_of(fail)["type"] == "WithdrawnError"
        assert "asked for" in error_of(fail)["message"]
        assert len(read_events(event_log())) == 2 + 2 * tries
    with pytest.raises(WithdrawnError):
        tasks.run(CONFIG, {}, {"tasks": Path("tasks")})
    assert digests(read_events(event_log())[-1], "inputs") == {"environment.source": raw}
    index = make_anew(event_log())
    assert not index.models_reached(raw)
    assert not check_events(index).findings


def test_a_refusal_stands_where_it_cannot_be_told(
    reader: StageSpec, body: Body, withdrawn: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("raw.json").write_text("[]")
    withdrawn(seal_tasks({}))
    event_log().parent.mkdir()
    event_log().write_text("a file is in the way")
    with pytest.raises(WithdrawnError, match="asked for"):
        reader.run(CONFIG, {"tasks": Path("tasks")}, OUT)
    assert body.calls == 0
    assert "the refusal was not recorded" in capsys.readouterr().err


def test_tombstones_are_read_once_for_a_stage(
    reader: StageSpec, withdrawn: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two readings of them one could be withdrawn: what a stage heeds is one state of them."""
    Path("raw.json").write_text("[]")
    seal_tasks({})
    withdrawn("d" * 64)
    read, looked = withdrawals.read_history, []
    monkeypatch.setattr(withdrawals, "read_history", lambda folder: looked.append(folder) or read(folder))
    reader.run(CONFIG, {"tasks": Path("tasks")}, OUT)
    assert looked == withdrawals.places()


def test_a_file_of_an_input_may_be_withdrawn_by_its_own_digest(
    reader: StageSpec, body: Body, withdrawn: Callable[[str], None]
) -> None:
    Path("raw.json").write_text("[]")
    seal_tasks({})
    part = artifacts.file_sha256(Path("tasks/train.jsonl"))
    withdrawn(part)
    with pytest.raises(UserError, match=f"tasks holds a file .{part[:12]}. that was withdrawn"):
        reader.run(CONFIG, {"tasks": Path("tasks")}, OUT)


def test_an_output_whose_manifest_leaves_out_an_ancestor_is_made_anew(reader: StageSpec, body: Body) -> None:
    Path("raw.json").write_text("[]")
    seal_tasks({"collect": "c" * 64})
    reader.run(CONFIG, {"tasks": Path("tasks")}, OUT)
    path = OUT["toy"] / artifacts.MANIFEST
    record = json.loads(path.read_text())
    del record["ancestors"]["c" * 64]
    artifacts.write_json(path, record)
    reader.run(CONFIG, {"tasks": Path("tasks")}, OUT)
    assert body.calls == 2
    assert "c" * 64 in artifacts.read_manifest(OUT["toy"]).ancestors


def test_an_output_that_somebody_put_there_is_not_told_of_as_ours(
    toy: StageSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    """What fits its manifest, and is not what the run of this very task made, is left for `lineage verify` to name."""
    toy.run(Config(), {}, OUT)
    old = artifacts.read_manifest(OUT["toy"])
    (OUT["toy"] / "result").write_text("forged")
    artifacts.write_manifest(OUT["toy"], stage="toy", parameters=old.parameters, inputs={}, metrics=old.metrics)
    before = read_events(event_log())
    toy.run(Config(), {}, OUT)
    assert read_events(event_log()) == before
    assert "is not what its run made" in capsys.readouterr().err


def test_what_was_found_in_place_says_that_nobody_saw_it_made(toy: StageSpec) -> None:
    toy.run(Config(), {}, OUT)
    shutil.rmtree(event_log())
    toy.run(Config(), {}, OUT)
    told = read_events(event_log())[-1]["run"]["facets"]["geartrain_recovery"]
    assert "nobody saw it made" in told["reason"]


def test_the_hook_after_sealing_gets_the_id_of_the_run(body: Body) -> None:
    told: list[tuple[Path, str]] = []
    spec = stages.stage(inputs=(), sections=("policy",), sealed=lambda folder, run: told.append((folder, run)))(
        body
    ).spec
    spec.run(Config(), {}, OUT)
    assert [run for _, run in told] == [read_events(event_log())[0]["run"]["runId"]]
