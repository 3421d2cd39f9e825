"""Conditions are a set; Failed beats Complete; what is unknown is passed over."""

import itertools
from typing import Any

import pytest

from geartrain.cluster.phase import Phase, finished, observe, timestamp

READY = [{"name": "node", "ready": 1, "succeeded": 0}]


def _condition(kind: str, status: str = "True", time: str = "2026-11-29T12:00:00Z") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": f"{kind}Reason", "message": "m", "lastTransitionTime": time}


def _job(*conditions: Any, jobs: Any = None, suspend: bool = False) -> dict[str, Any]:
    return {
        "metadata": {"name": "j", "uid": "u", "creationTimestamp": "2026-11-29T11:00:00Z"},
        "spec": {"suspend": suspend},
        "status": {"conditions": list(conditions), "jobsStatus": jobs},
    }


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ((), Phase.PENDING),
        ((_condition("Suspended"),), Phase.SUSPENDED),
        ((_condition("Suspended", "False"), _condition("Created")), Phase.PENDING),
        ((_condition("Complete"), _condition("Suspended", "False"), _condition("Novel")), Phase.COMPLETE),
        ((_condition("Failed"), _condition("Suspended", "False"), _condition("Novel")), Phase.FAILED),
        ((_condition("Failed"), _condition("Complete"), _condition("Suspended")), Phase.FAILED),
        ((_condition("Failed", "False"), _condition("Complete"), _condition("Novel")), Phase.COMPLETE),
        ((_condition("Failed", "Unknown"), _condition("Complete", "False"), _condition("Suspended")), Phase.SUSPENDED),
        ((_condition("Complete"), _condition("Suspended")), Phase.COMPLETE),
        (("no condition", {}, {"type": "Failed"}), Phase.PENDING),
    ],
)
def test_the_order_of_conditions_says_nothing(conditions: tuple[Any, ...], phase: Phase) -> None:
    for order in itertools.permutations(conditions):
        assert observe(_job(*order)).phase is phase


@pytest.mark.parametrize(
    ("jobs", "phase"),
    [
        (None, Phase.PENDING),
        ([], Phase.PENDING),
        (READY, Phase.RUNNING),
        ([{"name": "node", "ready": 0, "succeeded": 1}], Phase.RUNNING),
        ([{"name": "node", "active": 1, "ready": 0, "succeeded": 0}], Phase.PENDING),
        ([{"name": "dataset-initializer", "ready": 1, "succeeded": 0}], Phase.PENDING),
        ([{"name": "node", "ready": None}], Phase.PENDING),
    ],
)
def test_running_is_when_all_pods_of_the_training_are(jobs: Any, phase: Phase) -> None:
    assert observe(_job(jobs=jobs)).phase is phase


def test_a_job_that_kueue_has_just_suspended_is_suspended() -> None:
    assert observe(_job(jobs=READY, suspend=True)).phase is Phase.SUSPENDED
    assert observe(_job(_condition("Suspended"), jobs=READY)).phase is Phase.SUSPENDED


def test_the_deciding_condition_gives_the_reason() -> None:
    seen = observe(_job(_condition("Complete"), _condition("Failed")))
    assert (seen.reason, seen.message) == ("FailedReason", "m")


def test_since_is_the_last_suspension_or_resumption_else_the_creation() -> None:
    noon = timestamp("2026-11-29T12:00:00Z")
    assert observe(_job(_condition("Suspended"))).since == noon
    assert observe(_job(_condition("Suspended", "False"))).since == noon
    assert observe(_job()).since == timestamp("2026-11-29T11:00:00+00:00")


@pytest.mark.parametrize("text", [None, "", "yesterday", 7])
def test_a_time_that_is_none_is_none(text: object) -> None:
    assert timestamp(text) is None


def test_when_a_job_ended() -> None:
    assert finished(_job(_condition("Suspended"))) is None
    assert finished(_job(_condition("Failed", "False"))) is None
    assert finished(_job(_condition("Failed", time="soon"))) is None
    assert finished(_job(_condition("Complete", time="2026-11-29T13:00:00Z"))) == timestamp("2026-11-29T13:00:00Z")


@pytest.mark.parametrize("body", [{}, {"status": None}, {"status": {"conditions": "x", "jobsStatus": {}}}])
def test_a_job_without_status_is_pending(body: dict[str, Any]) -> None:
    assert observe(body).phase is Phase.PENDING


def test_a_suspension_that_has_no_condition_yet_has_no_time() -> None:
    assert observe(_job(_condition("Suspended", "False"), suspend=True)).since is None
