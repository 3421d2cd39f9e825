"""Metrics of a workspace from its live files, whose writers come, end, and are killed."""

import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest

from geartrain import live
from geartrain.telemetry.follower import Follower
from geartrain.telemetry.readings import Readings
from tests.fakes.lines import begin, end, iteration
from tests.fakes.scrape import fetch, parse


@pytest.fixture
def home(tmp_path):
    (tmp_path / live.FOLDER).mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path


def write(home, name, *lines, mode="a"):
    with (home / live.FOLDER / f"{name}.jsonl").open(mode) as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def held(home, name):
    lock = (home / "work" / f"{name}.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def value(readings, name, *labels):
    return {s.labels: s.value for s in readings.samples().get(f"geartrain_{name}", ())}.get(labels)


def test_nothing_there_is_nothing_told(tmp_path):
    readings = Readings()
    Follower(tmp_path, readings).look()
    assert {name for name, found in readings.samples().items() if found} == {
        f"geartrain_exporter_{name}" for name in ("lines_total", "errors_total", "series")
    }


def test_what_is_written_is_told_at_the_next_look_and_once(home):
    readings = Readings()
    follower = Follower(home, readings)
    with held(home, "policy-1"):
        write(home, "policy-1", begin(), iteration(0))
        follower.look()
        follower.look()
        assert value(readings, "train_iterations_total", "policy") == 1
        write(home, "policy-1", iteration(1))
        with (home / live.FOLDER / "policy-1.jsonl").open("a") as file:
            file.write('{"kind": "iteration", "ti')  # half a line
        follower.look()
        assert value(readings, "train_iterations_total", "policy") == 2
        assert value(readings, "stage_running", "policy") == 1


def test_a_file_that_cannot_be_read_is_counted_and_harms_no_other(home):
    (home / live.FOLDER / "collect-1.jsonl").mkdir()
    write(home, "tasks-1", begin(), end())
    readings = Readings()
    Follower(home, readings).look()
    assert value(readings, "stage_ends_total", "tasks", "complete") == 1
    assert value(readings, "exporter_errors_total") == 1


def test_a_killed_stage_stops_being_told_of(home):
    readings = Readings()
    follower = Follower(home, readings)
    with held(home, "policy-1"):
        write(home, "policy-1", begin(), iteration(0, kl=0.5))
        follower.look()
        assert value(readings, "train_kl_nats", "policy") == 0.5
    follower.look()
    follower.look()
    assert value(readings, "train_kl_nats", "policy") is None
    assert value(readings, "stage_running", "policy") == 0
    assert value(readings, "stage_ends_total", "policy", "killed") == 1
    with held(home, "policy-1"):
        write(home, "policy-1", begin(time=300.0))
        follower.look()
        assert value(readings, "stage_running", "policy") == 1
        assert value(readings, "train_iterations_total", "policy") == 1


def test_results_stay_and_the_newest_work_of_a_stage_is_the_stages(home):
    """Files are found in the order of their names, which is not that of their times."""
    write(home, "promotion-b", begin(time=10.0), end(time=11.0, metrics={"promoted": 0}))
    write(home, "promotion-a", begin(time=20.0), end(time=21.0, metrics={"promoted": 1}))
    readings = Readings()
    Follower(home, readings).look()
    assert value(readings, "gate_promoted", "promotion") == 1
    assert value(readings, "stage_last_success_timestamp_seconds", "promotion") == 21.0
    assert value(readings, "stage_ends_total", "promotion", "complete") == 2


def test_a_file_that_is_removed_is_no_fault(home):
    readings = Readings()
    follower = Follower(home, readings)
    with held(home, "policy-1"):
        write(home, "policy-1", begin())
        follower.look()
    (home / live.FOLDER / "policy-1.jsonl").unlink()
    (home / "work" / "policy-1.lock").unlink()
    follower.look()
    assert value(readings, "stage_running", "policy") == 0


WRITER = """
import fcntl, pathlib, sys
from geartrain import live
home = pathlib.Path(sys.argv[1])
lock = (home / "work" / "policy-1.lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
with live.telling(home / "live" / "policy-1.jsonl", parameters={}):
    live.emit("iteration", index=0, seconds={"play": 1.0}, tokens={}, record={"kl": 0.5})
    print("told", flush=True)
    sys.stdin.read()
"""


def test_the_command_follows_a_stage_until_it_is_killed(home):
    """Two processes that know nothing of each other; the one that trains is killed."""
    (home / ".geartrain").symlink_to(home)
    environment = {name: value for name, value in os.environ.items() if name != "GEARTRAIN_HOME"}
    command = [sys.executable, "-m", "geartrain", "exporter", "--dir", str(home), "--port", "0", "--every", "0.05"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, env=environment, **pipes) as exporter,
        subprocess.Popen([sys.executable, "-c", WRITER, str(home)], **pipes) as writer,
    ):
        try:
            port = int(exporter.stderr.readline().rpartition(":")[2].partition("/")[0])
            assert writer.stdout.readline() == "told\n"
            kl = "geartrain_train_kl_nats", (("stage", "policy"),)
            while parse(fetch(port)).get(kl) != 0.5:
                assert exporter.poll() is None
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            while kl in parse(fetch(port)):
                assert exporter.poll() is None
            exporter.send_signal(signal.SIGTERM)
            assert exporter.wait(30) == 0
        finally:
            exporter.kill()
            writer.kill()


def test_the_command_writes_a_file_once(home):
    (home / ".geartrain").symlink_to(home)
    write(home, "promotion-b", begin(time=10.0), end(time=11.0, metrics={"promoted": 1}))
    command = [sys.executable, "-m", "geartrain", "exporter", "--dir", str(home), "--textfile", str(home / "x.prom")]
    subprocess.run(command, check=True, capture_output=True)
    assert parse((home / "x.prom").read_text())["geartrain_gate_promoted", (("stage", "promotion"),)] == 1
