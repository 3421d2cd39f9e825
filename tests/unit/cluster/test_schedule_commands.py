"""`geartrain schedule …` as a person meets it, against the HTTP fake: output, exit codes, what was sent."""

import json
import re
from pathlib import Path

import pytest
import yaml

from geartrain import operations
from tests.fakes.bench import IMAGE
from tests.fakes.console import INPUTS, fill, geartrain, write_schedule
from tests.fakes.kubeflow_server import KubeflowServer
from tests.fakes.pipeline import write_pipeline

ROOT = Path(__file__).parents[3]
DIGEST = "registry.example.org/geartrain@sha256:" + "0" * 64


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


def schedule(command, *arguments, code=0):
    extra = ("--package", "training.yaml") if command in ("plan", "apply", "render") else ()
    return geartrain("schedule", command, *extra, *arguments, code=code)


def test_a_schedule_from_plan_to_deletion(server):
    assert re.search(r"create +nightly +nightly-[0-9a-f]{12} +new in git", schedule("plan"))
    assert not [line for line in server.seen if line.startswith(("POST", "DELETE"))]
    schedule("plan", "--check", code=2)
    assert [line.split()[0] for line in schedule("apply").splitlines()] == ["create", "enable"]
    assert schedule("apply") == "nothing to do: the server is as git says\n"
    assert "keep" in schedule("plan", "--check")
    (item,) = server.state.recurring.values()
    assert (item["no_catchup"], item["max_concurrency"], item["mode"]) == (True, "1", "ENABLE")
    server.state.finish(server.state.fire(item["recurring_run_id"]), "SUCCEEDED")
    shown = schedule("list").splitlines()[1]
    assert re.search(r"nightly +nightly-\w+ +on +0 0 2 \* \* \* +.* 02:00Z, .* 02:00Z +succeeded", shown)
    assert geartrain("runs", "--schedule", "nightly").count("nightly") == 2
    write_schedule("0 0 3 * * *")
    assert [line.split()[0] for line in schedule("apply").splitlines()] == ["create", "disable", "enable", "delete"]
    Path("schedules/nightly.yaml").unlink()
    assert [line.split()[0] for line in schedule("apply").splitlines()] == ["disable", "delete"]
    assert server.state.recurring == {}


def test_pause_and_resume_change_the_server_and_git_wins_later(server):
    schedule("apply")
    assert "paused" in schedule("pause", "nightly")
    assert "was off already" in schedule("pause", "nightly")
    assert "it is off on the server, git says enabled: true" in schedule("plan")
    assert "on (nightly-" in schedule("resume", "nightly")
    assert "is on already" in schedule("resume", "nightly")
    schedule("pause", "nightly")
    assert schedule("apply").startswith("enable")
    assert "no schedule 'weekly' on the server; there are: nightly" in schedule("pause", "weekly", code=2)


def test_an_upgrade_of_the_platform_is_seen_as_drift(server):
    schedule("apply")
    server.state.health["tag_name"] = "2.17.2"
    assert "drift: platform 2.17.1 -> 2.17.2" in schedule("plan")
    schedule("apply")
    assert len(server.state.recurring) == 1


def test_a_fault_in_the_middle_is_made_up_for_by_the_next_apply(server):
    server.fail("enable$", status=500, times=9)
    schedule("apply", code=75)
    server.faults.clear()
    assert [line.split()[0] for line in schedule("apply").splitlines()] == ["enable"]


def test_a_schedule_describes_its_training_job(server):
    Path("schedules/nodes").mkdir()
    Path("schedules/nodes/four.yaml").write_text(yaml.safe_dump({"image": IMAGE, "nodes": 4}))
    write_schedule("0 0 2 * * *", cluster="nodes/four.yaml")
    schedule("apply")
    (item,) = server.state.recurring.values()
    assert item["runtime_config"]["parameters"]["cluster"] == {"image": IMAGE, "nodes": 4}
    Path("schedules/nodes/four.yaml").write_text(yaml.safe_dump({"image": IMAGE, "nodes": 5}))
    assert "drift: parameters" in schedule("plan")


@pytest.mark.parametrize("command", [("plan",), ("apply",), ("render", "--argo", "--image", DIGEST)])
def test_a_schedule_where_the_policy_needs_a_job_describes_it(server, command):
    write_pipeline(Path("training.yaml"), inputs=INPUTS, launches="policy")
    assert "in a schedule the key `cluster`" in schedule(*command, code=2)
    assert not [line for line in server.seen if line.startswith("POST")]
    Path("four.yaml").write_text(yaml.safe_dump({"image": IMAGE, "nodes": 4}))
    write_schedule("0 0 2 * * *", cluster="../four.yaml")
    assert "nightly" in schedule(*command)


