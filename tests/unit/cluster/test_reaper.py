"""What nobody waits for is deleted; what an active run may need never is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.cluster import naming
from geartrain.cluster.api import Kubernetes
from geartrain.cluster.interface import ForbiddenError, TroubleError
from geartrain.cluster.reaper import RunState, judge, reap
from geartrain.errors import InfrastructureError
from tests.fakes.kubernetes_server import JOBS, Fault, KubernetesServer, set_conditions

NOON = 1_795_953_600.0
HOUR = 3600.0
RUNNING = set_conditions(("Suspended", "False", "Resumed"), ready=1)
COMPLETE = set_conditions(("Complete", "True", ""))
FAILED = set_conditions(("Failed", "True", ""))


def _job(run: str | None, change: Any = RUNNING, *, leaving: bool = False) -> dict[str, Any]:
    labels = naming.labels(run or "x", "policy")
    if run is None:
        del labels[naming.RUN_LABEL]
    metadata: dict[str, Any] = {"name": f"policy-{run}", "uid": f"uid-{run}", "labels": labels}
    if leaving:
        metadata["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    body: dict[str, Any] = {"metadata": metadata, "spec": {}}
    change(body)
    return body


@pytest.mark.parametrize(
    ("run", "change", "state", "hours", "delete", "words"),
    [
        ("r", RUNNING, RunState.OVER, 0.0, True, "run r is over, the job Running"),
        ("r", RUNNING, RunState.GONE, 0.0, True, "run r is gone"),
        ("r", COMPLETE, RunState.OVER, 0.0, True, "the job Complete"),
        ("r", FAILED, RunState.GONE, 0.0, True, "the job Failed"),
        ("r", RUNNING, RunState.ACTIVE, 999.0, False, "run r is active"),
        ("r", COMPLETE, RunState.ACTIVE, 999.0, False, "run r is active"),
        ("r", FAILED, RunState.ACTIVE, 999.0, False, "run r is active"),
        ("r", COMPLETE, RunState.UNKNOWN, 25.0, True, "Complete for 1 d 1 h"),
        ("r", FAILED, RunState.UNKNOWN, 24.1, True, "Failed for 1 d"),
        ("r", FAILED, RunState.UNKNOWN, 23.9, False, "KFP does not say"),
        ("r", RUNNING, RunState.UNKNOWN, 999.0, False, "KFP does not say"),
        (None, COMPLETE, RunState.GONE, 999.0, False, "no label geartrain.dev/run"),
    ],
)
def test_each_case(run: Any, change: Any, state: RunState, hours: float, delete: bool, words: str) -> None:
    verdict = judge(_job(run, change), state, keep_hours=24, wall=NOON + hours * HOUR)
    assert verdict.delete is delete
    assert words in verdict.reason


def test_what_is_being_deleted_is_left_alone() -> None:
    verdict = judge(_job("r", leaving=True), RunState.GONE, keep_hours=0, wall=NOON)
    assert (verdict.delete, verdict.reason) == (False, "is being deleted already")


@settings(derandomize=True, database=None, max_examples=60, deadline=None)
@given(st.sampled_from([RUNNING, COMPLETE, FAILED]), st.floats(0, 1e9), st.floats(0, 1e6))
def test_a_job_of_an_active_run_is_never_deleted(change: Any, age: float, keep: float) -> None:
    assert not judge(_job("r", change), RunState.ACTIVE, keep_hours=keep, wall=NOON + age).delete


@pytest.fixture
def states() -> dict[str, Any]:
    return {
        "over": RunState.OVER,
        "active": RunState.ACTIVE,
        "gone": RunState.GONE,
        "dark": InfrastructureError("down"),
    }


@pytest.fixture
def lookup(states: dict[str, Any]) -> Any:
    def find(run: str) -> RunState:
        if isinstance(states[run], Exception):
            raise states[run]
        state: RunState = states[run]
        return state

    return find


@pytest.fixture
def filled(server: KubernetesServer) -> KubernetesServer:
    server.jobs = {body["metadata"]["name"]: body for body in map(_job, ["over", "active", "gone", "dark"])}
    foreign = {"metadata": {"name": "foreign", "uid": "f", "labels": {naming.RUN_LABEL: "over"}}, "spec": {}}
    server.jobs["foreign"] = foreign
    return server


def test_a_round_deletes_what_is_doomed_and_the_next_has_nothing_to_do(
    filled: KubernetesServer, cluster: Kubernetes, lookup: Any
) -> None:
    report = reap(cluster, lookup, keep_hours=24, wall=NOON)
    assert report.counts == {"seen": 4, "kept": 2, "doomed": 2, "deleted": 2, "failed": 0}
    assert set(filled.jobs) == {"policy-active", "policy-dark", "foreign"}
    again = reap(cluster, lookup, keep_hours=24, wall=NOON)
    assert again.counts == {"seen": 2, "kept": 2, "doomed": 0, "deleted": 0, "failed": 0}


def test_a_dry_run_lists_with_reasons_and_deletes_nothing(
    filled: KubernetesServer, cluster: Kubernetes, lookup: Any
) -> None:
    report = reap(cluster, lookup, keep_hours=24, wall=NOON, dry_run=True)
    assert [(verdict.name, verdict.delete, verdict.outcome) for verdict in report.verdicts] == [
        ("policy-active", False, ""),
        ("policy-dark", False, ""),
        ("policy-gone", True, ""),
        ("policy-over", True, ""),
    ]
    assert all(verdict.reason for verdict in report.verdicts)
    assert report.counts["deleted"] == 0
    assert {request.method for request in filled.requests} == {"GET"}


def test_a_run_that_is_retried_at_that_moment_keeps_its_job(filled: KubernetesServer, cluster: Kubernetes) -> None:
    answers = {"over": iter([RunState.OVER, RunState.ACTIVE])}
    report = reap(
        cluster, lambda run: next(answers[run]) if run in answers else RunState.ACTIVE, keep_hours=0, wall=NOON
    )
    assert report.counts["doomed"] == 0
    assert "policy-over" in filled.jobs


def test_trouble_with_one_deletion_stops_no_other(filled: KubernetesServer, cluster: Kubernetes, lookup: Any) -> None:
    filled.faults = [Fault(500, method="DELETE")]
    report = reap(cluster, lookup, keep_hours=24, wall=NOON)
    assert report.counts == {"seen": 4, "kept": 2, "doomed": 2, "deleted": 1, "failed": 1}
    assert "policy-gone" in filled.jobs
    assert "policy-over" not in filled.jobs


@pytest.mark.parametrize("status", [404, 409], ids=["gone", "another job by now"])
def test_what_somebody_else_deleted_is_no_failure(
    status: int, filled: KubernetesServer, cluster: Kubernetes, lookup: Any
) -> None:
    filled.faults = [Fault(status, method="DELETE", times=2, reason="Conflict")]
    report = reap(cluster, lookup, keep_hours=24, wall=NOON)
    assert (report.counts["deleted"], report.counts["failed"]) == (0, 0)
    assert [verdict.outcome for verdict in report.verdicts if verdict.delete] == ["gone already"] * 2


@pytest.mark.parametrize(("status", "error"), [(500, TroubleError), (403, ForbiddenError)])
def test_jobs_that_cannot_be_listed_end_the_round(
    status: int, error: type[Exception], filled: KubernetesServer, cluster: Kubernetes, lookup: Any
) -> None:
    filled.faults = [Fault(status, path=JOBS)]
    with pytest.raises(error):
        reap(cluster, lookup, keep_hours=24, wall=NOON)


def test_a_run_is_looked_up_once_for_all_its_jobs(server: KubernetesServer, cluster: Kubernetes) -> None:
    server.jobs = {f"policy-{n}": _job("active") | {"spec": {"n": n}} for n in range(3)}
    asked = []
    reap(cluster, lambda run: asked.append(run) or RunState.ACTIVE, keep_hours=0, wall=NOON)
    assert asked == ["active"]
