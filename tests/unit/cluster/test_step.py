import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from geartrain.artifacts import verify, write_json
from geartrain.cluster import step
from geartrain.cluster.failures import evidence, explain
from geartrain.config import Config
from geartrain.errors import InfrastructureError, QueueError, UserError
from geartrain.stages.stage import Job, StageSpec, _run

MARKS = {"dataset_rev": "v3", "dataset_digest": "sha256:d", "image_digest": "sha256:i"}
RECORD = {"seed": 3, "threads": 1, "promotion": {"min_gain": 0.5}}


class Numbers(dict):
    def log_metric(self, name: str, value: float) -> None:
        self[name] = value


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """A step listens to SIGTERM; the process of the tests shall die of it."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEARTRAIN_HOME", raising=False)
    return SimpleNamespace(uri="s3://bucket/run/policy", path=str(tmp_path / "made"), metadata={})


def stage(job: Job) -> dict[str, Any]:
    write_json(job.outputs["promotion"] / "made.json", {"gain": job.config.promotion.min_gain})
    return {"promoted": 1, "nested": {"share": 0.5}, "text": "left out"}


def run(config: Config, inputs: Any, outputs: Any) -> dict[str, Any]:
    return _run(run.spec, stage, config, inputs, outputs, SimpleNamespace(size=1, leads=True, **ALONE))


ALONE = {"gather": lambda value: [value], "first": lambda value: value}
run.spec = StageSpec("promotion", (), ("promotion",), run)  # type: ignore[attr-defined]


def test_a_step_runs_its_stage_and_shows_what_it_made(output: SimpleNamespace) -> None:
    numbers = Numbers()
    told = step.run_step(run, RECORD, {}, output, numbers, MARKS)
    assert told["promoted"] == 1
    assert numbers == {"promoted": 1.0, "nested.share": 0.5}
    manifest = verify(Path(output.path))
    assert output.metadata == {**MARKS, "digest": manifest.digest, "code": manifest.code}
    assert all(isinstance(value, str) for value in output.metadata.values())
    assert manifest.parameters["promotion"]["min_gain"] == 0.5


def test_a_wrong_setting_is_the_step_s_last_line(output: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        step.run_step(run, {**RECORD, "promotion": {"min_gian": 1}}, {}, output, Numbers(), MARKS)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "did you mean 'min_gain'?" in said.splitlines()[-2]
    assert said.splitlines()[-1].startswith("error: UserError, exit code 2: promotion: task promotion: 1 problem")


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (UserError("a\nb"), 2, "user"),
        (InfrastructureError("x" * 600), 75, "infrastructure"),
        (QueueError("two hours"), 76, "infrastructure"),
        (OSError(28, "No space left on device"), 75, "infrastructure"),
    ],
)
def test_status_reads_the_reason_from_the_log(
    error: Exception, code: int, kind: str, output: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, step.reported("policy"):
        raise error
    assert ended.value.code == code
    log = capsys.readouterr().err
    assert explain("policy", evidence(log)).kind == kind  # without the launcher's own words
    launcher = f"{log}F1130 10:00:00.000000      17 main.go:49] failed to execute component: exit status {code}\n"
    assert explain("policy", evidence(launcher)).kind == kind
    assert json.loads(Path(".geartrain/failure.json").read_text())["exit_code"] == code


def test_a_fault_keeps_its_traceback_and_leaves_a_note(output: SimpleNamespace) -> None:
    with pytest.raises(PermissionError), step.reported("policy"):
        raise PermissionError(13, "Permission denied")
    assert json.loads(Path(".geartrain/failure.json").read_text())["kind"] == "PermissionError"


def published(asked: list[dict[str, Any]], answer: dict[str, Any]) -> step.Launch:
    def launch(**arguments: Any) -> dict[str, Any]:
        asked.append(arguments)
        return answer

    return launch


def test_a_launched_stage_s_output_stays_where_the_job_put_it(
    output: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEARTRAIN_RUN_ID", "run-1")
    asked: list[dict[str, Any]] = []
    place = f"s3://bucket/run/policy/{'a' * 64}"
    answer = {
        "uri": place,
        "trainjob": "s3://bucket/run/policy/job.json",
        "kind": "gear_a",
        "reward": 0.5,
        "nested": {"bytes": 7},
    }
    numbers = Numbers()
    tasks = SimpleNamespace(uri="s3://bucket/run/tasks", path="/nowhere", metadata={})
    amounts = {"cpu": "64", "memory": "900Gi"}
    resources = {"limits": {"memory": "900Gi", "nvidia.com/gpu": "8"}, "requests": amounts}
    task_config = SimpleNamespace(resources=resources, tolerations=[], node_selector=None)
    step.launch_step(
        published(asked, answer),
        "policy",
        {"seed": 3},
        {"tasks": tasks},
        output,
        numbers,
        MARKS,
        cluster={"nodes": 2},
        task_config=task_config,
    )
    (call,) = asked
    say = call.pop("say")
    assert callable(say)
    assert call == {
        "stage": "policy",
        "record": {"seed": 3},
        "inputs": {"tasks": "s3://bucket/run/tasks"},
        "output": "s3://bucket/run/policy",
        "data": {},
        "cluster": {"nodes": 2, "cpu": "64", "memory": "900Gi", "gpus": 8, "processes_per_node": 8},
        "run_id": "run-1",
        "attempt": 1,
    }
    assert output.uri == place
    assert output.metadata == {**MARKS, "uri": place, "trainjob": answer["trainjob"], "digest": "a" * 64}
    assert numbers == {"reward": 0.5, "nested.bytes": 7.0}
    assert not Path(output.path).exists()


@pytest.mark.parametrize(("variables", "answer"), [({}, {"uri": "s3://b/x"}), ({"GEARTRAIN_RUN_ID": "1"}, {})])
def test_a_launch_without_a_run_or_an_address_is_refused(
    variables: dict[str, str],
    answer: dict[str, Any],
    output: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GEARTRAIN_RUN_ID", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        step.launch_step(published([], answer), "policy", {}, {}, output, Numbers(), MARKS, cluster={"nodes": 1})
    assert output.uri == "s3://bucket/run/policy"


def test_what_cluster_says_overrides_the_task() -> None:
    resources = {"limits": {"cpu": "8", "nvidia.com/gpu": 4}}
    task = SimpleNamespace(resources=resources, node_selector={"zone": "a"}, tolerations=[{"key": "gpu"}])
    told = step.with_task_config({"node_selector": {"zone": "b"}, "processes_per_node": 2}, task)
    assert told == {
        "cpu": "8",
        "node_selector": {"zone": "b"},
        "processes_per_node": 2,
        "tolerations": [{"key": "gpu"}],
    }
    nothing = SimpleNamespace(resources=None, node_selector=None, tolerations=None)
    assert step.with_task_config({"nodes": 2}, nothing) == step.with_task_config({"nodes": 2}, None) == {"nodes": 2}


def test_a_run_decides_whether_a_stage_is_launched(
    output: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (run, RECORD, {}, output, Numbers(), MARKS)
    step.run_or_launch(*given, cluster={}, task_config=None)
    assert verify(Path(output.path)).stage == "promotion"
    monkeypatch.setenv("GEARTRAIN_RUN_ID", "run-1")
    with pytest.raises(SystemExit, match="2"):
        step.run_or_launch(*given, cluster={"image": "x:latest"}, task_config=None)
    assert "cluster settings of stage promotion: 1 problem(s)\n  image: carries no digest" in capsys.readouterr().err
    monkeypatch.setenv("GEARTRAIN_LAUNCH_ONLY", "1")
    with pytest.raises(SystemExit, match="2"):
        step.run_or_launch(*given, cluster={}, task_config=None)
    assert "its own pod is too small" in capsys.readouterr().err.replace("\n", " ")


def test_a_launcher_s_pod_runs_no_stage(output: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    step.require_room("policy")
    monkeypatch.setenv("GEARTRAIN_LAUNCH_ONLY", "1")
    with pytest.raises(SystemExit, match="2"):
        step.require_room("policy")


def test_the_process_ends_with_the_code(tmp_path: Path) -> None:
    code = "from geartrain.cluster.step import reported\nfrom geartrain.errors import InfrastructureError\n"
    code += "with reported('collect'):\n    raise InfrastructureError('no network')\n"
    variables = {**os.environ, "GEARTRAIN_HOME": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=variables)
    assert ended.returncode == 75
    assert ended.stderr == "error: InfrastructureError, exit code 75: collect: no network\n"
