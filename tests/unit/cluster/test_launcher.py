"""The launcher and the real client against a server: every end a job can come to, and trouble on the way."""

import json
import re
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from geartrain.cluster.trainjob import Resources, TrainingJob, manifest
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_USER, InfrastructureError, UserError
from tests.fakes.bench import COMPLETE, FAILED, PENDING, RUNNING, SUSPENDED, WATCH, Bench
from tests.fakes.kubernetes_server import JOBS, Fault, pod, set_conditions


def test_a_job_queues_starts_runs_and_completes(bench: Bench) -> None:
    kept: dict[str, Any] = {}
    bench.play(SUSPENDED, SUSPENDED, PENDING, RUNNING, RUNNING, COMPLETE)
    bench.server.pods = [pod(bench.job.name, 0, {"terminated": {"exitCode": 0}})]
    bench.server.logs = {f"{bench.job.name}-node-0-0": b"step 1\nstep 2\n"}
    outcome = bench.launch(record=kept.__setitem__)
    assert (outcome.exit_code, outcome.phase, outcome.name) == (0, "Complete", bench.job.name)
    assert (outcome.attempt, outcome.adopted, outcome.suspends) == (1, False, 0)  # to queue is no preemption
    assert outcome.log == "step 1\nstep 2\n"
    assert (outcome.queued_seconds, outcome.pending_seconds, outcome.running_seconds) == (45, 15, 30)
    assert [line.rsplit(" ", 1)[1] for line in bench.said[1:4]] == ["Pending", "Running", "Complete"]
    assert kept["trainjob.json"] == manifest(bench.job)
    status = kept["status.json"]
    assert status["outcome"]["exit_code"] == 0
    assert [condition["type"] for condition in status["status"]["conditions"]] == ["Suspended", "Complete"]


def test_a_job_whose_end_cannot_be_recorded_has_ended_all_the_same(bench: Bench) -> None:
    def record(name: str, _: object) -> None:
        if name == "status.json":
            raise InfrastructureError("the bucket is full")

    bench.play(RUNNING, COMPLETE)
    assert bench.launch(record=record).exit_code == 0
    assert "policy: no record of how the job ended (the bucket is full)" in bench.said


def test_a_job_that_cannot_be_recorded_is_left_to_the_next_launcher(bench: Bench) -> None:
    def record(*_: object) -> None:
        raise InfrastructureError("the bucket is full")

    bench.play(RUNNING, COMPLETE)
    outcome = bench.launch(record=record)
    assert (outcome.exit_code, outcome.name) == (EXIT_INFRASTRUCTURE, bench.job.name)
    assert "the bucket is full. TrainJob" in outcome.reason
    bench.play(COMPLETE)
    assert bench.launch().adopted


def test_rank_0s_log_is_asked_for_once(bench: Bench) -> None:
    bench.play(RUNNING, RUNNING, COMPLETE)
    bench.server.pods = [pod(bench.job.name, 0, {"running": {}})]
    bench.server.logs = {f"{bench.job.name}-node-0-0": b"x"}
    bench.launch()
    assert sum(asked.path.endswith("/log") for asked in bench.server.requests) == 1


@pytest.mark.parametrize(
    ("end", "pods", "code", "words"),
    [
        (FAILED, [(0, {"exitCode": 2, "message": "params.yaml: no key"})], EXIT_USER, "exited with 2.*params.yaml"),
        (FAILED, [(0, {"exitCode": 0}), (1, {"exitCode": 2})], EXIT_USER, r"rank 1\) exited with 2"),
        (FAILED, [(0, {"exitCode": 75})], EXIT_INFRASTRUCTURE, "exited with 75"),
        (FAILED, [(0, {"exitCode": 137, "reason": "OOMKilled"})], EXIT_INFRASTRUCTURE, "OOMKilled"),
        (FAILED, [(0, {"exitCode": 1, "reason": "Error"})], EXIT_INFRASTRUCTURE, "JobsFailed.*exited with 1"),
        (FAILED, [], EXIT_INFRASTRUCTURE, "JobsFailed: Failed it is"),
        (set_conditions(("Failed", "True", "DeadlineExceeded")), [], EXIT_INFRASTRUCTURE, "DeadlineExceeded"),
        (set_conditions(("Failed", "True", "TrainingRuntimeNotSupported")), [], EXIT_USER, "RuntimeNotSupported"),
        (set_conditions(("Complete", "True", ""), ("Failed", "True", "X")), [], EXIT_INFRASTRUCTURE, "failed: X"),
        (set_conditions(("Failed", "True", "X"), ("Complete", "True", "")), [], EXIT_INFRASTRUCTURE, "failed: X"),
    ],
)
def test_a_failed_job_is_never_green(
    end: Any, pods: list[tuple[int, dict[str, Any]]], code: int, words: str, bench: Bench
) -> None:
    bench.play(RUNNING, end)
    bench.server.pods = [pod(bench.job.name, rank, {"terminated": state}) for rank, state in pods]
    bench.server.logs = {f"{bench.job.name}-node-0-0": b"Traceback\n"}
    outcome = bench.launch()
    assert (outcome.exit_code, outcome.phase) == (code, "Failed")
    assert re.search(words, outcome.reason), outcome.reason
    assert outcome.log == ("Traceback\n" if pods else outcome.log)


