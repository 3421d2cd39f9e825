"""From a Kubeflow step to an artifact in a bucket: stages as TrainJobs, the policy on two nodes, without a cluster.

The API server and the bucket are fakes on 127.0.0.1, the client, the launcher, the pods' command, torchrun and the
training are the real ones. A pod is a process: its user, its read-only root and its network are not tried here.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from geartrain import artifacts, places
from geartrain.cluster.jobs import JOBS
from geartrain.cluster.patience import until_terminated
from geartrain.cluster.stage_job import run_as_job
from geartrain.cluster.storage import Storage
from geartrain.config_file import read_record
from geartrain.errors import UserError
from geartrain.stages.stage import FOLDERS, load_stage
from tests.fakes.bench import IMAGE
from tests.fakes.controller import ControlledServer, Pods
from tests.fakes.object_store import ObjectStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RUN = "5f0c7c4e-9b1d-4a55-8a38-6f1f0b9a2a11"
BUCKET = "artifacts"
INPUTS = {stage: load_stage(stage).inputs for stage in JOBS}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A workspace with everything that the policy stage reads."""
    folder = tmp_path_factory.mktemp("prepared")
    command = ["run", "--profile", str(root / "profiles/smoke.yaml"), "--dir", str(folder), "--until", "critic"]
    settings = ["--set", "environment.name=twophase"]
    subprocess.run([sys.executable, "-m", "geartrain", *command, *settings], check=True, cwd=root)
    return folder


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        places._bucket_store.cache_clear()
        running.bucket(BUCKET)
        yield running
        places._bucket_store.cache_clear()


@pytest.fixture(scope="module")
def inputs(prepared: Path, store: ObjectStore) -> dict[str, str]:
    """The inputs in the bucket."""
    names = sorted({name for names in INPUTS.values() for name in names})
    with until_terminated() as clock:
        return {name: Storage(clock).publish(prepared / FOLDERS[name], f"s3://{BUCKET}/{name}") for name in names}


@pytest.fixture
def step(
    prepared: Path, inputs: dict[str, str], store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Run the step; `step.pods` are the nodes, `step.server` has the job."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    record = read_record(prepared / "params.yaml")
    pods = Pods(tmp_path, {"GEARTRAIN_CACHE": str(tmp_path / "cache"), **store.environment})

    def call(
        *, stage: str = "policy", nodes: int = 2, run: str = RUN, restarts: int = 0, **changes: Any
    ) -> dict[str, Any]:
        part = {name: record[name] for name in ("seed", "threads", *load_stage(stage).sections)}
        part[stage] = {**part[stage], **changes}
        with ControlledServer(pods.run, restarts=restarts) as server:
            call.server = server  # type: ignore[attr-defined]
            monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
            return run_as_job(
                stage=stage,
                record=part,
                inputs={name: inputs[name] for name in INPUTS[stage]},
                output=f"s3://{BUCKET}/{stage}",
                cluster={"image": IMAGE, "nodes": nodes, "poll_seconds": 0.5, "work": str(tmp_path / "work")},
                run_id=run,
                attempt=1,
                say=print,
            )

    call.pods = pods  # type: ignore[attr-defined]
    yield call
    for process in pods.processes:
        if process.poll() is None:
            process.kill()
        process.wait(60)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    """What a run that nobody disturbed returned, once it has."""
    return {}


def test_two_nodes_train_and_publish(
    step: Any, inputs: dict[str, str], undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    result = step()
    undisturbed |= result
    prefix = f"s3://{BUCKET}/policy/{RUN}"
    assert result["uri"].startswith(f"{prefix}/")
    with until_terminated() as clock:
        keeper = Storage(clock)
        manifest = keeper.inspect(result["uri"])
        found = keeper.bring(result["uri"], tmp_path / "brought")
        submitted = keeper.read_note(result["trainjob"])
        ended = keeper.read_note(result["trainjob"].replace(".trainjob.", ".status."))
    assert {**manifest.metrics, "uri": result["uri"], "trainjob": result["trainjob"]} == result
    assert submitted is not None
    assert ended is not None
    assert (submitted["spec"]["trainer"]["image"], ended["outcome"]["exit_code"]) == (IMAGE, 0)
    assert {"model.safetensors", "history.jsonl"} <= set(manifest.files)
    assert artifacts.verify(found) == manifest
    logs = step.pods.logs()
    assert logs.count("has its inputs") == 2
    assert logs.count("policy: published") == 1
    fetched = {path.name for path in (tmp_path / "cache").glob("[!.]*")}
    assert fetched == {inputs[name].rsplit("/", 1)[-1] for name in INPUTS["policy"]}
    work = tmp_path / "work" / RUN / "policy"
    assert list(work.glob("output/*")) == list(work.glob("work/policy-*/*")) == []


@pytest.mark.parametrize("stage", [stage for stage in JOBS if stage != "policy"])
def test_a_stage_that_runs_alone_is_trained_by_a_job_of_one_pod(step: Any, stage: str, prepared: Path) -> None:
    result = step(stage=stage, nodes=1)
    made = artifacts.read_manifest(prepared / FOLDERS[stage])  # in a process of the workspace
    assert result["uri"].rsplit("/", 1)[-1] == made.digest
    assert result.items() >= made.metrics.items()
    assert step.pods.logs().count(f"{stage}: published") == 1


def test_a_mistake_that_only_the_workers_see_ends_the_step_with_2(step: Any) -> None:
    with pytest.raises(UserError, match=r"exited with 2 .*deepspeed, which is not installed") as caught:
        step(run="mistaken", restarts=3, sharding={"zero": 2})
    assert caught.value.exit_code == 2
    assert step.server.generations == 1  # the same mistake is not made again


def test_a_job_that_lost_a_node_goes_on_from_its_checkpoint(
    step: Any, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    if not undisturbed:
        undisturbed |= step(run="whole")
        shutil.rmtree(tmp_path / "work")
    seen: set[tuple[str, int]] = set()
    over = threading.Event()

    def watch() -> None:
        """Kill node 1 at its first checkpoint; note every checkpoint that is ever written."""
        while not over.wait(0.02):
            for path in (tmp_path / "work").glob("disturbed/policy/work/policy-*/checkpoints/*.pt"):
                try:
                    one = (path.name.split("-")[0], path.stat().st_mtime_ns)
                except FileNotFoundError:
                    continue
                if not seen:
                    os.kill(step.pods.processes[1].pid, signal.SIGKILL)
                seen.add(one)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = step(run="disturbed", restarts=1)
    finally:
        over.set()
        watcher.join()
    assert step.server.generations == 2
    # the node that lived was told to end, and did so by itself
    assert (tmp_path / "message-1-0").read_text().startswith("rank 0 ended with ")
    assert len({name for name, _ in seen}) == len(seen) >= 2  # no step was taken twice
    digest, expected = (one["uri"].rsplit("/", 1)[-1] for one in (result, undisturbed))
    assert digest == expected  # bit for bit what nobody disturbed
    places = {"uri": "", "trainjob": ""}
    assert {**result, **places} == {**undisturbed, **places}
