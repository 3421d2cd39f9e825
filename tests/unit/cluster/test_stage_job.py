"""A step that runs its stage as a TrainJob: what is sent, what is returned, which errors; pods are simulated here."""

import json
from pathlib import Path

import pytest

from geartrain import artifacts
from geartrain.cluster import stage_job
from geartrain.cluster.node import read_request
from geartrain.cluster.stage_job import run_as_job
from geartrain.cluster.storage import Storage
from geartrain.cluster.trainjob import problems
from geartrain.config import parse_config
from geartrain.errors import InfrastructureError, QueueError, UserError
from geartrain.stages.stage import load_stage
from tests.fakes.bench import IMAGE, FakeTime
from tests.fakes.controller import ControlledServer
from tests.fakes.kubernetes_server import Fault

RUN = "5f0c7c4e-9b1d-4a55-8a38-6f1f0b9a2a11"
RECORD = {"seed": 0, "threads": 2, "policy": {"iterations": 2}, "environment": {"name": "twophase"}}
METRICS = {"success": 0.5}
BUCKET = "steps"


@pytest.fixture
def inputs(tmp_path):
    made = {}
    for name in ("tasks", "warm_start", "preferences", "reward_model", "critic"):
        folder = tmp_path / "inputs" / name
        folder.mkdir(parents=True)
        (folder / "data").write_text(name)
        artifacts.write_manifest(folder, stage=name, parameters={}, inputs={}, metrics={})
        made[name] = str(folder)
    return made


@pytest.fixture
def step(store, inputs, tmp_path, monkeypatch):
    """Call the step against a cluster whose pods do what `pods` does; returns (what it returned, server, said)."""
    store.bucket(BUCKET)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def call(pods, *, own_pods=(), faults=(), **changes):
        said = []
        with ControlledServer(pods) as server:
            server.pods, server.faults = list(own_pods), list(faults)
            monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
            usual = {
                "stage": "policy",
                "record": RECORD,
                "inputs": inputs,
                "output": f"s3://{BUCKET}/{tmp_path.name}",
                "run_id": RUN,
                "attempt": 1,
                "say": said.append,
                "cluster": {},
            }
            given = {**usual, **changes}
            given["cluster"] = {"image": IMAGE, "nodes": 2, "poll_seconds": 0.01, **given["cluster"]}
            try:
                return run_as_job(**given), server, said
            finally:
                call.jobs = list(server.jobs.values())

    call.jobs = []
    return call


def request_of(job):
    return read_request(job["spec"]["trainer"]["args"][-1], Storage(FakeTime().clock()))


def publish(job, folder):
    """What the pods of a job do in the end."""
    request, keeper = request_of(job), Storage(FakeTime().clock())
    folder.mkdir(exist_ok=True)
    (folder / "model").write_text("weights")
    parameters = load_stage("policy").parameters(parse_config(request.record, source="test"))
    digests = {name: keeper.manifest(uri).digest for name, uri in request.inputs.items()}
    artifacts.write_manifest(folder, stage="policy", parameters=parameters, inputs=digests, metrics=METRICS)
    keeper.write_note(request.result, {"uri": keeper.publish(folder, request.output)})
    return [(0, ""), (0, "")]


def test_a_step_returns_metrics_and_place_of_what_the_pods_published(step, tmp_path, inputs):
    result, server, said = step(lambda job: publish(job, tmp_path / "made"))
    digest = artifacts.read_manifest(tmp_path / "made").digest
    (job,) = server.jobs.values()
    record = request_of(job).result.removesuffix("json")
    assert result == {
        **METRICS,
        "uri": f"s3://{BUCKET}/{tmp_path.name}/{RUN}/{digest}",
        "trainjob": f"{record}trainjob.json",
    }
    assert problems(job) == []
    trainer = job["spec"]["trainer"]
    assert (trainer["command"], trainer["args"][:2]) == (["geartrain"], ["node", "--request"])
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 1)
    assert {entry["name"]: entry["value"] for entry in trainer["env"]} == {
        "GEARTRAIN_HOME": f"/work/{RUN}/policy",
        "GEARTRAIN_IMAGE_DIGEST": IMAGE.rpartition("@")[2],
        "GEARTRAIN_RUN_ID": RUN,
        "OMP_NUM_THREADS": "2",
    }
    assert request_of(job).inputs == inputs
    assert any("Complete" in line for line in said)


def test_pods_that_were_given_gpus_are_told_to_find_them(step, tmp_path):
    step(lambda job: publish(job, tmp_path / "made"), cluster={"gpus": 1})
    (job,) = step.jobs
    assert {"name": "GEARTRAIN_DEVICE", "value": "cuda"} in job["spec"]["trainer"]["env"]


