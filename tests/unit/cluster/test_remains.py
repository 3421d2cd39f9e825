"""The shared volume: checkpoints go in time, lineage stays and is ended, an active run loses nothing."""

import os
from pathlib import Path
from typing import Any

import pytest

from geartrain.cluster import naming
from geartrain.cluster.api import Kubernetes
from geartrain.cluster.reaper import RunState, Verdict
from geartrain.cluster.remains import clean
from geartrain.errors import InfrastructureError
from geartrain.lineage import events
from tests.fakes.kubernetes_server import JOBS, Fault, KubernetesServer

RUN = "5f0c7c4e-9b1d-4a55-8a38-6f1f0b9a2a11"
NOON = 1_795_953_600.0
DAY = 86400.0
ONE, TWO = (f"01a22f41-b8d8-706f-8161-00000000000{n}" for n in (1, 2))
CHECKPOINT = "work/policy-0123/checkpoints/00004.pt"


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of a stage that was killed after its fourth step, at noon."""
    stage = tmp_path / "work" / RUN / "policy"
    for name in (CHECKPOINT, "notes/a/0.json", "failure.json"):
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_text("x")
    emit = {"job": "policy", "outputs": {}}
    log = stage / "lineage"
    events.emit(log, "START", run_id=ONE, inputs={"tasks": "d1"}, **emit)
    events.emit(log, "ABORT", run_id=ONE, inputs={"tasks": "d1"}, **emit)
    events.emit(log, "START", run_id=TWO, inputs={"tasks": "d1"}, **emit)
    for path in (*stage.rglob("*"), stage, stage.parent):
        os.utime(path, (NOON, NOON))
    return stage


def look(left: Path, cluster: Kubernetes, state: RunState, *, days: float = 8.0, **changes: Any) -> list[Verdict]:
    usual: dict[str, Any] = {"keep_days": 7, "wall": NOON + days * DAY}
    return clean(left.parents[1], cluster, lambda _: state, **{**usual, **changes})


def ends(left: Path) -> list[tuple[str, str]]:
    return [(event["run"]["runId"], event["eventType"]) for event in events.read_events(left / "lineage")]


BEFORE = [(ONE, "START"), (ONE, "ABORT"), (TWO, "START")]


@pytest.mark.parametrize(
    ("state", "days", "gone", "ended", "words"),
    [
        (RunState.OVER, 8.0, True, True, "is over, and nothing was written for 8 d"),
        (RunState.GONE, 8.0, True, True, "is gone, and nothing was written for 8 d"),
        (RunState.OVER, 6.0, False, True, "is over; written to 6 d ago"),
        (RunState.GONE, -1.0, False, True, "is gone; written to 0 s ago"),  # clocks differ
        (RunState.ACTIVE, 999.0, False, False, "is active"),
        (RunState.UNKNOWN, 999.0, False, False, "KFP does not say"),
    ],
)
def test_each_case(
    state: RunState, days: float, gone: bool, ended: bool, words: str, left: Path, cluster: Kubernetes
) -> None:
    (verdict,) = look(left, cluster, state, days=days)
    assert (verdict.delete, verdict.outcome) == ((True, "deleted") if gone else (False, ""))
    assert words in verdict.reason
    assert (left / CHECKPOINT).exists() is not gone
    assert ends(left) == [*BEFORE, *([(TWO, "ABORT")] if ended else [])]


def test_lineage_stays_and_is_ended_once(left: Path, cluster: Kubernetes) -> None:
    look(left, cluster, RunState.OVER)
    assert [path.name for path in left.iterdir()] == ["lineage"]
    (again,) = look(left, cluster, RunState.OVER, days=99)
    assert (again.delete, again.reason) == (False, "only lineage events are left")
    last = events.read_events(left / "lineage")[-1]
    assert (last["run"]["runId"], last["eventType"]) == (TWO, "ABORT")
    assert len(ends(left)) == len(BEFORE) + 1
    assert last["inputs"][0]["facets"]["version"]["datasetVersion"] == "sha256:d1"
    assert RUN in last["run"]["facets"]["geartrain_error"]["message"]


@pytest.mark.parametrize("leaving", [False, True])
def test_a_run_with_a_job_loses_nothing_though_it_is_over(
    leaving: bool, left: Path, cluster: Kubernetes, server: KubernetesServer
) -> None:
    metadata: dict[str, Any] = {"name": "policy-x", "uid": "u", "labels": naming.labels(RUN, "policy")}
    server.jobs["policy-x"] = {"metadata": {**metadata, **({"deletionTimestamp": "now"} if leaving else {})}}
    (verdict,) = look(left, cluster, RunState.OVER, days=999)
    assert (verdict.delete, verdict.reason) == (False, f"run {RUN} has a TrainJob")
    assert (left / CHECKPOINT).exists()
    assert ends(left) == BEFORE


def test_a_dry_run_changes_nothing(left: Path, cluster: Kubernetes) -> None:
    (verdict,) = look(left, cluster, RunState.OVER, dry_run=True)
    assert (verdict.delete, verdict.outcome) == (True, "")
    assert (left / CHECKPOINT).exists()
    assert ends(left) == BEFORE


def test_one_young_file_keeps_all_and_lineage_does_not_count(left: Path, cluster: Kubernetes) -> None:
    for path in (left / "lineage/journal").iterdir():
        os.utime(path, (NOON + 8 * DAY, NOON + 8 * DAY))
    os.utime(left / CHECKPOINT, (NOON + 5 * DAY, NOON + 5 * DAY))
    (verdict,) = look(left, cluster, RunState.OVER)
    assert not verdict.delete
    os.utime(left / CHECKPOINT, (NOON, NOON))
    (verdict,) = look(left, cluster, RunState.OVER)
    assert verdict.delete


def test_what_is_not_a_runs_folder_is_passed_over(left: Path, cluster: Kubernetes, tmp_path: Path) -> None:
    work, other = left.parents[1], tmp_path / "precious"
    (other / "policy").mkdir(parents=True)
    (work / "lost+found").mkdir()
    (work / "by-hand" / "policy").mkdir(parents=True)  # no run of Kubeflow's: nobody can say whether it is over
    (work / RUN.replace("5f", "6f")).symlink_to(other)
    (work / RUN.replace("5f", "7f") / "policy").mkdir(parents=True)
    (work / RUN.replace("5f", "7f") / "a-persons-notes").mkdir()
    (work / RUN.replace("5f", "8f")).write_text("a file")
    (left / "work" / "link").symlink_to(other)
    assert [verdict.run for verdict in look(left, cluster, RunState.GONE, days=999)] == [RUN]
    assert (other / "policy").is_dir()
    assert len(list(work.iterdir())) == 6


def test_trouble_is_told_and_keeps_everything(left: Path, cluster: Kubernetes, server: KubernetesServer) -> None:
    def lookup(_: str) -> RunState:
        raise InfrastructureError("no answer")

    (verdict,) = clean(left.parents[1], cluster, lookup, keep_days=0, wall=NOON + DAY)
    assert (verdict.delete, verdict.outcome) == (False, "")
    server.faults.append(Fault(500, path=JOBS))
    (verdict,) = look(left, cluster, RunState.OVER)
    assert verdict.outcome.startswith("failed: ")
    assert (left / CHECKPOINT).exists()
