"""Whatever is changed, dropped, reordered, cut or swapped is named, with exit code 3; what a crash leaves is not."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from geartrain import artifacts
from geartrain.config import Config
from geartrain.lineage import events, journal
from geartrain.lineage.events import Data
from geartrain.sources import DEFINITIONS, read_sources
from geartrain.stages.stage import FOLDERS
from tests.fakes.recorded import INPUTS, edit_manifest, flip, hide_input, lines, log, make, verify


def test_what_is_whole_has_no_fault(workspace: Path) -> None:
    code, output = verify()
    assert (code, output) == (
        0,
        "1 files, 6 events, 3 artifacts, 3 runs, 0 copies, 0 tombstones, 1 files from outside, "
        "0 artifacts in the DVC remote: "
        "no faults\n",
    )


def _flip_in_event(number: int) -> Callable[[], None]:
    def harm() -> None:
        text = lines()
        text[number] = text[number].replace(b'"COMPLETE"', b'"COMPLETF"').replace(b'"START"', b'"STARS"')
        log().write_bytes(b"".join(text))

    return harm


def _drop(number: int) -> Callable[[], None]:
    return lambda: log().write_bytes(b"".join(line for n, line in enumerate(lines()) if n != number)) and None


def _swap_events() -> None:
    text = lines()
    text[1], text[2] = text[2], text[1]
    log().write_bytes(b"".join(text))


def _swap_folders() -> None:
    Path("models/policy").rename("models/other")
    Path("models/warm_start").rename("models/policy")
    Path("models/other").rename("models/warm_start")


def _swap_contents() -> None:
    first, second = Path("models/policy/content.txt"), Path("models/warm_start/content.txt")
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)


def _swap_for_a_stranger() -> None:
    (Path("models/policy") / "content.txt").write_text("a model from elsewhere")
    old = artifacts.read_manifest(Path("models/policy"))
    artifacts.write_manifest(Path("models/policy"), stage="policy", parameters={}, inputs=old.inputs, metrics={})


def _roll_back() -> None:
    """Put an older version of the warm start below a newer policy."""
    shutil.copytree("models/warm_start", "models/old")
    make("warm_start", "second")
    make("policy", "second")
    shutil.rmtree("models/warm_start")
    Path("models/old").rename("models/warm_start")


def _add_event() -> None:
    with log().open("ab") as file:
        file.write(lines()[-1])


def _hide_ancestor(record: dict[str, Any]) -> None:
    record["ancestors"].pop(record["inputs"]["tasks"])
    record["inputs"]["tasks"] = "e" * 64
    record["ancestors"]["e" * 64] = "tasks"


def _false_digest(record: dict[str, Any]) -> None:
    record["digest"] = "e" * 64


def _write(path: str, text: str = "{}") -> Callable[[], None]:
    def harm() -> None:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text)

    return harm


def _falsify_index() -> None:
    """Take away what a dataset has reached, in the index alone."""
    verify()
    with closing(sqlite3.connect(".geartrain/lineage/index.sqlite")) as database, database:
        database.execute("DELETE FROM edges WHERE output = 0")


def _keep_index_from_reading_on() -> None:
    _falsify_index()
    with closing(sqlite3.connect(".geartrain/lineage/index.sqlite")) as database, database:
        database.execute("UPDATE files SET sha256 = 'x', size = 0")


def _read_a_changed_manifest() -> None:
    """Hide an ancestor, let a stage read that, and put everything back."""
    path = FOLDERS["warm_start"] / "manifest.json"
    before = path.read_text()
    edit_manifest("warm_start", hide_input)()
    make("policy", "second")
    path.write_text(before)


CASES = {
    "a byte of a dataset": (lambda: flip(Path("data/tasks/content.txt")), ["data/tasks: does not", "content.txt was"]),
    "a byte of a model": (lambda: flip(Path("models/policy/content.txt")), ["models/policy: does", "content.txt was"]),
    "a byte of the raw data": (lambda: flip(Path("data/raw/chinook.json"), 0), ["data/raw/chinook.json: was changed"]),
    "a manifest": (lambda: Path("models/policy/manifest.json").unlink(), ["models/policy: no manifest.json"]),
    "a byte of an event": (_flip_in_event(2), ["event 3", "the event before it was changed"]),
    "a byte of the last event": (_flip_in_event(5), ["event 5 (its last one, at some time) is not what its head says"]),
    "a dropped event": (_drop(2), ["event 2", "dropped, added or", "was cut: 6 events by its head, 5 are left"]),
    "the first event dropped": (_drop(0), ["event 0", "dropped, added or reordered", "COMPLETE without START"]),
    "the last event dropped": (_drop(5), ["was cut: 6 events by its head, 5 are left", "no run in this lineage"]),
    "reordered events": (_swap_events, ["event 1", "dropped, added or reordered"]),
    "an added event": (_add_event, ["event 6", "dropped, added or reordered"]),
    "a line that is no event": (
        lambda: log().write_bytes(b"".join(lines()) + b'{"eventType":"START","eventTime":"x","job":1,"run":[]}\n'),
        ["event 6: a line cut short by a crash, or harmed"],
    ),
    "a truncated file": (lambda: log().write_bytes(log().read_bytes()[:-700]), ["was cut"]),
    "an emptied file": (lambda: log().write_bytes(b""), ["was cut: 6 events by its head, 0 are left"]),
    "a head": (lambda: next(log().parent.glob("*.head")).write_text("{}x"), ["cannot be read: somebody wrote into it"]),
    "no head": (lambda: next(log().parent.glob("*.head")).unlink(), ["its head", "is gone"]),
    "two models swapped": (
        _swap_folders,
        ["models/policy: holds the artifact of stage warm_start", "models/warm_start: holds the artifact of stage pol"],
    ),
    "weights swapped": (_swap_contents, ["models/policy: does not match", "models/warm_start: does not match"]),
    "a model of somebody else": (_swap_for_a_stranger, ["models/policy: no run in this lineage made it"]),
    "a hidden input": (edit_manifest("policy", hide_input), ["manifest.json: was changed: other inputs (tasks)"]),
    "a replaced input": (edit_manifest("policy", _hide_ancestor), ["manifest.json: was changed", "it leaves out"]),
    "parameters": (edit_manifest("tasks", lambda r: r.update(parameters={"a": 1})), ["was changed: other parameters"]),
    "metrics": (edit_manifest("tasks", lambda r: r.update(metrics={"a": 1})), ["was changed: other metrics"]),
    "a false digest": (edit_manifest("tasks", _false_digest), ["data/tasks: does not", "the digest in it (eeee"]),
    "a manifest that was read": (_read_a_changed_manifest, ["(policy): read warm_start", "had been changed: no run"]),
    "a file in a model": (_write("models/policy/extra.bin"), ["extra.bin is not in the manifest"]),
    "a manifest below": (_write("models/policy/sub/manifest.json"), ["sub/manifest.json is not in the manifest"]),
    "a signature of no model": (_write("data/tasks/model.sig"), ["model.sig is not in the manifest"]),
    "a link to a folder": (lambda: Path("models/policy/x").symlink_to("/tmp"), ["models/policy: does", "x is no file"]),
    "a pipe": (lambda: os.mkfifo("models/policy/pipe"), ["models/policy: does not match", "pipe is no file"]),
    "the index": (_falsify_index, ["index.sqlite: does not say what the events say"]),
    "the index, for good": (_keep_index_from_reading_on, ["index.sqlite: does not say what the events say"]),
    "an older model": (_roll_back, ["models/policy: was made from warm_start", "which is older: somebody swapped"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_tampering_is_named(case: str, workspace: Path) -> None:
    harm, expected = CASES[case]
    harm()
    code, output = verify()
    assert code == 3
    for words in expected:
        assert words in output, output


def test_one_segment_of_several_that_is_gone_is_named(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 1)
    make("policy", "second")
    segments = sorted(log_ for log_ in Path(".geartrain/lineage/journal").glob("*.ndjson"))
    segments[1].unlink()
    code, output = verify()
    assert code == 3
    assert "segment 1 of this writer is gone" in output


def test_what_a_kill_leaves_is_no_fault(workspace: Path) -> None:
    events.emit(Path(".geartrain/lineage"), "START", run_id=events.new_run_id(), job="critic", inputs={}, outputs={})
    with log().open("ab") as file:
        file.write(b'{"eventTime":"2026')
    code, output = verify()
    assert code == 0, output
    assert "note   run" in output
    make("policy", "again")  # ends the line, and goes on
    code, output = verify()
    assert code == 0, output
    assert "a line cut short by a crash" in output


def test_a_stage_that_is_to_be_run_again_is_no_fault(workspace: Path) -> None:
    make("tasks", "second")
    code, output = verify()
    assert code == 0, output
    assert "models/policy: was made from tasks" in output
    assert "which is newer: run the stage again" in output


def test_heads_that_were_kept_show_what_was_rewritten(workspace: Path) -> None:
    """Who may write everything can make a chain anew; not one that ends in a hash that somebody keeps elsewhere."""
    assert verify("--heads", "kept.json")[0] == 0
    kept = json.loads(Path("kept.json").read_text())
    assert [head["count"] for head in kept.values()] == [6]
    make("policy", "second")
    assert verify("--heads", "kept.json")[0] == 0, "what is new is added"
    assert [head["count"] for head in json.loads(Path("kept.json").read_text()).values()] == [8]
    shutil.rmtree(".geartrain/lineage")
    for stage in INPUTS:
        make(stage)
    code, output = verify("--heads", "kept.json")
    assert code == 3
    assert "all of its files are gone" in output


def _push(workspace: Path) -> Path:
    """Lay the artifacts out as `dvc push` does, with `dvc.lock`; return the remote."""
    import hashlib

    import yaml

    remote, stages = workspace / "remote", {}

    def put(content: bytes, suffix: str = "") -> str:
        name = hashlib.md5(content).hexdigest() + suffix
        path = remote / "files/md5" / name[:2] / name[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return name

    for stage in INPUTS:
        files = sorted(path for path in FOLDERS[stage].rglob("*") if path.is_file())
        listed = [{"md5": put(f.read_bytes()), "relpath": f.relative_to(FOLDERS[stage]).as_posix()} for f in files]
        name = put(json.dumps(listed).encode(), ".dir")
        stages[stage] = {"cmd": "x", "outs": [{"path": FOLDERS[stage].as_posix(), "hash": "md5", "md5": name}]}
    Path("dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    Path(".dvc").mkdir()
    Path(".dvc/config").write_text("[core]\n    remote = here\n['remote \"here\"']\n    url = ../remote\n")
    return remote


def test_the_remote_is_checked_to_the_byte(workspace: Path) -> None:
    remote = _push(workspace)
    code, output = verify()
    assert code == 0, output
    assert "3 artifacts in the DVC remote" in output
    (harmed,) = (path for path in remote.rglob("*") if path.is_file() and path.read_bytes() == b"policy first")
    flip(harmed)
    code, output = verify()
    assert code == 3
    assert "models/policy in the DVC remote: content.txt was changed" in output
    assert verify("--no-remote")[0] == 0
    harmed.unlink()
    code, output = verify()
    assert code == 0, "what was not pushed is no fault"
    assert "`dvc push` copies it" in output


def test_a_signature_in_the_remote_is_no_part_of_the_digest(workspace: Path) -> None:
    signature = FOLDERS["policy"] / "model.sig"
    signature.write_text("{}")
    _push(workspace)
    signature.unlink()
    assert verify()[0] == 0, verify()[1]


def test_a_manifest_in_the_remote_is_held_to_the_events(workspace: Path) -> None:
    path = FOLDERS["policy"] / "manifest.json"
    before = path.read_text()
    edit_manifest("policy", hide_input)()
    _push(workspace)
    path.write_text(before)
    code, output = verify()
    assert code == 3
    assert "models/policy in the DVC remote: manifest.json is not the one that its run wrote" in output


def test_feature_definitions_are_hashed_as_they_were_when_read(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = workspace / "data/feature_repo"
    repo.mkdir()
    (repo / "definitions.py").write_text("x = 1\n")
    (repo / "feature_store.yaml").write_text("project: x\n")  # no part of what a stage computes
    monkeypatch.setenv("GEARTRAIN_FEATURE_REPO", str(repo))
    (source,) = read_sources(Config(), (DEFINITIONS,))
    read = [Data(source.name, source.digest, "source", source.path)]
    events.emit(
        Path(".geartrain/lineage"), "START", run_id=events.new_run_id(), job="preferences", inputs=read, outputs=()
    )
    assert verify()[0] == 0
    (repo / "definitions.py").write_text("x = 2\n")
    code, output = verify()
    assert code == 3
    assert "data/feature_repo: was changed since it was read" in output
