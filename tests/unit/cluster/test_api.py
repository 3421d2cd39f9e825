"""The real client against a server: what it answers, and what each of its refusals means to us."""

import json
import time as real_time
from pathlib import Path
from typing import Any

import pytest

from geartrain.cluster import api, naming
from geartrain.cluster.api import Kubernetes
from geartrain.cluster.interface import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NoAnswerError,
    NotFoundError,
    ServerFaultError,
    ThrottledError,
    TroubleError,
)
from geartrain.cluster.trainjob import REMOVED, TrainingJob, manifest
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_USER, UserError
from tests.fakes.kubernetes_server import CORE, JOBS, Fault, KubernetesServer, event, pod

RBAC = (
    'trainjobs.trainer.kubeflow.org is forbidden: User "system:serviceaccount:geartrain:default" cannot create '
    'resource "trainjobs" in API group "trainer.kubeflow.org" in the namespace "geartrain"'
)


def test_create_get_find_delete(cluster: Kubernetes, server: KubernetesServer, job: TrainingJob) -> None:
    made = cluster.create(manifest(job))
    assert made["metadata"]["uid"] == "uid-1"
    assert cluster.get(job.name) == made
    assert cluster.find(naming.selector(run=job.run, stage="policy")) == [made]
    assert cluster.find(naming.selector(run="another")) == []
    cluster.delete(job.name, "uid-1")
    assert server.jobs == {}
    sent = server.requests[-1].body
    assert (sent["preconditions"], sent["propagationPolicy"]) == ({"uid": "uid-1"}, "Foreground")
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer sesame"}


@pytest.mark.parametrize("key", sorted(REMOVED))
def test_our_server_takes_no_field_that_a_real_one_would_drop(key: str, cluster: Kubernetes, job: TrainingJob) -> None:
    body = manifest(job)
    body["spec"][key] = []
    with pytest.raises(InvalidError, match=key):
        cluster.create(body)


def test_a_taken_name_a_missing_one_and_another_job(cluster: Kubernetes, job: TrainingJob) -> None:
    cluster.create(manifest(job))
    with pytest.raises(ConflictError, match="already exists"):
        cluster.create(manifest(job))
    with pytest.raises(ConflictError, match="Precondition"):
        cluster.delete(job.name, "uid-of-an-older-one")
    with pytest.raises(NotFoundError, match="nothing"):
        cluster.get("nothing")


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, InvalidError, EXIT_USER),
        (401, TroubleError, EXIT_INFRASTRUCTURE),
        (403, ForbiddenError, EXIT_USER),
        (404, NotFoundError, EXIT_USER),
        (409, ConflictError, EXIT_USER),
        (410, GoneError, EXIT_INFRASTRUCTURE),
        (422, InvalidError, EXIT_USER),
        (429, ThrottledError, EXIT_INFRASTRUCTURE),
        (500, ServerFaultError, EXIT_INFRASTRUCTURE),
        (503, ServerFaultError, EXIT_INFRASTRUCTURE),
        (504, ServerFaultError, EXIT_INFRASTRUCTURE),
        (418, InvalidError, EXIT_USER),
    ],
)
@pytest.mark.parametrize("body", [None, b"<html>oops</html>", b"[]", b""], ids=["status", "html", "list", "empty"])
def test_every_refusal_is_an_error_of_ours(
    status: int, kind: type[Exception], code: int, body: bytes | None, cluster: Kubernetes, server: KubernetesServer
) -> None:
    server.faults.append(Fault(status, body))
    with pytest.raises(kind) as caught:
        cluster.get("x")
    assert type(caught.value) is kind
    assert caught.value.exit_code == code
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_handed_on_and_not_slept_on(status: int, cluster: Kubernetes, server: KubernetesServer) -> None:
    # urllib3 repeats such requests by itself, and sleeps: budgets and SIGTERM could not reach it there
    server.faults.append(Fault(status, headers={"Retry-After": "30"}, times=9))
    before = real_time.monotonic()
    with pytest.raises(TroubleError) as caught:
        cluster.get("x")
    assert caught.value.retry_after == 30
    assert len(server.requests) == 1
    assert real_time.monotonic() - before < 20


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("0", 0.0), ("86400", 300.0), ("soon", None), ("-1", None), ("", None)]
)
def test_a_strange_retry_after_cannot_stall_us(
    text: str, seconds: float | None, cluster: Kubernetes, server: KubernetesServer
) -> None:
    server.faults.append(Fault(429, headers={"Retry-After": text}))
    with pytest.raises(ThrottledError) as caught:
        cluster.get("x")
    assert caught.value.retry_after == seconds


