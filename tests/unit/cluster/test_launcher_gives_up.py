"""Budgets, SIGTERM and preemptions: when a launcher gives up, what it leaves behind, and when it must not."""

from dataclasses import replace

import pytest

from geartrain.cluster.launcher import Watch
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_QUEUE, InfrastructureError
from tests.fakes.bench import COMPLETE, FAILED, PENDING, RUNNING, SUSPENDED, WATCH, Bench
from tests.fakes.kubernetes_server import JOBS, NAMESPACE, event, pod

SELDOM = replace(WATCH, poll_seconds=120)


def test_a_queue_that_is_too_long_has_its_own_code_and_says_what_is_short(bench: Bench) -> None:
    short = (
        "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor gpu, "
        "16 more needed"
    )
    workload = f"trainjob-{bench.job.name}-a1b2c"
    bench.server.events = [event("Workload", workload, "Pending", short)]
    bench.play(*[SUSPENDED] * 1000)
    outcome = bench.launch()
    assert outcome.exit_code == EXIT_QUEUE
    assert outcome.reason.startswith("queued 2 h: ClusterQueue geartrain-gpu short of 16 nvidia.com/gpu. TrainJob")
    assert "left to go on" in outcome.reason
    assert bench.deleted() == []
    assert sum(line.endswith("short of 16 nvidia.com/gpu") for line in bench.said) == 1


def test_a_reason_that_has_expired_meanwhile_is_remembered(bench: Bench) -> None:
    workload = f"trainjob-{bench.job.name}-a1b2c"
    bench.server.events = [event("Workload", workload, "Pending", "ClusterQueue geartrain-gpu is inactive")]
    bench.play(*[SUSPENDED] * 10, lambda _: bench.server.events.clear(), *[SUSPENDED] * 1000)
    assert "ClusterQueue geartrain-gpu is inactive" in bench.launch(watch=SELDOM).reason


def test_pods_that_do_not_start_use_up_their_own_budget(bench: Bench) -> None:
    bench.server.pods = [pod(bench.job.name, 0, {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}})]
    bench.play(*[SUSPENDED] * 50, *[PENDING] * 1000)
    outcome = bench.launch(watch=SELDOM)
    assert outcome.exit_code == EXIT_INFRASTRUCTURE
    assert outcome.reason.startswith("admitted but not running for 12 min: pod")
    assert "ImagePullBackOff: no image" in outcome.reason


def test_a_run_that_is_too_long(bench: Bench) -> None:
    bench.play(*[RUNNING] * 1000)
    outcome = bench.launch()
    assert outcome.exit_code == EXIT_INFRASTRUCTURE
    assert outcome.reason.startswith("ran 1 h. TrainJob")


def test_given_up_jobs_are_deleted_if_told_to(bench: Bench) -> None:
    bench.play(*[RUNNING] * 1000)
    watch = Watch(WATCH.budgets, poll_seconds=15, delete_when_given_up=True)
    outcome = bench.launch(watch=watch)
    assert outcome.reason.endswith(f"TrainJob {bench.job.name} is deleted")
    assert bench.deleted() == [f"{JOBS}/{bench.job.name}"]
    assert bench.server.requests[-1].body["preconditions"] == {"uid": "uid-1"}


def test_sigterm_leaves_the_job_and_the_next_launcher_adopts_it(bench: Bench) -> None:
    bench.time.stop_after = 3
    bench.play(*[RUNNING] * 5, COMPLETE)
    outcome = bench.launch()
    assert outcome.exit_code == EXIT_INFRASTRUCTURE
    assert "told to stop" in outcome.reason
    assert "kubectl delete trainjobs -l app.kubernetes.io/part-of=geartrain," in outcome.reason
    assert bench.deleted() == []
    bench.time.stop_after = None
    assert bench.launch().exit_code == 0
    assert bench.created() == [bench.job.name]


def test_sigterm_before_anything_was_asked(bench: Bench) -> None:
    bench.time.stop_after = 0
    outcome = bench.launch()
    assert (outcome.exit_code, outcome.name) == (EXIT_INFRASTRUCTURE, None)
    assert bench.server.requests == []


def test_a_completed_job_is_not_deleted_by_sigterm(bench: Bench) -> None:
    bench.play(COMPLETE)

    def busy() -> None:
        bench.time.stop_after = 1
        raise InfrastructureError("S3 is slow")

    outcome = bench.launch(verify=busy, watch=Watch(delete_when_given_up=True))
    assert outcome.exit_code == EXIT_INFRASTRUCTURE
    assert bench.deleted() == []


def test_preemptions_are_counted_and_do_not_fail_the_job(bench: Bench) -> None:
    """kubernetes-sigs/jobset#1117: Kueue takes the place back as often as it likes."""
    bench.play(*[*[SUSPENDED] * 50, PENDING, RUNNING] * 4, COMPLETE)
    outcome = bench.launch(watch=SELDOM)
    assert (outcome.exit_code, outcome.suspends) == (0, 3)
    assert outcome.queued_seconds > 3 * WATCH.budgets.queue_seconds


def test_admitted_and_evicted_in_turns_without_running_uses_up_the_queue(bench: Bench) -> None:
    """Kueue 0.19's waitForPodsReady (kueue#11855) and an image that is too large make such a loop."""
    bench.play(*[*[SUSPENDED] * 20, *[PENDING] * 20] * 100)
    outcome = bench.launch()
    assert (outcome.exit_code, outcome.running_seconds) == (EXIT_INFRASTRUCTURE, 0)
    assert outcome.pending_seconds == pytest.approx(WATCH.budgets.start_seconds, abs=30)


def test_a_launcher_that_starts_anew_does_not_give_a_new_budget(bench: Bench) -> None:
    bench.put(bench.job, SUSPENDED)
    bench.time.now += 7300  # suspended since the server's noon
    bench.play(*[SUSPENDED] * 1000)
    outcome = bench.launch()
    assert outcome.exit_code == EXIT_QUEUE
    assert bench.time.pauses == []


def test_the_server_is_asked_for_nothing_that_the_role_does_not_grant(bench: Bench) -> None:
    bench.play(SUSPENDED, PENDING, RUNNING, FAILED)
    bench.server.pods = [pod(bench.job.name, 0, {"terminated": {"exitCode": 1}})]
    bench.server.logs = {f"{bench.job.name}-node-0-0": b"x"}
    bench.launch()
    name = bench.job.name
    asked = {(request.method, request.path.replace(name, "NAME")) for request in bench.server.requests}
    core = f"/api/v1/namespaces/{NAMESPACE}"
    assert asked == {
        ("GET", JOBS),
        ("POST", JOBS),
        ("GET", f"{JOBS}/NAME"),
        ("GET", f"{core}/events"),
        ("GET", f"{core}/pods"),
        ("GET", f"{core}/pods/NAME-node-0-0/log"),
    }
