"""One node of a job, from its request to the note of what it has published; torchrun and the stage are real."""

import json
import os
import subprocess
import sys

import pytest

from geartrain import artifacts
from geartrain.cluster.node import leave_message, published, read_request, run_node, whole_record
from geartrain.cluster.section import Request
from geartrain.cluster.storage import Storage
from geartrain.config import parse_config
from geartrain.config_file import check_together, missing_files, read_record
from geartrain.errors import InfrastructureError, UserError
from geartrain.places import locate
from geartrain.stages.stage import ORDER, load_stage
from tests.fakes.console import geartrain
from tests.fakes.object_store import Fault

BUCKET = "node"
RECORD = {
    "seed": 3,
    "threads": 1,
    "environment": {"name": "twophase"},
    "tasks": {"train": 4, "val": 2, "test": 2, "ood": 1, "paraphrase": 0},
}
POLICY = {"seed": 0, "threads": 1, "model": {"kind": "tiny"}, "environment": {"name": "twophase"}, "policy": {}}


@pytest.fixture
def keeper(time):
    return Storage(time.clock())


@pytest.fixture
def request_(store, tmp_path):
    store.bucket(BUCKET)
    prefix = f"s3://{BUCKET}/{tmp_path.name}/out put"
    return Request(stage="tasks", record=RECORD, inputs={}, output=prefix, result=f"{prefix}/tasks.json")


def start(text, tmp_path, code=0):
    """`geartrain node` as a pod runs it: exit code, what it said, the container's message."""
    message = tmp_path / "termination-log"
    message.touch()
    environment = {
        **os.environ,
        "GEARTRAIN_HOME": str(tmp_path / "work"),
        "GEARTRAIN_CACHE": str(tmp_path / "cache"),
        "GEARTRAIN_TERMINATION_LOG": str(message),
    }
    command = [sys.executable, "-m", "geartrain", "node", "--request", text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    return done.stderr, message.read_text()


def test_a_stage_is_run_and_published_once(request_, store, keeper, tmp_path):
    said, message = start(request_.model_dump_json(), tmp_path)
    uri = published(request_, keeper)
    assert f"tasks: published {uri}" in said
    assert message == ""
    manifest = keeper.inspect(uri)
    assert manifest.stage == "tasks"
    assert (manifest.parameters["seed"], manifest.parameters["tasks"]["train"]) == (3, 4)
    assert store.sent[-1].endswith("/tasks.json")  # the note, once all else is there
    assert store.sent[-2].endswith("/manifest.json")
    assert not (tmp_path / "work/output/tasks").exists()
    sent = len(store.sent)
    keeper.write_note(f"s3://{BUCKET}/request.json", request_.model_dump())
    said, _ = start(f"s3://{BUCKET}/request.json", tmp_path)
    assert "is published already" in said
    assert len(store.sent) == sent + 1


def test_a_mistake_is_the_container_s_message(request_, tmp_path):
    record = {**RECORD, "tasks": {"trains": 3}}
    said, message = start(request_.model_copy(update={"record": record}).model_dump_json(), tmp_path, code=2)
    assert message == "the TrainJob's request: 1 problem(s)\n  tasks.trains: unknown key; did you mean 'train'?"
    assert f"error: {message}" in said


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stage": "policies"}, "no stage 'policies'"),
        ({"inputs": {"critic": "/c"}}, r"stage tasks reads \[\], not \['critic'\]"),
        ({"stage": "policy", "record": POLICY}, "stage policy reads"),
        ({"result": "gs://x/y"}, "gs://…: artifacts are read from"),
        ({"output": "gs://x/y"}, "gs://…: artifacts are read from"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(changes, reason, request_, keeper, time, tmp_path):
    wrong = request_.model_copy(update=changes)
    with pytest.raises(UserError, match=reason):
        run_node(wrong, keeper, time.clock(), print, {"GEARTRAIN_HOME": str(tmp_path / "work")})
    assert not (tmp_path / "work").exists()


def test_who_may_not_look_at_the_result_hears_of_it_first(request_, keeper, store, time):
    store.faults.append(Fault(403, "AccessDenied", path="tasks.json"))
    with pytest.raises(UserError, match=r"tasks\.json: could not be read: the store refuses"):
        run_node(request_, keeper, time.clock(), print, {})


def test_a_stage_of_one_process_refuses_two(request_, keeper, time):
    environment = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2"}
    with pytest.raises(UserError, match="stage tasks runs in one process, not in 2"):
        run_node(request_, keeper, time.clock(), print, environment)


def test_sigterm_while_fetching_is_no_mistake(request_, keeper, store, time):
    time.stop_after = 1
    store.faults.append(Fault(times=10**6))
    with pytest.raises(InfrastructureError, match="stopped by SIGTERM"):
        run_node(request_, keeper, time.clock(), print, {})


def test_an_artifact_that_is_harmed_does_not_count_as_published(request_, keeper, tmp_path):
    (tmp_path / "made/a").mkdir(parents=True)
    (tmp_path / "made/a/x").write_text("x")
    parameters = load_stage("tasks").parameters(parse_config(RECORD, source="test"))
    artifacts.write_manifest(tmp_path / "made", stage="tasks", parameters=parameters, inputs={}, metrics={})
    uri = keeper.publish(tmp_path / "made", request_.output)
    assert published(request_, keeper) is None  # there is no note yet
    keeper.write_note(request_.result, {"uri": uri})
    assert published(request_, keeper) == uri
    (locate(uri) / "a/x").write(b"y")
    assert published(request_, keeper) is None


@pytest.mark.parametrize("stage", ORDER)
@pytest.mark.parametrize("profile", ["smoke", "demo"])
def test_the_sections_of_any_stage_make_a_whole_configuration(stage, profile, root):
    given = read_record(root / f"profiles/{profile}.yaml")
    spec = load_stage(stage)
    part = {name: given[name] for name in ("seed", "threads", *spec.sections)}
    whole = parse_config(whole_record(part), source="test")
    check_together(whole, source="test")
    assert spec.parameters(whole) == spec.parameters(parse_config(given, source="test"))
    assert "environment" in spec.sections or missing_files(whole, roots=[root]) == []


def test_large_batches_of_a_policy_fit():
    part = {"policy": {"tasks_per_iteration": 5000}}
    assert check_together(parse_config(whole_record(part), source="test"), source="test").tasks.train == 5000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON"),
        ('{"stage": "tasks"}', "record: is missing"),
        ("/no/such/file.json", "there is no such file or object"),
    ],
)
def test_a_request_that_is_none_is_refused(text, reason, keeper):
    with pytest.raises(UserError, match=reason):
        read_request(text, keeper)


def test_a_request_is_json_and_not_yaml(request_, keeper):
    """YAML takes 1e-05 for text."""
    request = request_.model_copy(update={"record": {"policy": {"learning_rate": 1e-05}}})
    assert read_request(json.dumps(request.model_dump()), keeper) == request


def test_help_has_an_example():
    assert "geartrain node --request request.json" in geartrain("node", "--help")


def test_without_a_place_no_message_is_left(tmp_path):
    leave_message(UserError("why"), {"GEARTRAIN_TERMINATION_LOG": str(tmp_path / "log")})
    assert not (tmp_path / "log").exists()
    (tmp_path / "log").touch()
    leave_message(ZeroDivisionError("x" * 5000), {"GEARTRAIN_TERMINATION_LOG": str(tmp_path / "log")})
    assert (tmp_path / "log").read_text().startswith("ZeroDivisionError: xxx")
    assert (tmp_path / "log").stat().st_size <= 4096
