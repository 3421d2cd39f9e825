"""Runs for people: what a table of nodes says, why a run failed, how it is ended and retried."""

from datetime import UTC, datetime, timedelta

import pytest

from geartrain.cluster.interface import NotFoundError
from geartrain.cluster.records import Run, Task, UnavailableError
from geartrain.cluster.runs import cancel, explain, first_failure, logs, outcome, retry, rows, wait
from geartrain.errors import InfrastructureError, UserError

START = datetime(2026, 11, 30, 2, 0, tzinfo=UTC)


def at(minutes):
    return START + timedelta(minutes=minutes)


def nodes(*tasks):
    """The nodes of a run as Argo names them: (name, start, states of the attempts, message of the last)."""
    made, top = [], ["root-driver"]
    made.append(Task("wf", "geartrain-x7k2p", "RUNNING", started=at(0), children=("root-driver",), pod="wf"))
    made.append(Task("root-driver", "root-driver", "SUCCEEDED", started=at(0), pod="p-root-driver", children=("root",)))
    made.append(Task("root", "root", "RUNNING", started=at(0), children=tuple(f"{name}-driver" for name, *_ in tasks)))
    for number, (name, start, states, message) in enumerate(tasks):
        tries = [f"{name}-try{index}" for index in range(len(states))]
        following = [f"{tasks[number + 1][0]}-driver"] if number + 1 < len(tasks) else []
        final = states[-1] if states else "FAILED"
        made.append(
            Task(
                f"{name}-driver",
                f"{name}-driver",
                "SUCCEEDED",
                started=at(start),
                pod=f"p-{name}-driver",
                children=(name,),
            )
        )
        made.append(Task(name, name, final, started=at(start), ended=at(start + 9), children=(f"{name}-executor",)))
        made.append(
            Task(f"{name}-executor", "executor", final, started=at(start), error=message, children=(*tries, *following))
        )
        for index, (key, state) in enumerate(zip(tries, states, strict=True)):
            error = message if state == "FAILED" else ""
            started = at(start + index)
            made.append(
                Task(
                    key,
                    f"executor({index})",
                    state,
                    error=error,
                    started=started,
                    ended=at(start + index + 1),
                    pod=f"pod-{key}",
                )
            )
    assert top
    return tuple(made)


def failed(message="main: Error (exit code 2)", states=("FAILED",), state="FAILED"):
    return Run("r1", "demo", state, tasks=nodes(("tasks", 1, ("SUCCEEDED",), ""), ("policy", 10, states, message)))


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
    table = rows(failed(states=("FAILED", "FAILED", "FAILED")))
    assert [(row.name, row.state, row.attempts, row.depth) for row in table] == [
        ("tasks", "SUCCEEDED", 1, 0),
        ("policy", "FAILED", 3, 0),
    ]
    assert table[1].error == "main: Error (exit code 2)"
    assert table[0].ended - table[0].started == timedelta(minutes=9)


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


def test_the_first_failure_counts_not_those_that_followed_from_it():
    tasks = nodes(("critic", 5, ("FAILED",), "main: Error (exit code 75)"), ("policy", 30, ("FAILED",), "exit code 2"))
    reason = first_failure(Run("r", "n", "FAILED", tasks=tasks))
    assert (reason.task, reason.kind, reason.code) == ("critic", "infrastructure", 75)


def test_a_failed_driver_is_shown_and_may_pass():
    tasks = (Task("d", "policy-driver", "FAILED", error="rpc error: Aborted", started=at(1), ended=at(2), pod="p"),)
    run = Run("r", "n", "FAILED", tasks=tasks)
    assert [row.name for row in rows(run)] == ["policy-driver"]
    assert "kubeflow/pipelines#14266" in first_failure(run).hint
    assert outcome(run) == 75


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("main: Error (exit code 2)", "user"),
        ("main: Error (exit code 75)", "infrastructure"),
        ("main: Error (exit code 76)", "infrastructure"),
        ("main: Error (exit code 2): connection refused", "user"),  # the stage knows better than the words
        ("OOMKilled (exit code 137)", "user"),
        ("main: Error (exit code 137)", "infrastructure"),
        ("pod deleted", "infrastructure"),
        ("The node was low on resource: ephemeral-storage. Evicted", "infrastructure"),
        ("Back-off: ImagePullBackOff", "user"),
        ("exceeded quota: geartrain", "infrastructure"),
        ("main: Error (exit code 1)", "fault"),
        ("", "fault"),
    ],
)
def test_what_a_message_means(message, kind):
    reason = explain("policy", message)
    assert reason.kind == kind
    assert reason.hint


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (Run("r", "n", "SUCCEEDED"), 0),
        (Run("r", "n", "CANCELED"), 2),
        (failed(), 2),
        (failed("main: Error (exit code 75)"), 75),
        (failed("main: Error (exit code 1)"), 1),
        (Run("r", "n", "FAILED", error="workflow shutdown: Evicted"), 75),
        (Run("r", "n", "FAILED"), 1),
    ],
)
def test_a_run_s_outcome_is_an_exit_code(run, code):
    assert outcome(run) == code


def test_waiting_polls_ever_less_often_and_tells_what_changed():
    pauses, said = [], []
    begun = Run("r1", "demo", "RUNNING", tasks=nodes(("tasks", 1, ("RUNNING",), "")))
    server = Server(*[begun] * 9, UnavailableError("busy", maybe_done=False), failed())
    assert wait(server, "r1", sleep=pauses.append, say=said.append).state == "FAILED"
    assert said == ["tasks: running", "tasks: succeeded", "policy: failed"]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (5.0, 60.0)


def test_waiting_gives_up_on_a_server_that_stays_away_and_says_that_the_run_goes_on():
    with pytest.raises(InfrastructureError, match="The run goes on"):
        wait(Server(UnavailableError("down.", maybe_done=False)), "r1", sleep=lambda _: None, say=print)


def test_only_what_may_pass_is_retried():
    server = Server(failed("main: Error (exit code 75)"))
    assert retry(server, "r1", force=False).task == "policy"
    assert server.done == [("retry", "r1")]
    stubborn = Server(failed("main: Error (exit code 2)"))
    with pytest.raises(UserError, match=r"policy: main: Error \(exit code 2\).*--force"):
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
    server = Server(failed(states=("FAILED", "FAILED")))
    server.texts = {"pod-policy-try0": "first\n", "pod-policy-try1": "second\n", "pod-tasks-try0": "fine\n"}
    assert [text for _, text in logs(server, "r1", None)] == ["first\n", "second\n"]
    assert [text for _, text in logs(server, "r1", "tasks")] == ["fine\n"]
    del server.texts["pod-policy-try0"]
    titles = list(logs(server, "r1", "policy"))
    assert titles[0] == ("policy (executor(0), failed)", "no log: the pod is gone and none was archived\n")
    with pytest.raises(UserError, match="no task 'polcy' that has started; it has: tasks, policy"):
        list(logs(server, "r1", "polcy"))
