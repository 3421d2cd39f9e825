"""The cluster's commands as a person meets them, against the HTTP fakes: output, exit codes, what was sent."""

import json
import re
from pathlib import Path

import pytest
import yaml

from geartrain import operations
from geartrain.cluster import kubeflow
from geartrain.cluster.naming import labels
from geartrain.lineage import events, mirror, verification
from tests.fakes.api_objects import ObjectServer
from tests.fakes.bench import IMAGE
from tests.fakes.console import INPUTS, fill, geartrain
from tests.fakes.kubeflow_server import KubeflowServer
from tests.fakes.kubernetes_server import Fault, KubernetesServer, set_conditions
from tests.fakes.nodes import at, nodes
from tests.fakes.pipeline import write_pipeline
from tests.fakes.scrape import parse


@pytest.fixture
def server(monkeypatch):
    with KubeflowServer() as running:
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", running.url)
        yield running


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with a compiled pipeline, a configuration and one schedule; no pauses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(operations.time, "sleep", lambda _: None)
    fill(tmp_path)


def submit(*arguments, code=0):
    return geartrain("submit", "--package", "training.yaml", *arguments, code=code)


def ending(server, *states, message):
    """Let a run be found in these states, one for each time that somebody asks for it."""
    left, real = list(states), server.answer

    def answer(method, path, *rest):
        match = re.fullmatch(r".*/runs/([^/:]+)", path)
        if method == "GET" and match and left:
            server.state.finish(match[1], left.pop(0), error=message)
        return real(method, path, *rest)

    server.answer = answer


@pytest.mark.parametrize(
    "command",
    [
        *((name,) for name in ["compile", "submit", "runs", "status", "logs", "cancel", "retry", "doctor", "reap"]),
        *(("schedule", name) for name in ["plan", "apply", "pause", "resume", "list", "render"]),
    ],
)
def test_help_teaches_with_an_example_and_names_no_secret(command):
    shown = geartrain(*command, "--help")
    example = next(line for line in shown.splitlines() if line.strip().startswith("geartrain "))
    assert example.split()[1 : 1 + len(command)] == list(command)


def test_a_training_job_is_described_by_a_file(server, monkeypatch):
    Path("cluster.yaml").write_text(yaml.safe_dump({"image": IMAGE, "nodes": 4, "gpus": 8, "processes_per_node": 8}))
    run_id = submit("--cluster", "cluster.yaml").strip()
    sent = server.state.runs[run_id]["runtime_config"]["parameters"]["cluster"]
    assert sent == {"image": IMAGE, "nodes": 4, "gpus": 8, "processes_per_node": 8}
    shown = submit("--cluster", "cluster.yaml", "--dry-run")
    assert {"cluster.nodes: 4 (default: none)", "cluster.gpus: 8 (default: none)"} <= set(shown.splitlines())
    monkeypatch.setenv("GEARTRAIN_CLUSTER", "cluster.yaml")
    assert submit("--dry-run") == shown
    monkeypatch.delenv("GEARTRAIN_CLUSTER")
    assert "cluster" not in server.state.runs[submit().strip()]["runtime_config"]["parameters"]


def test_other_stages_get_jobs_by_the_same_file(server):
    Path("cluster.yaml").write_text(yaml.safe_dump({"image": IMAGE, "nodes": 4, "critic": {"cpu": "8"}}))
    parameters = server.state.runs[submit("--cluster", "cluster.yaml").strip()]["runtime_config"]["parameters"]
    assert parameters["cluster"] == {"image": IMAGE, "nodes": 4}
    assert parameters["critic_cluster"] == {"image": IMAGE, "cpu": "8"}
    assert "reward_model_cluster" not in parameters


def test_a_site_that_trains_on_several_nodes_wants_its_job_described(server, monkeypatch):
    write_pipeline(Path("training.yaml"), inputs=INPUTS, launches="policy")
    for command in ([], ["--dry-run"]):
        refused = submit(*command, code=2)
        assert "training.yaml: was compiled for a site where policy runs as a training job" in refused
        assert "Give --cluster FILE (or GEARTRAIN_CLUSTER" in refused
    assert server.seen == []
    Path("cluster.yaml").write_text(f"image: {IMAGE}\n")
    monkeypatch.setenv("GEARTRAIN_CLUSTER", "cluster.yaml")
    assert submit().strip() in server.state.runs
    monkeypatch.delenv("GEARTRAIN_CLUSTER")
    # or the pipeline says so itself
    described = {**INPUTS, "cluster": {**INPUTS["cluster"], "defaultValue": {"image": IMAGE}}}
    write_pipeline(Path("training.yaml"), inputs=described, launches="policy")
    assert submit().strip() in server.state.runs