def test_pods_that_cannot_be_read_do_not_hide_the_failure(bench: Bench) -> None:
    bench.play(FAILED)
    bench.server.faults.append(Fault(403, path="/pods", times=99, message="no"))
    outcome = bench.launch()
    assert outcome.exit_code == EXIT_INFRASTRUCTURE
    assert "no log of rank 0" in outcome.log


def test_a_complete_job_whose_output_is_not_whole_is_not_green_and_the_next_launcher_tries_again(bench: Bench) -> None:
    def broken() -> None:
        raise UserError("manifest.json: policy.safetensors has another digest")

    bench.play(COMPLETE)
    outcome = bench.launch(verify=broken)
    assert (outcome.exit_code, outcome.phase) == (EXIT_INFRASTRUCTURE, "Complete")
    assert "another digest" in outcome.reason
    second = bench.name_of(2)
    bench.play(COMPLETE, name=second)
    verdicts = deque([UserError("not whole"), None])
    assert bench.launch(verify=lambda: _raise(verdicts.popleft())).exit_code == 0
    assert bench.created() == [bench.job.name, second]


def test_a_store_that_cannot_be_read_now_is_asked_again(bench: Bench) -> None:
    bench.play(COMPLETE)
    answers = deque([InfrastructureError("S3 is slow"), InfrastructureError("S3 is slow"), None])
    assert bench.launch(verify=lambda: _raise(answers.popleft())).exit_code == 0
    outcome = bench.launch(verify=lambda: _raise(InfrastructureError("S3 is down")))
    assert outcome.exit_code == EXIT_INFRASTRUCTURE
    assert "S3 is down" in outcome.reason
    assert bench.created() == [bench.job.name]


def test_an_earlier_launchers_job_is_adopted(bench: Bench) -> None:
    bench.put(bench.job, RUNNING)
    bench.play(RUNNING, COMPLETE)
    outcome = bench.launch()
    assert (outcome.exit_code, outcome.adopted) == (0, True)
    assert bench.created() == []


def test_one_that_completed_meanwhile_is_adopted_and_not_trained_again(bench: Bench) -> None:
    bench.put(bench.job, COMPLETE)
    assert bench.launch().exit_code == 0
    assert bench.created() == []


def test_whoever_comes_second_gets_409_reads_and_adopts(bench: Bench) -> None:
    bench.server.faults.append(Fault(200, json.dumps({"items": []}).encode(), path="trainjobs", method="GET"))
    bench.put(bench.job, RUNNING)
    bench.play(RUNNING, COMPLETE)
    outcome = bench.launch()
    assert (outcome.exit_code, outcome.adopted) == (0, True)
    assert bench.created() == [bench.job.name]
    assert len(bench.server.jobs) == 1


@pytest.mark.parametrize("hidden", [False, True], ids=["listed", "found by 409"])
@pytest.mark.parametrize("same", [True, False], ids=["failed", "of another spec"])
def test_a_job_that_failed_or_is_another_makes_a_new_attempt(
    hidden: bool, same: bool, bench: Bench, make_job: Callable[..., TrainingJob]
) -> None:
    if hidden:
        bench.server.faults.append(Fault(200, b'{"items": []}', path="trainjobs", method="GET"))
    other = make_job() if same else make_job(nodes=4, resources=Resources())
    bench.put(other, FAILED if same else RUNNING)
    bench.play(RUNNING, COMPLETE, name=bench.name_of(2))
    outcome = bench.launch()
    assert (outcome.exit_code, outcome.attempt, outcome.adopted) == (0, 2, False)
    assert outcome.name == bench.name_of(2)
    assert bench.server.jobs[bench.job.name]["spec"]["trainer"]["numNodes"] == other.nodes
    assert bench.deleted() == []