def test_a_missing_permission_is_named_with_the_role_that_grants_it(
    cluster: Kubernetes, server: KubernetesServer, job: TrainingJob
) -> None:
    server.faults.append(Fault(403, message=RBAC))
    with pytest.raises(ForbiddenError) as caught:
        cluster.create(manifest(job))
    words = (
        "system:serviceaccount:geartrain:default may not create trainjobs.trainer.kubeflow.org in namespace geartrain"
    )
    assert words in str(caught.value)
    assert "Role geartrain-pipeline grants it" in str(caught.value)


def test_the_reapers_role_is_named_too(cluster: Kubernetes, server: KubernetesServer) -> None:
    server.faults.append(Fault(403, message=RBAC.replace("create", "list")))
    with pytest.raises(ForbiddenError, match="geartrain-reaper"):
        cluster.find("a=b")


def test_a_policy_is_not_taken_for_a_missing_permission(cluster: Kubernetes, server: KubernetesServer) -> None:
    server.faults.append(Fault(403, message="exceeded quota: compute, requested: pods=3"))
    with pytest.raises(ForbiddenError, match=r"exceeded quota.*policy") as caught:
        cluster.get("x")
    assert "Role" not in str(caught.value)


def test_a_quota_that_was_updated_meanwhile_is_no_taken_name(
    cluster: Kubernetes, server: KubernetesServer, job: TrainingJob
) -> None:
    server.faults.append(Fault(409, reason="Conflict", message="Operation cannot be fulfilled on resourcequotas"))
    with pytest.raises(TroubleError):
        cluster.create(manifest(job))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b'"text"', b"null", b"{}", b'{"metadata": {"name": "x"}}', b"\xff"]
)
def test_an_answer_that_is_no_trainjob_is_trouble(body: bytes, cluster: Kubernetes, server: KubernetesServer) -> None:
    server.faults.append(Fault(200, body))
    with pytest.raises(ServerFaultError):
        cluster.get("x")


def test_a_slow_server_is_given_up_once(cluster: Kubernetes, server: KubernetesServer) -> None:
    server.faults.append(Fault(200, hangs=True, times=9))
    impatient = Kubernetes(cluster._api, cluster.namespace, read_seconds=0.1)
    before = real_time.monotonic()
    with pytest.raises(NoAnswerError, match="no answer"):
        impatient.get("x")
    assert len(server.requests) == 1  # urllib3 would ask four times
    assert real_time.monotonic() - before < 8  # the server would hang for ten seconds


def test_a_server_that_is_not_there(cluster: Kubernetes, server: KubernetesServer) -> None:
    server._server.server_close()
    server._server.shutdown()
    with pytest.raises(NoAnswerError):
        cluster.get("x")