def test_a_folder_that_is_missing_says_where_schedules_lie(server):
    assert "Schedules lie in schedules/" in schedule("apply", "--schedules", "elsewhere", code=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cron": "0 2 * * *"}, r"You mean '0 0 2 \* \* \*'"),
        ({"crom": "x"}, "crom: unknown key; did you mean 'cron'"),
        ({"name": "weekly"}, "is named after its file"),
        ({"name": "Nightly!"}, "small letters"),
        ({"enabled": "yes"}, "enabled: expected bool, found str 'yes'"),
        ({"profile": "demo"}, "give one of them"),
        ({"owner": ""}, "owner: missing"),
        ({"settings": ["policy.iterationz=1"]}, "did you mean 'iterations'"),
        ({"params": "nowhere.yaml"}, "nowhere.yaml"),
        ({"cluster": "nowhere.yaml"}, "nowhere.yaml: no such file. It holds what the training job asks for"),
    ],
)
def test_a_wrong_schedule_changes_nothing(server, changes, message):
    write_schedule(**{"cron": "0 0 2 * * *", **changes})
    assert re.search(message, schedule("apply", code=2))
    assert not [line for line in server.seen if line.startswith("POST")]


def test_argo_gets_the_same_schedule_with_all_that_it_needs(monkeypatch):
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    four = yaml.safe_dump({"image": IMAGE, "nodes": 4, "critic": {"cpu": "8"}})
    Path("four.yaml").write_text(four)
    pin = {"path": "raw.json", "revision": "v3", "md5": "1" * 32, "uri": "s3://team/11/1", "sha256": "2" * 64}
    Path("pins.json").write_text(json.dumps({"environment.source": pin}))
    write_schedule("0 30 2 * * MON-FRI", dataset_rev="v3", cluster="../four.yaml", data=["@pins.json"])
    text = schedule("render", "--argo", "--image", DIGEST)
    assert text == schedule("render", "--argo", "--image", DIGEST, "nightly")
    files, workflow = yaml.safe_load_all(text)
    assert yaml.safe_load(files["data"]["params.yaml"])["policy"]["iterations"] == 2
    assert files["data"]["training.yaml"] == Path("training.yaml").read_text()
    assert files["data"]["cluster.yaml"] == four
    spec = workflow["spec"]
    assert (spec["schedules"], spec["timezone"], spec["concurrencyPolicy"]) == (
        ["30 2 * * MON-FRI"],
        "Etc/UTC",
        "Forbid",
    )
    assert (spec["startingDeadlineSeconds"], spec["suspend"], "schedule" in spec) == (600, False, False)
    container = spec["workflowSpec"]["templates"][0]["container"]
    assert container["command"] == ["geartrain", "submit"]
    given = ["--cluster=/etc/geartrain/cluster.yaml", "--data=@/etc/geartrain/data.json", "--dataset-rev=v3"]
    assert container["args"][-3:] == given
    assert json.loads(files["data"]["data.json"])["environment.source"].items() >= pin.items()
    assert container["securityContext"]["readOnlyRootFilesystem"]
    volume = spec["workflowSpec"]["volumes"][0]
    assert volume["configMap"]["name"] == files["metadata"]["name"]
    # the arguments are ones that our own command line takes
    Path("files").mkdir()
    for name, content in files["data"].items():
        Path("files", name).write_text(content)
    arguments = [part.replace("/etc/geartrain", "files") for part in container["args"]]
    shown = geartrain("submit", "--dry-run", *arguments)
    wanted = {"policy.iterations: 2 (default 30)", "cluster.nodes: 4 (default: none)"}
    assert "data.environment.source: " in shown
    assert wanted | {'critic_cluster.cpu: "8" (default: none)'} <= set(shown.splitlines())


def test_argo_is_refused_what_it_cannot_keep():
    assert "give it with its digest" in schedule("render", "--argo", "--image", "geartrain:dev", code=2)
    write_schedule("5 0 2 * * *")
    assert "no seconds" in schedule("render", "--argo", "--image", DIGEST, code=2)
    assert "no schedule 'weekly'" in schedule("render", "--argo", "weekly", code=2)
    assert "give --argo" in schedule("render", code=2)


def test_the_sample_schedule_is_valid_and_compiles_with_the_real_pipeline():
    shown = geartrain("schedule", "render", "--argo", "--image", DIGEST, "--schedules", str(ROOT / "schedules"))
    assert len(list(yaml.safe_load_all(shown))) == 2 * len(list((ROOT / "schedules").glob("*.yaml")))
