"""A check ends in no traceback and in no false fault: harmed bytes, odd events, clocks, others at work."""

import fcntl
import json
import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from geartrain import artifacts, withdrawals
from geartrain.cli import app
from geartrain.errors import UserError
from geartrain.lineage import events, evidence, journal, mirror, tombstones, verification
from geartrain.lineage.index import make_anew, open_index
from geartrain.stages.stage import FOLDERS
from tests.fakes.recorded import RUNNER, edit_manifest, hide_input, lines, log, make, verify


def test_whatever_byte_is_flipped_is_found_and_ends_in_no_traceback(workspace: Path) -> None:
    """Every 97th byte of the journal, each of its eight bits in turn; the head beside it has the last line's hash."""
    folder, whole = Path(".geartrain/lineage"), log().read_bytes()
    for number, place in enumerate(range(0, len(whole), 97)):
        harmed = bytearray(whole)
        harmed[place] ^= 1 << number % 8
        log().write_bytes(bytes(harmed))
        checked = verification.check_chain(folder)
        index = make_anew(folder)
        others = [verification.check_events(index), verification.check_tombstones(index)]
        others += [verification.check_artifacts(Path(), FOLDERS, index), verification.check_sources(index, Path())]
        assert checked.faults, (place, bytes(harmed)[max(0, place - 40) : place + 40])
        assert others


def test_an_event_of_another_shape_is_named_and_counts_for_nothing(workspace: Path) -> None:
    shape = json.loads(lines()[-1])
    shape["run"]["facets"]["parent"] = {"run": "none"}
    shape["run"]["runId"] = events.new_run_id()
    journal.append(Path(".geartrain/lineage"), shape)
    code, output = verify()
    assert code == 3
    assert "an event of a shape that is not ours" in output


VERSION = ("inputs", 0, "facets", "version", "datasetVersion")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("job", "namespace"), ["a list"]),
        (("job", "name"), "half a character \udcff"),
        (("run", "facets", "geartrain_stage", "attempt"), 2**70),
        (("run", "facets", "geartrain_stage", "attempt"), 1.5),
        (("run", "facets", "geartrain_code", "digest"), {}),
        (("run", "facets", "geartrain_metrics", "values"), []),
        (("run", "facets", "geartrain_error"), {}),
        (("inputs", 0, "name"), "half a character \udcff"),
        (("inputs", 0, "facets", "geartrain_artifact", "manifest"), "half a character \udcff"),
        (("inputs", 0, "facets", "geartrain_artifact", "path"), 7.5),
        (VERSION, "sha256:half a character \udcff"),
    ],
)
def test_a_value_that_no_table_takes_harms_no_other_event(workspace: Path, place: Any, value: object) -> None:
    """Rows are written many at a time: one that cannot be is told apart before."""
    folder = Path(".geartrain/lineage")
    before = make_anew(folder).counts()
    shape = json.loads(next(line for line in reversed(lines()) if json.loads(line)["inputs"]))
    shape["run"]["runId"] = events.new_run_id()
    shape["inputs"][0]["facets"]["version"]["datasetVersion"] = "sha256:" + "e" * 64  # met for the first time
    at = shape
    for step in place[:-1]:
        at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
    at[place[-1]] = value
    journal.append(folder, shape)
    index = make_anew(folder)
    counts = index.counts()
    assert before["runs"] <= counts["runs"] <= before["runs"] + 1
    assert counts["models"] == before["models"]
    assert verify()[0] == 3
    assert [place for _, place in evidence.unread(index)] == [log().read_bytes().rindex(b'{"eventTime"')]


def test_an_event_that_only_json_can_read_is_in_the_index(workspace: Path) -> None:
    """A file name that is no text ends up in an error's message as half a character, which stricter parsers refuse."""
    run = {"run_id": events.new_run_id(), "job": "critic", "inputs": {}, "outputs": {}}
    events.emit(Path(".geartrain/lineage"), "START", **run)
    events.emit(Path(".geartrain/lineage"), "FAIL", **run, facets={"error": {"type": "X", "message": "no \udcff"}})
    assert [node.error for node in make_anew(Path(".geartrain/lineage")).runs("FAIL")] == ["no \udcff"]
    assert verify()[0] == 0
    result = RUNNER.invoke(app, ["lineage", "run:" + run["run_id"]])
    assert "no \\udcff" in result.output


def test_names_of_others_cannot_forge_a_line(workspace: Path) -> None:
    run = {"run_id": events.new_run_id(), "job": "critic\nno faults\x1b[2J", "outputs": {}}
    events.emit(Path(".geartrain/lineage"), "COMPLETE", **run, inputs={"a\nb": "a" * 64})
    code, output = verify()
    assert code == 3
    assert "\nno faults\x1b" not in output
    assert "critic\\nno faults\\x1b[2J" in output


def test_a_clock_that_is_set_back_makes_no_fault(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2020, 1, 1, tzinfo=tz)

    monkeypatch.setattr(events, "datetime", Earlier)
    made = make("tasks", "later, by a clock that says earlier")
    code, output = verify()
    assert code == 0, output
    assert "which is newer: run the stage again" in output
    assert open_index(Path(".geartrain")).resolve("dataset:tasks").digest == made