def test_what_ran_and_how_it_ended_can_be_read_beside_the_artifact(step, tmp_path):
    result, *_ = step(lambda job: publish(job, tmp_path / "made"))
    keeper = Storage(FakeTime().clock())
    (job,) = step.jobs
    submitted = keeper.read_note(result["trainjob"])
    assert submitted["metadata"].items() <= job["metadata"].items()
    assert submitted["spec"].items() <= job["spec"].items()
    assert submitted["spec"]["trainer"]["image"] == IMAGE
    ended = keeper.read_note(result["trainjob"].replace(".trainjob.", ".status."))
    assert (ended["outcome"]["exit_code"], ended["outcome"]["name"]) == (0, job["metadata"]["name"])
    assert "Complete" in {condition["type"] for condition in ended["status"]["conditions"]}
    with pytest.raises(UserError):
        step(lambda job: [(2, "as it must")], record={**RECORD, "seed": 1})
    (failed,) = step.jobs
    ended = keeper.read_note(request_of(failed).result.removesuffix("json") + "status.json")
    assert (ended["outcome"]["exit_code"], ended["outcome"]["phase"]) == (2, "Failed")


def test_a_repeated_step_starts_nothing(step, tmp_path):
    first, *_ = step(lambda job: publish(job, tmp_path / "made"))

    def never(job):
        raise AssertionError

    second, server, said = step(never, attempt=2)  # another server: the job was reaped meanwhile
    assert first == second
    assert server.requests == []
    assert said == [f"policy: is published already: {first['uri']}"]


def test_inputs_that_changed_under_their_names_are_trained_on_anew(step, tmp_path, inputs):
    step(lambda job: publish(job, tmp_path / "made"))
    folder = Path(inputs["critic"])
    (folder / "data").write_text("other bytes at the same place")
    artifacts.write_manifest(folder, stage="critic", parameters={}, inputs={}, metrics={})
    with pytest.raises(InfrastructureError, match="made from other parameters or inputs than are asked for now"):
        step(lambda job: [(0, ""), (0, "")])
    assert len(step.jobs) == 1


def test_another_record_is_another_result(step, tmp_path):
    step(lambda job: publish(job, tmp_path / "made"))
    (first,) = step.jobs
    with pytest.raises(UserError, match="as it must"):
        step(lambda job: [(2, "as it must")], record={**RECORD, "policy": {"iterations": 3}})
    (second,) = step.jobs
    assert request_of(first).result != request_of(second).result


WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "geartrain-x7k2p", "uid": "w-1"}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "c-1"}


def launching_pod(*owners, uid="p-1"):
    """The pod of the step; Argo makes its Workflow the owner of it, and says so for sure."""
    owned = [{**owner, "controller": True, "blockOwnerDeletion": True} for owner in owners]
    return {"metadata": {"name": "geartrain-x7k2p-policy-1", "uid": uid, "ownerReferences": owned}}


@pytest.fixture
def in_a_pod(monkeypatch):
    monkeypatch.setenv("GEARTRAIN_POD", "geartrain-x7k2p-policy-1")
    monkeypatch.setenv("GEARTRAIN_POD_UID", "p-1")


def test_a_job_goes_with_the_workflow_of_its_step_not_with_the_pod(step, tmp_path, in_a_pod):
    step(lambda job: publish(job, tmp_path / "made"), own_pods=[launching_pod(OTHER, WORKFLOW)])
    (job,) = step.jobs
    # no "controller", which Kueue would look up, and no "blockOwnerDeletion", which needs a right to the Workflow
    assert job["metadata"]["ownerReferences"] == [WORKFLOW]


@pytest.mark.parametrize(
    ("pods", "faults", "why"),
    [
        ([], [], "is not in the namespace of the job"),
        ([launching_pod(WORKFLOW, uid="of a namesake in another namespace")], [], "is not in the namespace of the job"),
        ([launching_pod(OTHER)], [], "is no part of a Workflow"),
        ([launching_pod(WORKFLOW)], [Fault(403, path="pods/", times=9)], "could not be looked at"),
    ],
)
def test_an_owner_that_is_not_certain_is_not_named(step, tmp_path, in_a_pod, pods, faults, why):
    _, _, said = step(lambda job: publish(job, tmp_path / "made"), own_pods=pods, faults=faults)
    (job,) = step.jobs
    assert "ownerReferences" not in job["metadata"]
    (line,) = [line for line in said if "no owner" in line]
    assert why in line
    assert "geartrain reap" in line


def test_a_mistake_in_the_pods_is_a_mistake_here(step):
    with pytest.raises(UserError, match=r"exited with 2 \(rank 1: no signal\)"):
        step(lambda job: [(75, "connection reset"), (2, "rank 1: no signal")])


