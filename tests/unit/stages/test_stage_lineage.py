"""What a stage refuses is known by its lineage too, and what it did not make is not told of as its own."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from geartrain import artifacts, withdrawals
from geartrain.config import Config, parse_config
from geartrain.errors import UserError
from geartrain.lineage.events import read_events
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
