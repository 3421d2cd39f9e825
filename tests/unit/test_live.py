import fcntl
import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from geartrain import live, progress
from geartrain.errors import UserError
from geartrain.preemption import PreemptedError

KNOWN = {"stage": "policy", "key": "k", "pid": 1, "parameters": {}}


@pytest.fixture
def heard() -> Iterator[list[live.Line]]:
    lines: list[live.Line] = []
    end = live.subscribe(lines.append)
    yield lines
    end()


def kinds(path: Path) -> list[str]:
    return [line["kind"] for line in live.read(path)]


def test_a_stage_is_told_from_begin_to_end(tmp_path: Path) -> None:
    path = tmp_path / "live" / "policy-k.jsonl"
    with live.telling(path, **KNOWN) as ending:
        live.emit("checkpoint", step=2)
        ending["metrics"] = {"success": 0.5}
    begin, checkpoint, end = live.read(path)
    assert (begin["kind"], begin["stage"], checkpoint["step"]) == ("begin", "policy", 2)
    assert (end["outcome"], end["reason"], end["metrics"]) == ("complete", None, {"success": 0.5})
    assert begin["time"] <= checkpoint["time"] <= end["time"]


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (UserError("no tasks"), "failed", "no tasks"),
        (ValueError("bug"), "failed", "ValueError('bug')"),
        (PreemptedError("drained"), "interrupted", "drained"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt()"),
    ],
)
def test_the_end_says_how_it_ended(tmp_path: Path, error: BaseException, outcome: str, reason: str) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(type(error)), live.telling(path, **KNOWN):
        raise error
    end = live.read(path)[-1]
    assert (end["kind"], end["outcome"], end["reason"]) == ("end", outcome, reason)


def test_what_a_kill_cut_short_costs_one_line_and_a_resumed_stage_goes_on_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with live.telling(path, **KNOWN):
        live.emit("iteration", index=0, record={"reward": 1.0})
    path.write_bytes(path.read_bytes()[:-20])
    with live.telling(path, **KNOWN):
        live.emit("iteration", index=0, record={"reward": 2.0})
        live.emit("iteration", index=1, record={"reward": 3.0})
    assert kinds(path) == ["begin", "iteration", "begin", "iteration", "iteration", "end"]
    assert [line["record"]["reward"] for line in live.iterations(live.read(path))] == [2.0, 3.0]


def test_a_follower_gets_each_whole_line_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first = json.dumps({"time": 1.0, "kind": "begin"}) + "\n"
    second = json.dumps({"time": 2.0, "kind": "end", "reason": "Überlast"}, ensure_ascii=False) + "\n"
    data = (first + second).encode()
    seen: list[live.Line] = []
    position = 0
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        for line, after in live.follow(path, position):
            assert line is not None
            seen.append(line)
            position = after
    assert [line["kind"] for line in seen] == ["begin", "end"]
    path.write_text(second, "utf-8")  # begun anew
    assert [line["kind"] for line, _ in live.follow(path, position) if line] == ["end"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            '{"time": 1, "kind": "iteration", "index": 0, "record": {"kl": NaN, "reward": 1e999}}',
            {"kl": None, "reward": None},
        ),
        ('{"time": 1, "kind": "iteration", "index": 0, "record": {"kl": 1}, "seconds": [3]}', {"kl": 1}),
        ('{"time": 1, "kind": "iteration", "index": 0, "record": {"kl": %s}}' % ("9" * 400), {"kl": None}),
        ('{"time": 1, "kind": "iteration", "index": 0, "record": {"kl": "\\ud83d"}}', {"kl": "?"}),
        ('{"time": 1, "kind": "iteration", "index": "0", "record": {}}', None),
        ('{"time": 1, "kind": "iteration", "index": 0}', None),
        ('{"time": NaN, "kind": "iteration", "index": 0, "record": {}}', None),
        ('{"time": "today", "kind": "iteration", "index": 0, "record": {}}', None),
        ('{"time": 1, "kind": ["iteration"], "index": 0, "record": {}}', None),
        ("[" * 100_000, None),
        ("\x00\x00", None),
    ],
)
def test_a_line_is_what_every_watcher_takes_for_granted_or_none(tmp_path: Path, text: str, left: Any) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text + '\n{"time": 2, "kind": "end", "outcome": "complete"}\n')
    *first, last = live.read(path)
    assert [line["record"] for line in first] == ([] if left is None else [left])
    assert last["kind"] == "end"


def test_a_line_without_end_is_passed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no record, however large, is held whole."""
    monkeypatch.setattr(live, "LONGEST", 100)
    path = tmp_path / "a.jsonl"
    path.write_text("x" * 950 + '\n{"time": 2, "kind": "end", "outcome": "complete"}\n')
    assert kinds(path) == ["end"]
    assert all(after - before <= 100 for (_, before), (_, after) in pairwise(live.follow(path, 0)))


def test_numbers_that_json_does_not_know_become_none(tmp_path: Path, heard: list[live.Line]) -> None:
    path = tmp_path / "a.jsonl"
    with live.telling(path, **KNOWN):
        live.emit("iteration", index=0, record={"kl": math.nan, "parts": [math.inf, 1.0]})
    for record in (live.read(path)[1]["record"], heard[1]["record"]):
        assert record == {"kl": None, "parts": [None, 1.0]}


@pytest.mark.parametrize("where", ["a file in the way/a.jsonl", "folder"])
def test_what_cannot_be_written_ends_nothing(
    tmp_path: Path, where: str, heard: list[live.Line], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a file in the way").write_text("")
    (tmp_path / "folder").mkdir()
    with live.telling(tmp_path / where, **KNOWN):
        live.emit("checkpoint", step=1)
    assert [line["kind"] for line in heard] == ["begin", "checkpoint", "end"]
    assert "live record: " in capsys.readouterr().err


def test_a_full_disk_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with live.telling(Path("/dev/full"), **KNOWN):
        live.emit("checkpoint", step=1)
    assert capsys.readouterr().err.count("live record: ") == 1


def test_progress_is_told_once_a_second_and_at_the_end(heard: list[live.Line]) -> None:
    with progress.bar("tasks", total=500) as advance:
        for number in range(500):
            advance(1, status=f"at {number}")
    told = [(line["label"], line["done"], line["total"]) for line in heard]
    assert told[-1] == ("tasks", 500, 500)
    assert len(told) < 20
    assert heard[-1]["status"] == "at 499"


def test_who_has_left_hears_nothing() -> None:
    lines: list[Any] = []
    end = live.subscribe(lines.append)
    end()
    end()
    live.emit("checkpoint", step=1)
    assert lines == []


def test_who_holds_a_lock_is_at_work_whether_on_a_piece_of_work_or_on_an_output(tmp_path: Path) -> None:
    assert live.at_work(tmp_path / "nowhere") == set()
    (tmp_path / "work").mkdir()
    names = ("policy-0123abcd", "reward_model", "tasks-4567", "tasks")
    locks = {name: (tmp_path / "work" / f"{name}.lock").open("w") for name in names}
    for name in ("policy-0123abcd", "reward_model"):
        fcntl.flock(locks[name], fcntl.LOCK_EX)
    assert live.at_work(tmp_path) == {"policy", "reward_model"}
    assert live.is_held(tmp_path / "live" / "policy-0123abcd.jsonl")
    assert not live.is_held(tmp_path / "live" / "tasks-4567.jsonl")
    for lock in locks.values():
        lock.close()
    assert live.at_work(tmp_path) == set()