def test_lists_are_read_to_the_end(cluster: Kubernetes, server: KubernetesServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(api, "PAGE", 2)
    server.jobs = {str(n): {"metadata": {"name": str(n), "uid": str(n), "labels": {"a": "b"}}} for n in range(5)}
    assert [body["metadata"]["name"] for body in cluster.find("a=b")] == list("01234")
    assert [request.query.get("continue") for request in server.requests] == [None, "2", "4"]


def test_a_list_that_expires_half_way_is_begun_anew(
    cluster: Kubernetes, server: KubernetesServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(api, "PAGE", 2)
    server.jobs = {str(n): {"metadata": {"name": str(n), "uid": str(n), "labels": {"a": "b"}}} for n in range(3)}
    first = server._answer

    def expire_once(request: Any) -> Any:
        if "continue" in request.query and not server.faults:
            server.faults.append(Fault(410, times=0))
            return 410, {"reason": "Expired", "message": "too old"}, {}
        return first(request)

    monkeypatch.setattr(server, "_answer", expire_once)
    assert len(cluster.find("a=b")) == 3
    assert [request.query.get("continue") for request in server.requests] == [None, "2", None, "2"]


def test_a_list_that_always_expires_is_trouble(cluster: Kubernetes, server: KubernetesServer) -> None:
    server.faults.append(Fault(410, times=99))
    with pytest.raises(GoneError):
        cluster.find("a=b")
    assert len(server.requests) == 3


def test_pods_of_a_job_the_newest_of_each_rank(cluster: Kubernetes, server: KubernetesServer) -> None:
    server.pods = [
        pod("policy", 1, {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
        pod("policy", 0, {"terminated": {"exitCode": 2, "message": "no such file\n"}}, created="2026-11-29T12:30:00Z"),
        pod("policy", 0, {"terminated": {"exitCode": 1}}),
        pod("other", 0, {"running": {}}),
    ]
    states = cluster.pods("policy")
    assert [(state.rank, state.exit_code, state.reason, state.message) for state in states] == [
        (0, 2, "", "no such file"),
        (1, 137, "OOMKilled", ""),
    ]


def test_why_a_pod_does_not_run(cluster: Kubernetes, server: KubernetesServer) -> None:
    waiting = pod("policy", 0, {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})
    unscheduled = pod("policy", 1, {})
    unscheduled["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/5 nodes"}],
    }
    evicted = pod("policy", 2, {})
    evicted["status"] = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    server.pods = [waiting, unscheduled, evicted, {"metadata": {"labels": waiting["metadata"]["labels"]}}]
    reasons = {state.rank: state.reason for state in cluster.pods("policy")}
    assert (reasons[1], reasons[2]) == ("Unschedulable", "Evicted")
    server.pods = [waiting]
    assert cluster.pods("policy")[0].reason == "ImagePullBackOff"


def test_the_log_is_the_end_of_rank_0s_as_it_is(cluster: Kubernetes, server: KubernetesServer) -> None:
    server.pods = [pod("policy", 0, {"running": {}}), pod("policy", 1, {"running": {}})]
    server.logs = {"policy-node-0-0": b"1\n2\n\xff\n", "policy-node-0-1": b"wrong"}
    assert cluster.log_tail("policy", 2) == "2\n�\n"
    assert server.requests[-1].path == f"{CORE}/pods/policy-node-0-0/log"
    assert server.requests[-1].query["container"] == "node"
    # a log of one JSON line is not to become the repr of a dict
    server.logs["policy-node-0-0"] = json.dumps({"loss": 0.5}).encode()
    assert cluster.log_tail("policy", 2) == '{"loss": 0.5}'
    server.logs["policy-node-0-0"] = b"x" * 100_000
    assert len(cluster.log_tail("policy", 2)) == 64 * 1024


def test_no_pod_no_log(cluster: Kubernetes) -> None:
    with pytest.raises(NotFoundError, match="rank 0"):
        cluster.log_tail("policy", 2)


def test_events_of_the_job_and_of_its_workload_oldest_first(cluster: Kubernetes, server: KubernetesServer) -> None:
    server.events = [
        event("Workload", "trainjob-policy-1f2e3", "Pending", "later", "2026-11-29T13:00:00Z"),
        event("TrainJob", "policy", "CreatedWorkload", "first", "2026-11-29T12:00:00Z"),
        event("Workload", "trainjob-policy-2-1f2e3", "Pending", "of another job"),
        event("Workload", "trainjob-policy-2", "Pending", "of no job"),
        event("Pod", "policy", "Pulled", "of a pod"),
        {"involvedObject": {"kind": "TrainJob", "name": "policy"}, "metadata": {}, "eventTime": None},
    ]
    assert [said.message for said in cluster.events("policy")] == ["", "first", "later"]


def test_names_cannot_leave_their_path(cluster: Kubernetes, server: KubernetesServer) -> None:
    with pytest.raises(NotFoundError):
        cluster.get("../pods?x=1")
    assert server.requests[-1].path == f"{JOBS}/../pods?x=1"  # as one quoted part


@pytest.mark.parametrize("text", ["", "{}", "a: [", "contexts: []\n"])
def test_a_useless_kubeconfig_says_what_to_do(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(UserError, match="KUBECONFIG"):
        api.connect(kubeconfig=str(path))


def test_the_namespace_is_the_given_one_else_that_of_the_context(
    server: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
    assert api.connect(kubeconfig=path).namespace == "geartrain"
    assert api.connect("team-a", kubeconfig=path, context="fake").namespace == "team-a"
    with pytest.raises(UserError, match="absent"):
        api.connect(kubeconfig=path, context="absent")


def test_inside_a_pod_its_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import incluster_config

    token, ca, namespace = tmp_path / "token", tmp_path / "ca.crt", tmp_path / "namespace"
    for path, text in ((token, "sesame"), (ca, "certificate"), (namespace, "team-b\n")):
        path.write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))
    monkeypatch.setattr(api, "_TOKEN_NAMESPACE", namespace)
    made = {}
    monkeypatch.setattr(api.client, "ApiClient", lambda settings: made.setdefault("settings", settings))
    assert api.connect().namespace == "team-b"
    assert made["settings"].host == "https://10.0.0.1:443"
    assert made["settings"].retries is False
