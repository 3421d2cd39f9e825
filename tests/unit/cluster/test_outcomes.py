"""What an exporter beside the cluster tells: ends of tasks whose pods are gone, and how long jobs queue."""

import math
from typing import Any

import pytest

from geartrain.cluster import decoding, naming
from geartrain.cluster.outcomes import Outcomes, ends, queued
from geartrain.cluster.phase import timestamp
from geartrain.cluster.records import Run
from geartrain.errors import InfrastructureError
from geartrain.telemetry.readings import Readings
from tests.fakes.kubernetes_server import set_conditions
from tests.fakes.nodes import nodes

NOON = 1_795_953_600.0


def run(name: str, state: str, *tasks: Any) -> Run:
    details = {"task_details": nodes(*tasks)[0]}
    return decoding.run({"run_id": name, "display_name": name, "state": state, "run_details": details})


class Server:
    def __init__(self, *runs: Run) -> None:
        self.runs, self.asked, self.down = list(runs), [], False

    def list_runs(self):
        if self.down:
            raise InfrastructureError("no answer")
        yield from self.runs

    def run(self, run_id: str) -> Run:
        self.asked.append(run_id)
        return next(one for one in self.runs if one.id == run_id)


class Jobs:
    def __init__(self, *bodies: Any) -> None:
        self.bodies = list(bodies)

    def find(self, selector: str) -> list[Any]:
        assert selector == naming.selector()
        return self.bodies


def job(stage: str, *conditions: Any, created: str = "2026-11-29T12:00:00Z") -> dict[str, Any]:
    body: dict[str, Any] = {"metadata": {"labels": naming.labels("r", stage), "creationTimestamp": created}, "spec": {}}
    if conditions:
        set_conditions(*conditions)(body)
    return body


def value(readings: Readings, name: str, *labels: str) -> float | None:
    found = {s.labels: s.value for s in readings.samples().get(f"geartrain_{name}", ())}
    return found.get(labels)


def test_tasks_that_have_ended_are_told_of_with_their_time_and_only_stages_are() -> None:
    tasks = [("resolve", 1, ("SUCCEEDED",)), ("reward-model", 5, ("FAILED", "SUCCEEDED")), ("policy", 20, ("RUNNING",))]
    ((stage, line),) = ends(run("r", "RUNNING", *tasks))
    assert (stage, line["outcome"]) == ("reward_model", "complete")
    assert line["seconds"] > 0


def test_each_end_is_told_once_and_what_is_over_is_not_asked_for_again() -> None:
    old = run("old", "SUCCEEDED", ("promotion", 1, ("SUCCEEDED",)))
    new = run("new", "RUNNING", ("tasks", 30, ("SUCCEEDED",)), ("policy", 40, ("RUNNING",)))
    server, readings = Server(new, old), Readings()
    outcomes = Outcomes(server, Jobs(), readings)
    outcomes.look()
    last = value(readings, "stage_last_success_timestamp_seconds", "promotion")
    assert last is not None
    assert last < (value(readings, "stage_last_success_timestamp_seconds", "tasks") or 0.0)
    assert (value(readings, "stage_duration_seconds", "tasks") or 0.0) > 0
    assert value(readings, "stage_running", "policy") is None, "who runs tells of itself"
    server.runs[0] = run("new", "FAILED", ("tasks", 30, ("SUCCEEDED",)), ("policy", 40, ("FAILED",)))
    outcomes.look()
    outcomes.look()
    assert server.asked == ["new", "old", "new"]
    assert value(readings, "stage_ends_total", "tasks", "complete") == 1
    assert value(readings, "stage_ends_total", "policy", "failed") == 1
    assert value(readings, "stage_last_failure_timestamp_seconds", "policy") is not None
    assert value(readings, "stage_failures_total", "policy", "bug") is None, "nobody knows whose it was"


def test_what_was_last_complete_stays_through_a_later_failure() -> None:
    runs = [run("b", "FAILED", ("promotion", 90, ("FAILED",))), run("a", "SUCCEEDED", ("promotion", 1, ("SUCCEEDED",)))]
    readings = Readings()
    Outcomes(Server(*runs), Jobs(), readings).look()
    good = value(readings, "stage_last_success_timestamp_seconds", "promotion")
    bad = value(readings, "stage_last_failure_timestamp_seconds", "promotion")
    assert good is not None
    assert bad is not None
    assert good < bad


@pytest.mark.parametrize(
    ("conditions", "seconds"),
    [
        ((("Suspended", "True", "Suspended"),), 600.0),
        ((("Suspended", "False", "Resumed"),), None),
        ((("Complete", "True", ""),), None),
        ((), None),
    ],
)
def test_a_job_queues_while_it_is_suspended(conditions: Any, seconds: float | None) -> None:
    body = job("policy", *conditions)
    since = next((c.get("lastTransitionTime") for c in (body.get("status") or {}).get("conditions", ())), None)
    now = (timestamp(since) or NOON) + 600.0
    assert queued([body, job("elsewhere")], now) == ({} if seconds is None else {"policy": pytest.approx(seconds)})


def test_the_queue_is_told_of_while_there_is_one_and_is_no_sign_of_life() -> None:
    readings, jobs = Readings(), Jobs(job("policy", ("Suspended", "True", "Suspended")))
    outcomes = Outcomes(Server(), jobs, readings)
    outcomes.look()
    waited = value(readings, "job_queue_seconds", "policy")
    assert waited is not None
    assert math.isfinite(waited)
    assert waited > 0
    assert value(readings, "stage_last_progress_timestamp_seconds", "policy") is None, "or it would be called stalled"
    jobs.bodies = []
    outcomes.look()
    assert value(readings, "job_queue_seconds", "policy") is None


def test_a_server_that_does_not_answer_is_said_once_and_nothing_known_is_lost() -> None:
    said: list[str] = []
    server, readings = Server(run("a", "SUCCEEDED", ("tasks", 1, ("SUCCEEDED",)))), Readings()
    outcomes = Outcomes(server, Jobs(), readings, say=said.append)
    outcomes.look()
    server.down = True
    outcomes.look()
    outcomes.look()
    assert value(readings, "stage_ends_total", "tasks", "complete") == 1
    assert readings.samples()["geartrain_exporter_errors_total"][0].value == 2
    server.down = False
    outcomes.look()
    assert len(said) == 2
