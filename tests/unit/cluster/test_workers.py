"""Workers of a node: small scripts in torchrun's place leave notes, die, or wait for SIGTERM."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from geartrain.cluster import workers
from geartrain.cluster.patience import Clock, until_terminated
from geartrain.cluster.worker import NOTES, Note, main, read_notes
from geartrain.cluster.workers import Ended, Nodes, read_nodes, run_workers, torchrun
from geartrain.errors import UserError

PET = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "2",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "policy-node-0-0.policy",
    "PET_MASTER_PORT": "29400",
}
SECOND = read_nodes(PET)
WRITE = """
import json, os, sys, time
from pathlib import Path
def note(rank, code, kind, reason):
    Path(os.environ["GEARTRAIN_WORKER_NOTES"], f"{rank}.json").write_text(
        json.dumps({"code": code, "kind": kind, "reason": reason}))
"""


def script(text):
    return [sys.executable, "-S", "-c", WRITE + text]


def run(text, folder, time, nodes=SECOND):
    return run_workers(script(text), os.environ, folder, nodes, time.clock())


def test_nodes_are_read_from_what_trainer_sets():
    assert Nodes(1, 2, 2, "policy-node-0-0.policy-29400") == SECOND
    assert list(SECOND.ranks) == [2, 3]
    assert read_nodes({}) == Nodes(meeting="alone-")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"PET_NNODES": "auto"}, "expected numbers"),
        ({"PET_NODE_RANK": "2"}, "nodes count from 0 to 1"),
        ({"PET_NODE_RANK": "-1"}, "nodes count from 0"),
        ({"PET_MASTER_ADDR": None}, "where to meet"),
    ],
)
def test_an_impossible_node_is_refused(change, reason):
    environment = {name: value for name, value in {**PET, **change}.items() if value is not None}
    with pytest.raises(UserError, match=reason):
        read_nodes(environment)


def test_success_is_success(tmp_path, time):
    assert run("", tmp_path, time) == Ended(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("note(3, 2, 'UserError', 'no val'); note(2, 1, 'RuntimeError', 'reset')", Ended(2, "rank 3: no val")),
        ("note(0, 2, 'UserError', 'elsewhere'); note(2, 1, 'RuntimeError', 'reset')", Ended(2, "rank 0: elsewhere")),
        (
            "note(2, 1, 'RuntimeError', 'reset'); note(3, 75, 'InfrastructureError', 'disk full')",
            Ended(75, "rank 3 ended with 75: InfrastructureError: disk full; "
                      "rank 2 ended with 1: RuntimeError: reset"),
        ),
        (
            "note(2, 1, 'RuntimeError', 'reset')",
            Ended(75, "rank 3 ended without a word (killed, or out of memory?); "
                      "rank 2 ended with 1: RuntimeError: reset"),
        ),
        (
            "note(2, 1, 'ValueError', 'a bug'); note(3, 75, 'PreemptedError', 'by torchrun, as it ends the others')",
            Ended(75, "rank 2 ended with 1: ValueError: a bug"),
        ),
    ],
)  # fmt: skip
def test_the_reason_is_that_of_who_knows_most(text, expected, tmp_path, time):
    assert run(text + "; sys.exit(1)", tmp_path, time) == expected


def test_the_notes_of_others_are_waited_for_and_not_for_long(tmp_path, time):
    """A peer's mistake shows here as a broken connection."""
    clock = time.clock()

    def sleep(seconds):
        clock.sleep(seconds)
        if len(time.pauses) == 5:
            (tmp_path / "0.json").write_text(json.dumps({"code": 2, "kind": "UserError", "reason": "late"}))

    command = script("note(2, 1, 'RuntimeError', 'reset'); sys.exit(1)")
    late = Clock(clock.monotonic, clock.wall, sleep, clock.stopping)
    assert run_workers(command, os.environ, tmp_path, SECOND, late) == Ended(2, "rank 0: late")
    (tmp_path / "0.json").unlink()
    time.pauses.clear()
    assert run_workers(command, os.environ, tmp_path, SECOND, clock).exit_code == 75
    assert sum(time.pauses) == pytest.approx(workers.OTHERS_SECONDS)


