"""The endpoint: what is scraped, and what it must never do to a run."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.error import URLError

import pytest

from geartrain import live
from geartrain.errors import InfrastructureError, UserError
from geartrain.ranks import ALONE, Ranks
from geartrain.telemetry import MAX_SERIES
from geartrain.telemetry.endpoint import Endpoint, write_text
from geartrain.telemetry.readings import Readings
from geartrain.telemetry.serving import HOST, LINGER, PORT, exporting
from tests.fakes.lines import begin, end, iteration
from tests.fakes.scrape import fetch, parse

WHOLE = {
    "families": {"mail": {"episodes": 6, "success": 0.5}},
    "channels": {"verified": {"values": 8, "mean": 0.4, "spread": 0.1, "families": {"mail": 0.5}}},
    "scoring_failures": {"learned.too_long": 1, "n/a learned.tied": 1},
    "reference_failures": {"TimeoutError": 1},
    **dict.fromkeys(("reward", "kl", "entropy", "grain_step", "weight_min", "value_loss", "credit_later"), 0.5),
    "alarms": ["entropy: x"],
}


@pytest.fixture
def readings():
    readings = Readings()
    for line in (begin(), iteration(0, **WHOLE), {"kind": "queue", "time": 1.0, "seconds": 3.0}):
        readings.tell("policy", line)
    results = {"test_sampled_success_before": 0.3, "probe_successes": 0, "test_sampled_gain": 0.1}
    readings.tell("evaluation", begin(stage="evaluation"))
    readings.tell("evaluation", end(metrics=results))
    readings.tell("promotion", end(metrics={"promoted": 1, "check_gain_low": 1}))
    return readings


@pytest.fixture
def endpoint(readings):
    endpoint = Endpoint(readings)
    yield endpoint
    endpoint.close()


def test_a_scrape_is_what_the_readings_are(readings, endpoint):
    found = parse(fetch(endpoint.port))
    of_policy = (("stage", "policy"),)
    assert found["geartrain_train_iterations_total", of_policy] == 1
    assert found["geartrain_train_iteration_seconds_count", of_policy] == 1
    assert found["geartrain_train_iteration_seconds_bucket", (("le", "5.0"), *of_policy)] == 1
    assert found["geartrain_rollout_success_ratio", (("family", "mail"), *of_policy)] == 0.5
    assert found["process_resident_memory_bytes", ()] > 1e6
    own = [key for key in found if key[0].startswith("geartrain_")]
    assert found["geartrain_exporter_series", ()] == len(own) <= MAX_SERIES


def test_prometheus_finds_no_fault_with_it(endpoint):
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=fetch(endpoint.port), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_file_says_the_same(readings, endpoint, tmp_path):
    write_text(readings, tmp_path / "geartrain.prom")
    scraped, written = parse(fetch(endpoint.port)), parse((tmp_path / "geartrain.prom").read_text("utf-8"))
    assert {key for key in scraped if key[0].startswith("geartrain_")} == set(written)
    assert os.listdir(tmp_path) == ["geartrain.prom"]


def test_a_closed_port_can_be_used_again_at_once(readings):
    before = set(threading.enumerate())
    endpoint = Endpoint(readings)
    port = endpoint.port
    fetch(port)
    endpoint.close()
    with pytest.raises(URLError):
        fetch(port)
    again = Endpoint(readings, port=port)
    fetch(port)
    again.close()
    assert not [thread for thread in set(threading.enumerate()) - before if "serve_forever" in thread.name]


def test_closing_waits_for_one_more_scrape(readings):
    endpoint = Endpoint(readings)
    closing = threading.Thread(target=endpoint.close, kwargs={"linger": 30.0})
    started = time.monotonic()
    closing.start()
    seen = parse(fetch(endpoint.port))
    closing.join()
    assert seen
    assert time.monotonic() - started < 15.0
    endpoint = Endpoint(readings)
    started = time.monotonic()
    endpoint.close(linger=0.2)
    assert 0.2 <= time.monotonic() - started < 15.0


def test_who_connects_and_says_nothing_keeps_nobody(readings, monkeypatch):
    monkeypatch.setattr("geartrain.telemetry.endpoint._Handler.timeout", 0.3)
    endpoint = Endpoint(readings)
    with socket.create_connection(("127.0.0.1", endpoint.port)):
        fetch(endpoint.port)
        started = time.monotonic()
        endpoint.close()
    assert time.monotonic() - started < 15.0


def test_without_a_port_there_is_no_endpoint():
    with exporting("policy", ALONE, {}) as endpoint:
        assert endpoint is None
    assert live._listeners == []


def test_a_stage_is_told_of_while_it_runs(capsys):
    with exporting("policy", ALONE, {PORT: "0"}) as endpoint:
        live.emit("begin", **{k: v for k, v in begin().items() if k not in ("kind", "time")})
        found = parse(fetch(endpoint.port))
    assert found["geartrain_stage_running", (("stage", "policy"),)] == 1
    assert f":{endpoint.port}/metrics" in capsys.readouterr().err
    assert live._listeners == []
    with pytest.raises(URLError):
        fetch(endpoint.port)


def test_a_taken_port_is_said_and_the_stage_goes_on(endpoint, capsys):
    with exporting("policy", ALONE, {PORT: str(endpoint.port)}) as mine:
        assert mine is None
        live.emit("begin", parameters={})
    assert f"metrics: port {endpoint.port}: Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["9464.5", "-1", "70000", "metrics"])
def test_a_port_that_is_none_is_a_mistake(text):
    with pytest.raises(UserError, match=f"{PORT}={text}"), exporting("policy", ALONE, {PORT: text}):
        pass


def test_one_process_of_a_node_tells():
    class Second(Ranks):
        rank, size, local_rank = 1, 2, 1

    with exporting("policy", Second(), {PORT: "0"}) as endpoint:
        assert endpoint is None


@pytest.mark.parametrize(("error", "waits"), [(UserError("x"), True), (InfrastructureError("x"), False)])
def test_a_run_that_failed_for_good_waits_for_the_scrape_that_sees_it(error, waits):
    variables, seconds = {PORT: "0", LINGER: "0.4", HOST: "127.0.0.1"}, time.monotonic()
    with pytest.raises(type(error)), exporting("policy", ALONE, variables):
        raise error
    assert (time.monotonic() - seconds >= 0.4) is waits


STAGE = """
import sys, time
from geartrain import live
from geartrain.ranks import ALONE
from geartrain.telemetry.serving import exporting
with exporting("policy", ALONE) as endpoint:
    live.emit("begin", parameters={})
    print(endpoint.port, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_of_a_process_that_is_gone_nothing_is_left(killed):
    """No file that another process would go on to export, no port that somebody inherited."""
    variables = {**os.environ, PORT: "0", HOST: "127.0.0.1"}
    with subprocess.Popen(
        [sys.executable, "-c", STAGE], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        port = int(process.stdout.readline())
        assert parse(fetch(port))["geartrain_stage_running", (("stage", "policy"),)] == 1
        if killed:
            process.send_signal(signal.SIGKILL)
        else:
            process.stdin.close()
        process.wait()
    with pytest.raises(URLError):
        fetch(port)