def test_trouble_in_the_pods_is_trouble_here(step):
    with pytest.raises(InfrastructureError, match=r"exited with 137 .*out of memory"):
        step(lambda job: [(137, "out of memory?"), (75, "connection reset")])


def test_pods_that_end_well_and_publish_nothing_are_not_believed(step):
    with pytest.raises(InfrastructureError, match=r"Complete, but its output is not whole: .*nothing is published yet"):
        step(lambda job: [(0, ""), (0, "")])


def test_a_queue_that_is_too_long_has_its_own_error(step, monkeypatch):
    monkeypatch.setattr(ControlledServer, "_control", lambda self, job: None)
    with pytest.raises(QueueError, match="queued"):
        step(lambda job: [], cluster={"queue_seconds": 0.05})


def test_a_long_request_goes_through_the_store(step, tmp_path, store):
    record = {**RECORD, "environment": {"name": "twophase", "source": "x" * 70_000}}
    result, server, _ = step(lambda job: publish(job, tmp_path / "made"), record=record)
    (job,) = server.jobs.values()
    argument = job["spec"]["trainer"]["args"][-1]
    assert argument.startswith(f"s3://{BUCKET}/{tmp_path.name}/{RUN}/policy-")
    assert request_of(job).record == record
    assert result["uri"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"record": {**RECORD, "environment": {"name": "twophase", "source": "x" * 2**20}}}, "the limit is 1048576"),
        ({"cluster": {"node": 3}}, "cluster settings of stage policy: 1 problem.*did you mean 'nodes'"),
        ({"cluster": {"image": "geartrain/train:latest"}}, "carries no digest"),
        ({"cluster": {"memory": "64 GB"}}, "memory is '64 GB'; write text such as"),
        ({"record": {"policy": {"iteration": 3}}}, "stage policy: 1 problem.*did you mean 'iterations'"),
        (
            {"stage": "critic", "inputs": {}, "cluster": {"nodes": 1}},
            r"stage critic reads \['collect', 'preferences', 'warm_start'\], not \[\]",
        ),
        ({"stage": "critic", "record": {}}, "cluster settings of stage critic.*runs in one process: nodes 1"),
        ({"stage": "critic", "record": {}, "cluster": {"nodes": 1, "gpus": 2}}, "each process uses one GPU"),
        ({"stage": "critics"}, "critics"),
        ({"inputs": {"tasks": "gs://x/y"}}, "gs://…"),
        ({"output": "gs://x/y"}, "gs://…"),
        ({"output": "s3://key:hush@bucket/x"}, "may not carry keys"),
    ],
)
def test_what_cannot_work_is_refused_before_the_cluster_hears_of_it(changes, reason, step):
    with pytest.raises(UserError, match=f"(?s){reason}"):
        step(lambda job: [], **changes)
    assert step.jobs == []


def test_an_input_that_is_not_there_is_found_before_anything_is_queued(step, inputs):
    with pytest.raises(UserError, match=r"no manifest\.json"):
        step(lambda job: [], inputs={**inputs, "critic": "s3://steps/nowhere"})
    assert step.jobs == []


def test_a_job_is_a_function_of_its_settings(step, inputs):
    given = (RECORD, inputs, "s3://steps/x/", RUN)
    assert stage_job.make_request("policy", *given) == stage_job.make_request("policy", *given)
    section = {
        "nodes": 3,
        "processes_per_node": 8,
        "gpus": 8,
        "cpu": "64",
        "memory": "900Gi",
        "queue": "other",
        "priority_class": "low",
        "node_selector": {"pool": "h200"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "variables": {"NCCL_DEBUG": "WARN"},
        "work": "/shared/work/",
        "run_seconds": 100,
        "start_seconds": 50.5,
    }
    with pytest.raises(UserError):
        step(lambda job: [(2, "enough")], cluster=section)
    (job,) = step.jobs
    labels = job["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "other"
    assert labels["kueue.x-k8s.io/priority-class"] == "low"
    trainer = job["spec"]["trainer"]
    amounts = {"cpu": "64", "memory": "900Gi", "nvidia.com/gpu": "8"}
    assert trainer["resourcesPerNode"] == {"requests": amounts, "limits": amounts}
    assert job["spec"]["activeDeadlineSeconds"] == 151
    pod = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    assert pod["template"]["spec"]["template"]["spec"] == {
        "nodeSelector": {"pool": "h200"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    variables = {entry["name"]: entry["value"] for entry in trainer["env"]}
    assert variables["NCCL_DEBUG"] == "WARN"
    assert variables["GEARTRAIN_HOME"] == f"/shared/work/{RUN}/policy"
    assert "AWS" not in json.dumps(job)
    assert "testing" not in json.dumps(job)