def test_notes_of_an_earlier_try_do_not_count(tmp_path, time):
    (tmp_path / "2.json").write_text(json.dumps({"code": 2, "kind": "UserError", "reason": "earlier"}))
    (tmp_path / "torn.json").write_text("{")
    assert run("sys.exit(1)", tmp_path, time, Nodes(1, 2, 2)).exit_code == 75


def test_sigterm_is_passed_on_and_the_end_is_waited_for(tmp_path):
    text = """
import signal
def told(*_):
    note(0, 75, 'PreemptedError', 'stopped by SIGTERM')
    sys.exit(1)
signal.signal(signal.SIGTERM, told)
Path(os.environ["GEARTRAIN_WORKER_NOTES"], "up").touch()
while True:
    time.sleep(0.05)
"""
    with until_terminated() as clock:
        killer = threading.Thread(target=_kill_when, args=(tmp_path / "up",))
        killer.start()
        ended = run_workers(script(text), os.environ, tmp_path, Nodes(), clock)
        killer.join()
    assert ended == Ended(75, "rank 0 ended with 75: PreemptedError: stopped by SIGTERM")


def test_who_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "GRACE_SECONDS", 0)
    monkeypatch.setattr(workers, "KILL_SECONDS", 0.1)
    text = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(os.environ["GEARTRAIN_WORKER_NOTES"], "up").touch()
while True:
    time.sleep(0.05)
"""
    with until_terminated() as clock:
        killer = threading.Thread(target=_kill_when, args=(tmp_path / "up",))
        killer.start()
        ended = run_workers(script(text), os.environ, tmp_path, Nodes(), clock)
        killer.join()
    assert ended == Ended(75, "rank 0 ended without a word (killed, or out of memory?)")


def test_workers_do_not_outlive_a_failure_of_ours(tmp_path, time):
    def broken():
        raise ZeroDivisionError

    clock = time.clock()
    text = "time.sleep(600)"
    with pytest.raises(ZeroDivisionError):
        run_workers(
            script(text), os.environ, tmp_path, Nodes(), Clock(clock.monotonic, clock.wall, clock.sleep, broken)
        )


def _kill_when(path):
    tick = threading.Event()
    while not path.exists():
        tick.wait(0.02)
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_grace_ends_before_that_of_the_pod(root):
    import yaml

    runtime = yaml.safe_load((root / "k8s/base/runtime.yaml").read_text())
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= workers.GRACE_SECONDS + workers.KILL_SECONDS + 5


def worker(tmp_path, *arguments):
    environment = {**os.environ, NOTES: str(tmp_path), "RANK": "7"}
    command = [sys.executable, "-m", "geartrain.cluster.worker", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    return done, read_notes(tmp_path)


def test_a_worker_notes_a_mistake_and_ends_with_its_code(tmp_path):
    done, notes = worker(tmp_path, "stage", "policies")
    assert done.returncode == 2
    assert notes == {7: Note(2, "UserError", "no stage 'policies'; did you mean 'policy'?")}
    assert "error: no stage 'policies'" in done.stderr


def test_a_worker_that_is_done_leaves_nothing(tmp_path):
    done, notes = worker(tmp_path, "envs")
    assert (done.returncode, notes) == (0, {})
    assert "analyst" in done.stdout


def test_a_bug_is_noted_with_its_traceback_on_stderr(tmp_path, monkeypatch, capsys):
    def bug(*_, **__):
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr("geartrain.cli.main", bug)
    monkeypatch.setenv(NOTES, str(tmp_path))
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert read_notes(tmp_path) == {0: Note(1, "ZeroDivisionError", "of nothing")}
    assert "Traceback" in capsys.readouterr().err


def test_torchrun_runs_workers_that_note_how_they_end(tmp_path, time):
    """The real one, once: it ends with 1, we know why."""
    ended = run_workers(torchrun(["stage", "policies"]), os.environ, tmp_path, Nodes(), time.clock())
    assert ended == Ended(2, "rank 0: no stage 'policies'; did you mean 'policy'?")