def test_a_reaped_attempt_is_not_created_beside_a_later_one(bench: Bench, make_job: Callable[..., TrainingJob]) -> None:
    bench.put(make_job(attempt=2), RUNNING)
    bench.play(RUNNING, COMPLETE, name=bench.name_of(2))
    assert bench.launch().attempt == 2
    assert bench.created() == []


def test_a_job_on_its_way_out_is_waited_for(bench: Bench) -> None:
    leaving = bench.put(bench.job, RUNNING)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    outcome = bench.launch()
    assert outcome.exit_code == EXIT_INFRASTRUCTURE
    assert "is being deleted" in outcome.reason
    assert bench.created() == []
    assert len(bench.time.pauses) == WATCH.errors


@pytest.mark.parametrize("status", [500, 503, 429])
def test_bursts_of_trouble_are_borne(status: int, bench: Bench) -> None:
    one = f"{JOBS}/{bench.job.name}"
    bench.server.faults = [Fault(status, path=JOBS, method="GET", times=2), Fault(status, path=JOBS, method="POST")]

    def burst(_: object) -> None:
        bench.server.faults.append(Fault(status, path=one, times=3))

    bench.play(RUNNING, burst, RUNNING, burst, burst, COMPLETE)  # each as long as is borne: a success starts anew
    assert bench.launch().exit_code == 0
    assert bench.created()[-1] == bench.job.name
    assert len(bench.server.jobs) == 1


def test_trouble_that_lasts_ends_the_launcher_and_leaves_the_job(bench: Bench) -> None:
    bench.play(RUNNING, lambda _: bench.server.faults.append(Fault(500, path=JOBS, times=99)))
    outcome = bench.launch()
    assert outcome.exit_code == EXIT_INFRASTRUCTURE
    assert "4 failures in a row" in outcome.reason
    assert "left to go on" in outcome.reason
    assert bench.deleted() == []


def test_pauses_grow_and_keep_what_the_server_asks_for(bench: Bench) -> None:
    bench.server.faults = [
        Fault(500, path=JOBS),
        Fault(429, path=JOBS, headers={"Retry-After": "100"}),
        Fault(500, path=JOBS),
    ]
    bench.play(COMPLETE)
    bench.launch()
    assert bench.time.pauses == [15, 100, 60, 15]


def test_a_create_whose_answer_is_lost_is_not_repeated(bench: Bench) -> None:
    bench.server.faults = [Fault(504, path=JOBS, method="POST", after=True)]
    bench.play(RUNNING, COMPLETE)
    outcome = bench.launch()
    assert (outcome.exit_code, outcome.adopted) == (0, True)
    assert bench.created() == [bench.job.name]


def test_a_slow_server_and_garbage_are_trouble_like_any_other(bench: Bench) -> None:
    bench.cluster._timeout = (5.0, 0.1)
    bench.server.faults = [Fault(200, path=JOBS, hangs=True), Fault(200, b"{", path=JOBS), Fault(410, path=JOBS)]
    bench.play(RUNNING, COMPLETE)
    assert bench.launch().exit_code == 0


def test_a_missing_permission_is_for_a_person(bench: Bench) -> None:
    denied = 'User "x" cannot create resource "trainjobs" in API group "trainer.kubeflow.org"'
    bench.server.faults = [Fault(403, path=JOBS, method="POST", message=denied)]
    outcome = bench.launch()
    assert (outcome.exit_code, outcome.name) == (EXIT_USER, None)
    assert "Role geartrain-pipeline" in outcome.reason


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_cluster_without_trainer_is_for_a_person(method: str, bench: Bench) -> None:
    bench.server.faults = [Fault(404, path=JOBS, method=method, times=9)]
    outcome = bench.launch()
    assert outcome.exit_code == EXIT_USER
    assert "Trainer 2.3 is not installed" in outcome.reason


def test_a_refused_job_is_for_a_person(bench: Bench) -> None:
    bench.server.faults = [Fault(422, path=JOBS, method="POST", message="spec.trainer.image: too long")]
    outcome = bench.launch()
    assert (outcome.exit_code, "too long" in outcome.reason) == (EXIT_USER, True)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another of that name"])
def test_a_deleted_job_is_told_apart_from_trouble(again: bool, bench: Bench) -> None:
    def vanish(job: dict[str, Any]) -> None:
        del bench.server.jobs[bench.job.name]
        if again:
            bench.put(bench.job, COMPLETE)

    bench.play(RUNNING, vanish)
    outcome = bench.launch()
    assert outcome.exit_code == EXIT_INFRASTRUCTURE
    assert "was deleted while it was Running" in outcome.reason
    assert "failures" not in outcome.reason


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error