def test_events_from_before_manifests_were_noted_are_held_to_what_they_say(workspace: Path) -> None:
    """Then the manifest is compared part by part."""
    folder, past = Path(".geartrain/lineage"), events.read_events(Path(".geartrain/lineage"))
    shutil.rmtree(folder)
    for event in past:
        for item in (*event["inputs"], *event["outputs"]):
            item["facets"].get("geartrain_artifact", {}).pop("manifest", None)
        journal.append(folder, event)
    assert verify()[0] == 0, verify()[1]
    edit_manifest("policy", hide_input)()
    code, output = verify()
    assert code == 3
    assert "models/policy/manifest.json: was changed: other inputs (tasks)" in output


def test_checking_while_stages_write_finds_no_fault(workspace: Path) -> None:
    """A child process makes artifacts under the lock of their stage, as stages do; checks go on meanwhile."""
    child = os.fork()
    if child == 0:
        try:
            for number in range(25):
                _make_locked("policy", f"round {number}")
            os._exit(0)
        finally:
            os._exit(1)
    rounds = 0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        code, output = verify("--no-remote")
        assert code == 0, output
        rounds += 1
    assert rounds > 1
    assert verify("--no-remote")[0] == 0


def _make_locked(stage: str, content: str) -> None:
    lock = Path(f".geartrain/work/{stage}-0.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        make(stage, content)


@pytest.mark.parametrize("harm", ["removed", "edited"])
def test_a_tombstone_that_is_gone_is_missed_and_still_heeded(
    harm: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".dvc").mkdir()
    monkeypatch.setattr(withdrawals, "checkout", lambda: workspace)
    digest = artifacts.read_manifest(FOLDERS["tasks"]).digest
    told = ["withdraw", "data/tasks", "--reason", "asked\nfor", "--by", "ada"]
    assert RUNNER.invoke(app, ["data", *told]).exit_code == 0
    assert verify()[0] == 0
    policy = tombstones.used("policy", FOLDERS["policy"], artifacts.read_manifest(FOLDERS["policy"]))
    with pytest.raises(UserError, match=r"made from tasks .* which was withdrawn on .* by ada: asked\\nfor"):
        tombstones.require_allowed([Path(".geartrain")], [policy])
    stone = Path("data/withdrawn") / f"{digest}.json"
    if harm == "removed":
        stone.unlink()
    else:
        artifacts.write_json(stone, {**json.loads(stone.read_text()), "action": "lift"})
    code, output = verify()
    assert code == 3
    assert f"data/withdrawn/{digest}.json: the tombstone of {digest[:12]} is gone, or was changed" in output
    with pytest.raises(UserError, match=r"its tombstone .* is gone, or was changed"):
        tombstones.require_allowed([Path(".geartrain")], [policy])


def test_in_a_pod_the_shared_lineage_is_asked_once_something_is_withdrawn(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod has its inputs and no past: an edited manifest would hide what only others have seen."""
    stones = workspace / "stones"
    stones.mkdir()
    monkeypatch.setenv(withdrawals.PLACES, str(stones))
    digest = artifacts.read_manifest(FOLDERS["tasks"]).digest
    edit_manifest("policy", hide_input)()
    policy = tombstones.used("policy", FOLDERS["policy"], artifacts.read_manifest(FOLDERS["policy"]))
    pod = workspace / "pod"
    monkeypatch.setenv(mirror.VARIABLE, str(workspace / ".geartrain/lineage/journal"))
    tombstones.require_allowed([pod], [policy])
    assert not pod.exists(), "while nothing is withdrawn nobody fetches anything"
    told = {"name": "tasks", "reason": "asked for", "by": "ada", "at": "2026-03-01"}
    withdrawals.record(stones, digest, "withdraw", **told)
    with pytest.raises(UserError, match="policy was made from tasks"):
        tombstones.require_allowed([pod], [policy])


def test_what_was_copied_or_renamed_is_checked_where_it_lies(workspace: Path) -> None:
    shutil.copytree("data/tasks", "data/older")
    shutil.copytree("data/tasks", "tasks-v3")
    Path("models/policy").rename("models/best")
    assert verify() == (0, verify()[1])
    assert "3 copies" in verify()[1]
    (Path("models/best") / "content.txt").write_text("forged")
    code, output = verify()
    assert code == 3
    assert "FAULT  models/best: does not match its manifest.json: content.txt was changed" in output
    artifacts.write_manifest(Path("models/best"), stage="policy", parameters={}, inputs={}, metrics={})
    code, output = verify()
    assert code == 0
    assert "note   models/best: no run in this lineage made it" in output
    record = json.loads(Path("data/older/manifest.json").read_text())
    artifacts.write_json(Path("data/older/manifest.json"), {**record, "parameters": {"seed": 1}})
    code, output = verify()
    assert code == 3
    assert "FAULT  data/older/manifest.json: was changed: other parameters" in output


def test_a_clock_that_was_set_back_does_not_hide_the_last_withdrawal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was withdrawn again counts though the events that lifted it bear a later time, and its record is gone."""
    stones = tmp_path / "stones"
    stones.mkdir()
    monkeypatch.setenv(withdrawals.PLACES, str(stones))
    told = []
    for number, action in enumerate(["withdraw", "lift"] * 6):
        path = withdrawals.record(stones, "d" * 64, action, name="x", reason="why", by="ada", at="2026")
        told.append(evidence.Told("d" * 64, path.name, action, artifacts.file_sha256(path), f"2026-01-{30 - number}"))
    assert tombstones.missing(told) == []
    again = told[:-1]
    for one in told[-2:]:
        (stones / one.record).unlink()
    assert tombstones.missing(sorted(again, key=lambda one: (one.time, one.record))) == [told[-2]]
