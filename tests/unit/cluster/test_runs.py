"""Runs for people: what a table of nodes says, why a run failed, how it is ended and retried."""

from datetime import timedelta

import pytest

from geartrain.cluster import decoding
from geartrain.cluster.interface import NotFoundError
from geartrain.cluster.records import Run, Task, UnavailableError
from geartrain.cluster.runs import cancel, first_failure, log_reader, logs, outcome, retry, wait
from geartrain.cluster.task_rows import rows
from geartrain.errors import InfrastructureError, UserError
from tests.fakes.nodes import at, nodes

LAUNCHER = "F1130 02:20:00.000000      42 main.go:49] failed to execute component: "
MEND, PASSING = LAUNCHER + "exit status 2\n", LAUNCHER + "exit status 75\n"


def decoded(state, *tasks):
    """A run with these tasks, as the server tells it; and the pods of each task."""
    listed, pods = nodes(*tasks)
    return decoding.run(
        {"run_id": "r1", "display_name": "demo", "state": state, "run_details": {"task_details": listed}}
    ), pods


def failed(*states):
    """A run whose second task failed."""
    return decoded("FAILED", ("tasks", 1, ("SUCCEEDED",)), ("policy", 10, states or ("FAILED",)))


class Server:
    """Answers from a list of runs, the last one for ever."""

    def __init__(self, *runs):
        self.runs, self.done, self.texts = list(runs), [], {}

    def run(self, _run_id):
        run = self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]
        if isinstance(run, Exception):
            raise run
        return run

    def terminate(self, run_id):
        self.done.append(("terminate", run_id))

    def retry(self, run_id):
        self.done.append(("retry", run_id))

    def node_log(self, run_id, node):
        if node not in self.texts:
            raise NotFoundError("no such log")
        return self.texts[node]


class Jobs:
    """TrainJobs; `stuck` ones do not go."""

    def __init__(self, **runs):
        self.runs, self.stuck, self.asked = runs, set(), []

    def find(self, selector):
        self.asked.append(selector)
        wanted = dict(part.split("=") for part in selector.split(","))["geartrain.dev/run"]
        return [{"metadata": {"name": name, "uid": f"u-{name}"}} for name, run in self.runs.items() if run == wanted]

    def delete(self, name, uid):
        assert uid == f"u-{name}"
        if name in self.stuck:
            raise UserError(f"{name}: forbidden")
        del self.runs[name]


def test_a_run_is_shown_by_its_tasks_in_order_not_by_kubeflow_s_nodes():
    run, pods = failed("FAILED", "FAILED", "FAILED")
    table = rows(run)
    assert [(row.name, row.state, row.attempts, row.depth) for row in table] == [
        ("tasks", "SUCCEEDED", 1, 0),
        ("policy", "FAILED", 3, 0),
    ]
    assert [node.pod for node in table[0].pods] == pods["tasks"]
    assert [node.pod for node in table[1].pods] == pods["policy"]
    assert table[0].ended - table[0].started == timedelta(minutes=9)


def test_a_task_at_work_has_not_ended():
    run, _ = decoded("RUNNING", ("tasks", 1, ("RUNNING",)))
    assert [(row.state, row.ended) for row in rows(run)] == [("RUNNING", None)]


def test_a_task_that_was_taken_from_the_cache_has_no_pods():
    run = Run("r", "n", "SUCCEEDED", tasks=(Task("t", "tasks", "SKIPPED", started=at(1)),))
    assert [(row.name, row.state, row.attempts) for row in rows(run)] == [("tasks", "SKIPPED", 1)]


def test_a_nested_task_is_deeper():
    tasks = (
        Task("a", "critics", "RUNNING", started=at(1)),
        Task("b", "critic-1", "RUNNING", started=at(2), parent="a"),
    )
    assert [(row.name, row.depth) for row in rows(Run("r", "n", "RUNNING", tasks=tasks))] == [
        ("critics", 0),
        ("critic-1", 1),
    ]


def server_of(run, **texts):
    server = Server(run)
    server.texts = texts
    return server


def reason_of(run, texts):
    server = server_of(run, **texts)
    return first_failure(run, log_reader(server, "r1"))


def test_the_first_failure_counts_not_those_that_followed_from_it():
    run, pods = decoded("FAILED", ("critic", 5, ("FAILED",)), ("policy", 30, ("FAILED",)))
    reason = reason_of(run, {pods["critic"][0]: PASSING, pods["policy"][0]: MEND})
    assert (reason.task, reason.kind, reason.code) == ("critic", "infrastructure", 75)


def test_the_log_of_the_last_attempt_says_why_for_the_server_does_not():
    run, pods = failed("FAILED", "FAILED")
    assert {task.error for task in run.tasks} == {""}
    reason = reason_of(run, dict(zip(pods["policy"], [PASSING, MEND], strict=True)))
    assert (reason.kind, reason.message) == ("user", "(exit status 2)")


def test_without_message_and_log_the_reason_is_unknown_and_says_so():
    reason = reason_of(failed()[0], {})
    assert (reason.kind, reason.code) == ("fault", 1)
    assert "no log" in reason.message


def test_a_failed_driver_is_shown_and_may_pass():
    driver = Task("d", "policy-driver", "FAILED", started=at(1), ended=at(2), pod="p")
    run = Run("r", "n", "FAILED", tasks=(driver,))
    assert [row.name for row in rows(run)] == ["policy-driver"]
    assert "kubeflow/pipelines#14266" in first_failure(run).hint


