"""How a stage is, by its live record, its lock and what it left; how long it will take."""

import fcntl
import json
import time
from contextlib import contextmanager

import pytest

from geartrain import live
from geartrain.viewer.curves import thin
from geartrain.viewer.state import Watched, current
from geartrain.viewer.tail import Tail
from geartrain.viewer.workspaces import find_workspaces

LONG_AGO = time.time() - 1000.0


def _record(folder, *lines, stage="policy"):
    path = folder / ".geartrain" / live.FOLDER / f"{stage}-{'7a' * 8}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return path


def begin(at=LONG_AGO, **more):
    return {"time": at, "kind": "begin", "stage": "policy", "pid": 1, "parameters": {"policy": {}}, **more}


def progress(done, at, total=10, label="policy"):
    return {"time": at, "kind": "progress", "label": label, "done": done, "total": total, "status": None}


def end(outcome, at=LONG_AGO + 50, reason=None):
    return {"time": at, "kind": "end", "outcome": outcome, "reason": reason}


@contextmanager
def held(folder):
    lock = folder / ".geartrain" / "work" / f"policy-{'7a' * 8}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _state(folder):
    watched = Watched(folder)
    watched.refresh()
    (found,) = [stage for stage in watched.stages() if stage.name == "policy"]
    return found


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([], "waiting"),
        ([begin()], "killed"),
        ([begin(), end("failed", reason="no")], "failed"),
        ([begin(), end("interrupted")], "interrupted"),
        ([begin(), end("complete")], "waiting"),  # what it had made was taken away since
        ([begin(), end("failed"), begin(LONG_AGO + 60)], "killed"),
    ],
)
def test_the_state_by_the_record(lines, state, tmp_path):
    if lines:
        _record(tmp_path, *lines)
    assert _state(tmp_path).state == state


def test_a_record_of_just_now_is_of_a_stage_that_is_at_work_elsewhere(tmp_path):
    _record(tmp_path, begin(), progress(1, time.time() - live.FRESH_SECONDS / 5))
    assert _state(tmp_path).state == "running"


def test_a_stage_whose_lock_is_held_is_at_work_however_silent(tmp_path):
    _record(tmp_path, begin())
    with held(tmp_path):
        found = _state(tmp_path)
        assert found.state == "running"
        assert found.seconds == pytest.approx(time.time() - LONG_AGO, abs=60)
        with (tmp_path / ".geartrain/work" / f"policy-{'7a' * 8}.lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # looking took nothing from who holds it
    assert _state(tmp_path).state == "killed"


def test_what_was_published_after_the_record_is_done(tmp_path):
    _record(tmp_path, begin(), end("failed"))
    (tmp_path / "models/policy").mkdir(parents=True)
    (tmp_path / "models/policy/manifest.json").write_text("{}")
    assert _state(tmp_path).state == "done"


def test_attempts_are_added_up_and_the_time_between_them_is_not(tmp_path):
    path = _record(tmp_path, begin(), progress(2, LONG_AGO + 20), begin(LONG_AGO + 500), progress(4, LONG_AGO + 530))
    tail = Tail(path)
    tail.refresh()
    assert (tail.attempts, tail.seconds) == (2, 50.0)


def test_time_left_goes_by_the_pace_of_late_not_by_what_a_resumed_run_counts_at_once(tmp_path):
    replayed = [progress(done, LONG_AGO + 1 + done / 100) for done in (1, 2, 3)]
    path = _record(tmp_path, begin(), *replayed, *(progress(3 + n, LONG_AGO + 1 + 10 * n) for n in (1, 2, 3, 4)))
    tail = Tail(path)
    tail.refresh()
    assert tail.progress().left == pytest.approx(30.0, rel=0.01)


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ([progress(1, LONG_AGO + 10)], 90.0),
        ([progress(0, LONG_AGO + 10)], None),
        ([progress(10, LONG_AGO + 10)], None),
        ([progress(5, LONG_AGO + 10, total=None)], None),
    ],
)
def test_time_left_where_little_is_known(lines, left, tmp_path):
    tail = Tail(_record(tmp_path, begin(), *lines))
    tail.refresh()
    assert tail.progress().left == (None if left is None else pytest.approx(left))


def test_a_record_that_is_written_anew_is_read_anew(tmp_path):
    path = _record(tmp_path, begin(), *(progress(n, LONG_AGO + n) for n in range(5)))
    tail = Tail(path)
    tail.refresh()
    path.write_text("")
    _record(tmp_path, begin(LONG_AGO + 90))
    tail.refresh()
    assert (tail.attempts, tail.progress(), tail.began["time"]) == (1, None, LONG_AGO + 90)


def test_lines_that_are_none_harm_nothing(tmp_path):
    path = _record(tmp_path, begin(), {"time": 1, "kind": "iteration"}, {"time": 2, "kind": "progress", "done": "x"})
    with path.open("a") as file:
        file.write("[1]\nnull\n{\n")
    tail = Tail(path)
    tail.refresh()
    assert (tail.iterations, tail.progress()) == ({}, None)


def test_what_is_at_work_comes_before_what_failed(tmp_path):
    _record(tmp_path, begin(), end("failed"), stage="collect")
    _record(tmp_path, begin())
    with held(tmp_path):
        watched = Watched(tmp_path)
        watched.refresh()
        assert current(watched.stages()).name == "policy"


def test_workspaces_are_found_and_those_inside_artifacts_are_none(tmp_path):
    for place in (".", "runs/a", "runs/study/cells/analyst/seed-0/grpo", "runs/a/models/policy", "docs/x", "runs/.b"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "params.yaml").write_text("")
    (tmp_path / "runs/link").symlink_to(tmp_path / "runs/a")
    assert list(find_workspaces(tmp_path)) == [".", "runs/a", "runs/study/cells/analyst/seed-0/grpo"]
    assert list(find_workspaces(tmp_path / "runs")) == ["a", "study/cells/analyst/seed-0/grpo"]


def test_a_long_curve_is_thinned_and_keeps_its_spikes():
    xs = [float(x) for x in range(100_000)]
    ys = [0.0] * 100_000
    ys[31_415], ys[27_182] = 9.0, -9.0
    shown, values = thin(xs, ys)
    assert len(shown) <= 2100
    assert (31_415.0, 9.0) in zip(shown, values, strict=True)
    assert (27_182.0, -9.0) in zip(shown, values, strict=True)
    assert (shown[0], shown[-1]) == (0.0, 99_999.0)
    assert thin(xs[:7], ys[:7]) == (xs[:7], ys[:7])
