"""Events outlive the pod that wrote them: they are copied as they are written, and brought together again."""

import os
import shutil
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from geartrain.cluster.api import Kubernetes
from geartrain.cluster.reaper import RunState
from geartrain.cluster.remains import end_lost
from geartrain.errors import InfrastructureError, UserError
from geartrain.lineage import events, journal, mirror, origin
from tests.fakes.object_store import Fault

if TYPE_CHECKING:
    from tests.fakes.object_store import ObjectStore

RUN = "5f0c7c4e-9b1d-4a55-8a38-6f1f0b9a2a11"


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where everybody's journals go, by way of GEARTRAIN_LINEAGE."""
    uri = str(tmp_path / "shared")
    if request.param == "bucket":
        store: ObjectStore = request.getfixturevalue("store")
        uri = f"s3://{store.bucket(f'lineage-{uuid.uuid4()}')}/of/all"
    monkeypatch.setenv(mirror.VARIABLE, uri)
    return uri


def tell(log: Path, stage: str, *kinds: str) -> None:
    run_id = events.new_run_id()
    for kind in kinds:
        events.emit(log, kind, run_id=run_id, job=stage, inputs={}, outputs={})  # type: ignore[arg-type]


def told(log: Path) -> list[tuple[str, str]]:
    return [(events.stage_of(event), event["eventType"]) for event in events.read_events(log)]


def test_what_pods_wrote_is_there_when_they_are_gone(place: str, tmp_path: Path) -> None:
    for stage in ("tasks", "warm_start"):
        pod = tmp_path / stage
        tell(pod, stage, "START", "COMPLETE")
        shutil.rmtree(pod)
    here = tmp_path / "here"
    assert sorted(mirror.pull(here, place).values()) == [2, 2]
    assert told(here) == [
        ("tasks", "START"),
        ("tasks", "COMPLETE"),
        ("warm_start", "START"),
        ("warm_start", "COMPLETE"),
    ]
    assert set(mirror.pull(here, place).values()) == {0}
    tell(tmp_path / "late", "policy", "START")
    assert sorted(mirror.pull(here, place).values()) == [0, 0, 1]


def test_a_pod_that_is_killed_has_left_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "shared")
    monkeypatch.setenv(mirror.VARIABLE, place)
    child = os.fork()
    if child == 0:
        tell(tmp_path / "pod", "policy", "START")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    shutil.rmtree(tmp_path / "pod")
    mirror.pull(tmp_path / "here", place)
    assert told(tmp_path / "here") == [("policy", "START")]


def test_a_writer_of_several_segments_is_copied_whole(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 3000)
    for _ in range(4):
        tell(tmp_path / "pod", "policy", "START", "COMPLETE")
    mirror.pull(tmp_path / "here", place)
    assert events.read_events(tmp_path / "here") == events.read_events(tmp_path / "pod")


def test_a_workspace_that_was_copied_and_both_go_on_loses_nothing(place: str, tmp_path: Path) -> None:
    tell(tmp_path / "one", "tasks", "START", "COMPLETE")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    tell(tmp_path / "one", "warm_start", "START")
    tell(tmp_path / "two", "collect", "START")
    tell(tmp_path / "one", "critic", "START")
    mirror.pull(tmp_path / "here", place)
    stages = [stage for stage, _ in told(tmp_path / "here")]
    assert sorted(stages) == ["collect", "critic", "tasks", "tasks", "warm_start"]


def test_a_past_that_has_changed_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mirror.VARIABLE, str(tmp_path / "shared"))
    tell(tmp_path / "pod", "tasks", "START", "COMPLETE")
    mirror.pull(tmp_path / "here", str(tmp_path / "shared"))
    (path,) = (tmp_path / "shared").glob("*.ndjson")
    path.write_bytes(path.read_bytes().replace(b"COMPLETE", b"COMPLETF"))
    with pytest.raises(UserError, match="differs from what was pulled before"):
        mirror.pull(tmp_path / "here", str(tmp_path / "shared"))
    assert told(tmp_path / "here") == [("tasks", "START"), ("tasks", "COMPLETE")]


def test_another_workspace_can_be_pulled(tmp_path: Path) -> None:
    tell(tmp_path / "runs/x/.geartrain/lineage", "tasks", "START")
    mirror.pull(tmp_path / "here", str(tmp_path / "runs/x"))
    assert told(tmp_path / "here") == [("tasks", "START")]
    with pytest.raises(UserError, match="no journal there"):
        mirror.pull(tmp_path / "here", str(tmp_path / "runs"))


def test_work_does_not_begin_without_its_copy_and_is_not_lost_for_it(
    store: "ObjectStore", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"s3://{store.bucket(f'lineage-{uuid.uuid4()}')}/of/all"
    monkeypatch.setenv(mirror.VARIABLE, place)
    store.faults.append(Fault(503, "SlowDown", method="PUT"))
    with pytest.raises(InfrastructureError, match="503"):
        tell(tmp_path / "pod", "tasks", "START")
    store.faults.clear()
    tell(tmp_path / "pod", "tasks", "START")
    store.faults.append(Fault(503, "SlowDown", method="PUT"))
    tell(tmp_path / "pod", "tasks", "COMPLETE")
    assert "the next one takes it along" in capsys.readouterr().err
    store.faults.clear()
    tell(tmp_path / "pod", "critic", "START")
    mirror.pull(tmp_path / "here", place)
    assert told(tmp_path / "here") == told(tmp_path / "pod")


@pytest.mark.parametrize(
    ("state", "namespace", "ended"),
    [
        (RunState.OVER, "kfp://cluster/research", True),
        (RunState.GONE, "kfp://cluster/research", True),
        (RunState.ACTIVE, "kfp://cluster/research", False),
        (RunState.UNKNOWN, "kfp://cluster/research", False),
        (RunState.OVER, "kfp://other/research", False),
    ],
)
def test_the_reaper_ends_what_killed_pods_left_open(
    state: RunState, namespace: str, ended: bool, place: str, tmp_path: Path, cluster: Kubernetes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", namespace)
    monkeypatch.setenv(origin.RUN_ID, RUN)
    tell(tmp_path / "pod", "policy", "START")
    tell(tmp_path / "pod", "critic", "START", "COMPLETE")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "kfp://cluster/research")
    monkeypatch.delenv(origin.RUN_ID)
    for again in (ended, False):
        verdicts = end_lost(place, cluster, lambda run: state)
        assert [verdict.outcome for verdict in verdicts] == ["ended"] * again
    mirror.pull(tmp_path / "here", place)
    open_ = events.unfinished(events.read_events(tmp_path / "here"))
    assert bool(open_) is not ended
    if ended:
        assert told(tmp_path / "here")[-1] == ("policy", "ABORT")
        assert events.parent_of(events.read_events(tmp_path / "here")[-1]) == RUN


def test_the_reaper_finds_nothing_where_nothing_was_copied(cluster: Kubernetes, tmp_path: Path) -> None:
    assert end_lost(str(tmp_path / "nothing"), cluster, lambda run: RunState.OVER) == []