@pytest.mark.parametrize(
    ("state", "log", "code"),
    [
        ("SUCCEEDED", "", 0),
        ("CANCELED", "", 2),
        ("FAILED", MEND, 2),
        ("FAILED", PASSING, 75),
        ("FAILED", LAUNCHER + "exit status 1", 1),
    ],
)
def test_a_run_s_outcome_is_an_exit_code(state, log, code):
    run, pods = failed()
    run = Run(run.id, run.name, state, tasks=run.tasks)
    assert outcome(run, reason_of(run, {pods["policy"][0]: log})) == code


def test_a_run_that_never_had_a_task_says_what_the_server_says():
    assert outcome(Run("r", "n", "FAILED"), first_failure(Run("r", "n", "FAILED"))) == 1
    evicted = Run("r", "n", "FAILED", error="workflow shutdown: Evicted")
    assert outcome(evicted, first_failure(evicted)) == 75


def test_waiting_polls_ever_less_often_and_tells_what_changed():
    pauses, said = [], []
    begun, _ = decoded("RUNNING", ("tasks", 1, ("RUNNING",)))
    server = Server(*[begun] * 9, UnavailableError("busy", maybe_done=False), failed()[0])
    assert wait(server, "r1", sleep=pauses.append, say=said.append).state == "FAILED"
    assert said == ["tasks: running", "tasks: succeeded", "policy: failed"]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (5.0, 60.0)


def test_waiting_gives_up_on_a_server_that_stays_away_and_says_that_the_run_goes_on():
    with pytest.raises(InfrastructureError, match="The run goes on"):
        wait(Server(UnavailableError("down.", maybe_done=False)), "r1", sleep=lambda _: None, say=print)


def test_only_what_may_pass_is_retried():
    run, pods = failed()
    server = server_of(run, **{pods["policy"][0]: PASSING})
    assert retry(server, "r1", force=False).task == "policy"
    assert server.done == [("retry", "r1")]
    stubborn = server_of(run, **{pods["policy"][0]: MEND})
    with pytest.raises(UserError, match=r"policy: \(exit status 2\).*--force"):
        retry(stubborn, "r1", force=False)
    assert stubborn.done == []
    retry(stubborn, "r1", force=True)
    assert stubborn.done == [("retry", "r1")]
    for state, message in (("RUNNING", "nothing to retry"), ("SUCCEEDED", "only a failed run")):
        with pytest.raises(UserError, match=message):
            retry(Server(Run("r1", "demo", state)), "r1", force=True)


def test_cancelling_ends_the_run_and_its_jobs_and_nobody_else_s():
    server, jobs = Server(Run("r1", "demo", "RUNNING")), Jobs(a="r1", b="r1", c="r2")
    lines = cancel(server, jobs, "r1")
    assert server.done == [("terminate", "r1")]
    assert jobs.runs == {"c": "r2"}
    assert [line.split(":")[0] for line in lines[:3]] == ["run r1", "TrainJob a", "TrainJob b"]
    assert "reaper" in lines[-1]
    assert "geartrain.dev/pipeline=geartrain" in jobs.asked[0]


def test_cancelling_again_is_fine_and_finds_what_came_late():
    server, jobs = Server(Run("r1", "demo", "CANCELED")), Jobs(late="r1")
    assert "had ended as canceled" in cancel(server, jobs, "r1")[0]
    assert server.done == []
    assert jobs.runs == {}
    assert "TrainJobs: there are none" in cancel(server, jobs, "r1")


def test_jobs_of_a_run_that_kubeflow_forgot_are_deleted_too():
    jobs = Jobs(orphan="r1")
    assert "TrainJob orphan: deleted" in cancel(Server(NotFoundError("404")), jobs, "r1")
    with pytest.raises(NotFoundError):
        cancel(Server(NotFoundError("404")), jobs, "r1")
    with pytest.raises(NotFoundError):
        cancel(Server(NotFoundError("404")), None, "r1")


def test_a_job_that_does_not_go_is_an_error_that_tells_what_was_done():
    jobs = Jobs(a="r1", b="r1")
    jobs.stuck.add("b")
    with pytest.raises(InfrastructureError, match=r"run r1: terminated; 1 TrainJob\(s\) are still there: b: forbidden"):
        cancel(Server(Run("r1", "demo", "RUNNING")), jobs, "r1")
    assert jobs.runs == {"b": "r1"}


def test_without_the_cluster_the_run_is_ended_and_the_rest_is_named():
    server = Server(Run("r1", "demo", "RUNNING"))
    assert any("geartrain reap" in line for line in cancel(server, None, "r1"))
    assert server.done == [("terminate", "r1")]


def test_logs_are_those_of_what_failed_attempt_by_attempt():
    run, pods = failed("FAILED", "FAILED")
    first, second = pods["policy"]
    server = server_of(run, **{first: "first\n", second: "second\n", pods["tasks"][0]: "fine\n"})
    assert [text for _, text in logs(server, "r1", None)] == ["first\n", "second\n"]
    assert [text for _, text in logs(server, "r1", "tasks")] == ["fine\n"]
    del server.texts[first]
    titles = list(logs(server, "r1", "policy"))
    assert titles[0] == ("policy (executor(0), failed)", "no log: the pod is gone and none was archived\n")
    with pytest.raises(UserError, match="no task 'polcy' that has started; it has: tasks, policy"):
        list(logs(server, "r1", "polcy"))