def test_a_dry_run_asks_nobody_and_prints_what_differs(monkeypatch):
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    shown = submit("--dry-run", "--set", "critic.epochs=7", "--dataset-rev", "v3").splitlines()
    assert re.fullmatch(r"pipeline: geartrain-[0-9a-f]{12}", shown[0])
    assert re.fullmatch(r"name: params-[0-9a-f]{12}", shown[1])
    assert [line for line in shown[2:] if line.startswith(("seed", "critic", "policy", "dataset"))] == [
        "critic.epochs: 7 (default 30)",
        'dataset_rev: "v3" (default: none)',
        "policy.iterations: 2 (default 30)",
        "seed: 3 (default 0)",
    ]


def test_a_run_is_started_with_checked_parameters_and_under_our_account(server):
    run_id = submit("--dataset-rev", "v3").strip()
    run = server.state.runs[run_id]
    assert run["service_account"] == "geartrain-pipeline"
    parameters = run["runtime_config"]["parameters"]
    assert (parameters["seed"], parameters["policy"]["iterations"], parameters["dataset_rev"]) == (3, 2, "v3")
    assert set(parameters) <= set(INPUTS)
    assert [version["name"] for version in server.state.versions.values()] == [
        submit("--dry-run").splitlines()[0].removeprefix("pipeline: ")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "policy.iterationz=1"), "did you mean 'iterations'"),
        (("--params", "absent.yaml"), "absent.yaml: no such file"),
        (("--cluster", "absent.yaml"), "absent.yaml: no such file. It holds what the training job asks for"),
        (("--cluster", "params.yaml"), "seed: unknown key"),
        (("--host", "http://127.0.0.1:9", "--token-file", "absent"), "absent: no such file"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(server, arguments, message):
    assert message in submit(*arguments, code=2)
    assert not [line for line in server.seen if line.startswith("POST")]


def test_a_pipeline_with_other_parameters_is_refused(server):
    write_pipeline(Path("training.yaml"), inputs={**INPUTS, "image_digest": {"parameterType": "STRING"}})
    assert "the pipeline needs image_digest" in submit(code=2)
    write_pipeline(Path("training.yaml"), inputs={"seed": {"parameterType": "NUMBER_INTEGER"}})
    assert "has no parameter collect" in submit(code=2)
    write_pipeline(Path("training.yaml"), inputs={name: about for name, about in INPUTS.items() if name != "cluster"})
    Path("cluster.yaml").write_text(f"image: {IMAGE}\n")
    assert "has no parameter cluster;" in submit("--cluster", "cluster.yaml", code=2)


def test_no_address_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "port-forward" in geartrain("runs", code=2)


@pytest.mark.parametrize(
    ("states", "message", "retries", "code", "asked"),
    [
        (["SUCCEEDED"], "", 0, 0, 0),
        (["FAILED"], "main: Error (exit code 2)", 3, 2, 0),
        (["FAILED"], "main: Error (exit code 75)", 0, 75, 0),
        (["FAILED", "FAILED", "SUCCEEDED"], "main: Error (exit code 75)", 1, 0, 1),
        (["FAILED", "FAILED"] * 2, "main: Error (exit code 75)", 1, 75, 1),
        (["FAILED"], "main: Error (exit code 1)", 3, 1, 0),
        (["CANCELED"], "", 0, 2, 0),
    ],
)
def test_waiting_ends_with_the_outcome_and_retries_only_bad_luck(server, states, message, retries, code, asked):
    ending(server, *states, message=message)
    submit("--wait", "--auto-retry", str(retries), code=code)
    assert server.count(":retry$") == asked


def test_ending_the_wait_leaves_the_run_alone(server, monkeypatch):
    def interrupt(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(operations.time, "sleep", interrupt)
    submit("--wait", code=130)
    assert [run["state"] for run in server.state.runs.values()] == ["PENDING"]


def test_runs_are_listed_newest_first_and_filtered(server):
    first, second = submit("--name", "one").strip(), submit("--name", "two").strip()
    server.state.finish(first, "FAILED")
    lines = geartrain("runs").splitlines()
    assert [line.split()[0] for line in lines] == ["RUN", second, first]
    assert [line.split()[0] for line in geartrain("runs", "--state", "failed").splitlines()[1:]] == [first]
    assert [line.split()[0] for line in geartrain("runs", "--name", "tw").splitlines()[1:]] == [second]
    assert [run["id"] for run in json.loads(geartrain("runs", "--limit", "1", "--json"))] == [second]


def test_status_shows_tasks_and_the_first_failure(server):
    run_id = submit().strip()
    listed, pods = nodes(("tasks", 1, ("SUCCEEDED",)), ("policy", 12, ("FAILED", "FAILED")))
    server.state.finish(run_id, "FAILED", tasks=listed)
    server.state.logs[pods["policy"][1]] = "step 1\ngeartrain.errors.UserError: mend this\n"
    shown = geartrain("status", run_id)
    assert "✓ tasks            succeeded  9 min 00 s\n" in shown
    assert "✗ policy           failed     9 min 00 s, 1 retry\n" in shown
    assert "first failure: policy: UserError: mend this\n  user: the stage says" in shown
    record = json.loads(geartrain("status", run_id, "--json"))
    assert (record["first_failure"]["kind"], [task["name"] for task in record["tasks"]]) == (
        "user",
        ["tasks", "policy"],
    )
    shown = geartrain("logs", run_id)
    assert "== policy (executor(0), failed)\nno log" in shown
    assert "== policy (executor(1), failed)\nstep 1\n" in shown
    assert "would most likely fail again: policy: UserError" in geartrain("retry", run_id, code=2)
    assert "had failed: policy: UserError" in geartrain("retry", run_id, "--force")
    assert "not found" in geartrain("status", "nobody", code=2)


def test_retry_refuses_what_would_fail_again(server):
    run_id = submit().strip()
    server.state.finish(run_id, "FAILED", error="main: Error (exit code 2)")
    assert "give --force" in geartrain("retry", run_id, code=2)
    assert server.count(":retry$") == 0


def test_cancel_works_without_the_cluster_too(server, monkeypatch, tmp_path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    run_id = submit().strip()
    nowhere = ("--kubeconfig", str(tmp_path / "absent"))
    assert f"run {run_id}: terminated" in geartrain("cancel", run_id, *nowhere)
    assert server.state.runs[run_id]["state"] == "CANCELING"
    server.state.finish(run_id, "CANCELED")
    assert "had ended as canceled" in geartrain("cancel", run_id, *nowhere)


@pytest.fixture
def jobs(tmp_path):
    """A cluster with TrainJobs."""
    with KubernetesServer() as running:
        running.write_kubeconfig(tmp_path / "kubeconfig")
        yield running


def train(jobs, name, run, status="Running"):
    conditions = [{"type": "Complete", "status": "True", "reason": "x"}] if status == "Complete" else []
    jobs.jobs[name] = {
        "metadata": {"name": name, "uid": f"u-{name}", "labels": labels(run, "policy")},
        "spec": {},
        "status": {"conditions": conditions},
    }


def test_cancel_deletes_the_training_jobs_of_that_run(server, jobs):
    mine, other = submit().strip(), submit().strip()
    train(jobs, "mine", mine)
    train(jobs, "other", other)
    assert "TrainJob mine: deleted" in geartrain("cancel", mine, "--kubeconfig", "kubeconfig")
    assert list(jobs.jobs) == ["other"]
    deleted = [request for request in jobs.requests if request.method == "DELETE"]
    assert [request.body["preconditions"]["uid"] for request in deleted] == ["u-mine"]
    assert "TrainJobs: there are none" in geartrain("cancel", mine, "--kubeconfig", "kubeconfig")


def test_cancel_ends_what_the_run_left_open_in_lineage(server, monkeypatch, tmp_path):
    """Its pods are gone, or on their way: nobody else says ABORT before the reaper comes."""
    mine, other = submit().strip(), submit().strip()
    for run, stage in ((mine, "tasks"), (mine, "policy"), (other, "policy")):
        monkeypatch.setenv("GEARTRAIN_RUN_ID", run)
        monkeypatch.setenv("GEARTRAIN_LINEAGE", str(tmp_path / "shared"))
        told = {"run_id": events.new_run_id(), "job": stage, "inputs": {}, "outputs": {}}
        events.emit(tmp_path / f"pod-{run}-{stage}", "START", **told)
        if stage == "tasks":
            events.emit(tmp_path / f"pod-{run}-{stage}", "COMPLETE", **told)
    monkeypatch.delenv("GEARTRAIN_RUN_ID")
    nowhere = ("--kubeconfig", str(tmp_path / "absent"))
    assert "lineage: ABORT of policy" in geartrain("cancel", mine, *nowhere)
    assert "lineage: ABORT of nothing" in geartrain("cancel", mine, *nowhere)
    mirror.pull(tmp_path / "all", str(tmp_path / "shared"))
    told = [(events.parent_of(event), event["eventType"]) for event in events.read_events(tmp_path / "all")]
    assert sorted(told) == sorted(
        [(mine, "START"), (mine, "COMPLETE"), (mine, "START"), (mine, "ABORT"), (other, "START")]
    )
    assert verification.check_chain(tmp_path / "all").faults == []


def test_cancel_says_what_it_could_not_do(server, jobs):
    run_id = submit().strip()
    jobs.faults.append(Fault(403, method="GET", path="trainjobs", times=9))
    assert f"run {run_id}: terminated; its TrainJobs could not be deleted" in geartrain(
        "cancel", run_id, "--kubeconfig", "kubeconfig", code=75
    )


def test_reaping_spares_the_jobs_of_runs_that_are_at_work_or_hidden(server, jobs):
    active, over, hidden = (submit().strip() for _ in range(3))
    server.state.finish(over, "CANCELED")
    for name, run in {"a": active, "b": over, "c": "0" * 8, "d": hidden}.items():
        train(jobs, name, run)
    server.fail(f"GET .*/runs/{hidden}", status=403, times=99)
    shown = geartrain("reap", "--dry-run", "--kubeconfig", "kubeconfig").splitlines()
    assert [line.split(":")[0] for line in shown] == ["kept  a", "would delete  b", "would delete  c", "kept  d"]
    assert sorted(jobs.jobs) == ["a", "b", "c", "d"]
    geartrain("reap", "--kubeconfig", "kubeconfig")
    assert sorted(jobs.jobs) == ["a", "d"]


def test_reaping_cleans_the_shared_volume_too(server, jobs):
    active, over = (submit().strip() for _ in range(2))
    server.state.finish(over, "CANCELED")
    for run in (active, over):
        Path("work", run, "policy", "work").mkdir(parents=True)
    options = ("--work", "work", "--keep-days", "0", "--kubeconfig", "kubeconfig")
    assert f"would delete  work/{over}: run {over} is over" in geartrain("reap", "--dry-run", *options)
    shown = geartrain("reap", *options)
    assert f"kept  work/{active}: run {active} is active" in shown
    assert f"deleted  work/{over}" in shown
    assert Path("work", active, "policy", "work").is_dir()
    assert not list(Path("work", over, "policy").iterdir())
    assert "no such folder" in geartrain("reap", "--work", "nowhere", "--kubeconfig", "kubeconfig", code=2)


def test_an_exporter_tells_of_steps_whose_pods_are_gone_and_of_jobs_that_queue(server, jobs, tmp_path):
    over, waits, hidden = (submit().strip() for _ in range(3))
    done = [(name, start, ("SUCCEEDED",)) for name, start in (("tasks", 1), ("promotion", 20))]
    server.state.finish(over, "SUCCEEDED", tasks=nodes(*done)[0])
    body = {"metadata": {"name": "policy-1", "uid": "u", "labels": labels(waits, "policy")}, "spec": {}}
    set_conditions(("Suspended", "True", "Suspended"))(body)
    jobs.jobs = {"policy-1": body}
    server.fail(f"GET .*/runs/{hidden}", status=403, times=99)
    target = tmp_path / "cluster.prom"
    geartrain("exporter", "--cluster", "--textfile", str(target), "--kubeconfig", "kubeconfig")
    found = parse(target.read_text())
    assert found["geartrain_job_queue_seconds", (("stage", "policy"),)] > 0
    last = found["geartrain_stage_last_success_timestamp_seconds", (("stage", "promotion"),)]
    assert at(20).timestamp() < last < at(60).timestamp()
    assert {request.method for request in jobs.requests} == {"GET"}


def test_reaping_stops_at_an_address_that_is_not_kubeflow(server, jobs):
    train(jobs, "a", submit().strip())
    server.fail("", status=404, times=99)  # some other web server
    geartrain("reap", "--kubeconfig", "kubeconfig", code=2)
    server.faults.clear()
    server.state.health.clear()  # one that answers everything with {}
    assert "not as Kubeflow Pipelines 2 does" in geartrain("reap", "--kubeconfig", "kubeconfig", code=2)
    assert list(jobs.jobs) == ["a"]


def test_the_doctor_prints_lines_and_json(server):
    with ObjectServer() as objects:
        Path("kubeconfig").write_text(kubeconfig(objects.url))
        shown = geartrain("doctor", "--pvc", "geartrain-work", "--kubeconfig", "kubeconfig")
        assert f"ok    Kubeflow Pipelines: 2.17.1, kfp {kubeflow.SDK_VERSION}" in shown
        assert "fail" not in shown
        del objects.objects["/apis/kueue.x-k8s.io/v1beta2"]
        shown = geartrain("doctor", "--kubeconfig", "kubeconfig", code=2)
        assert "fail  kind localqueues: kueue.x-k8s.io/v1beta2 is missing\n      -> install Kueue 0.19" in shown
        report = json.loads(geartrain("doctor", "--json", "--kubeconfig", "kubeconfig", code=2))
        assert {line["level"] for line in report} == {"ok", "warn", "fail"}


def kubeconfig(url):
    cluster, user = {"name": "c", "cluster": {"server": url}}, {"name": "u", "user": {"token": "t"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    return json.dumps({"current-context": "x", "clusters": [cluster], "users": [user], "contexts": [context]})
