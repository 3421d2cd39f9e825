"""Whoever calls a stage gets the same guarantees."""

from pathlib import Path

import pytest

from geartrain import artifacts
from geartrain.config import Config, parse_config
from geartrain.errors import UserError
from geartrain.lineage.events import read_events
from geartrain.preemption import PreemptedError
from geartrain.stages import stage as stages
from geartrain.stages.stage import Job, Metrics, StageSpec, event_log


class Body:
    """A stage body that counts, and fails or is killed on demand."""

    __module__ = "toy"
    __name__ = "toy"
    __qualname__ = "toy"

    def __init__(self) -> None:
        self.calls = 0
        self.error: BaseException | None = None

    def __call__(self, job: Job) -> Metrics:
        self.calls += 1
        checkpoint = job.work / "checkpoint"
        checkpoint.write_text((checkpoint.read_text() if checkpoint.exists() else "") + "x")
        if self.error is not None:
            raise self.error
        (job.outputs["toy"] / "result").write_text(f"{job.config.seed} {job.config.policy.iterations}")
        return {"calls_seen": len(checkpoint.read_text())}


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def body() -> Body:
    return Body()


@pytest.fixture
def toy(body: Body) -> StageSpec:
    return stages.stage(inputs=(), sections=("policy",))(body).spec


OUT = {"toy": Path("out/toy")}


def test_a_stage_seals_what_it_wrote_and_says_so(toy: StageSpec) -> None:
    metrics = toy.run(Config(), {}, OUT)
    manifest = artifacts.verify(OUT["toy"])
    assert metrics == manifest.metrics == {"calls_seen": 1}
    assert set(manifest.parameters) == {"seed", "threads", "policy"}
    start, complete = read_events(event_log())
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert complete["outputs"][0]["facets"]["version"]["datasetVersion"] == manifest.digest


def test_a_finished_stage_is_not_repeated_and_a_changed_one_is(toy: StageSpec, body: Body) -> None:
    for _ in range(2):
        toy.run(Config(), {}, OUT)
    assert body.calls == 1
    toy.run(parse_config({"critic": {"epochs": 1}}, source="x"), {}, OUT)
    assert body.calls == 1, "a section that the stage does not read changes nothing"
    toy.run(parse_config({"policy": {"iterations": 5}}, source="x"), {}, OUT)
    assert body.calls == 2
    assert (OUT["toy"] / "result").read_text() == "0 5"


def test_a_harmed_output_is_made_again(toy: StageSpec, body: Body) -> None:
    toy.run(Config(), {}, OUT)
    (OUT["toy"] / "result").write_text("tampered")
    toy.run(Config(), {}, OUT)
    assert body.calls == 2
    assert (OUT["toy"] / "result").read_text() == f"0 {Config().policy.iterations}"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(UserError("why"), "FAIL"), (KeyboardInterrupt(), "ABORT"), (PreemptedError("SIGTERM"), "ABORT")],
)
def test_a_failure_leaves_the_old_output_and_the_checkpoint(
    toy: StageSpec, body: Body, error: BaseException, kind: str
) -> None:
    toy.run(Config(), {}, OUT)
    body.error = error
    changed = parse_config({"seed": 1}, source="x")
    with pytest.raises(type(error)):
        toy.run(changed, {}, OUT)
    assert (OUT["toy"] / "result").read_text().startswith("0 ")
    assert read_events(event_log())[-1]["eventType"] == kind
    body.error = None
    assert toy.run(changed, {}, OUT) == {"calls_seen": 2}, "the second try finds the first one's checkpoint"


def test_inputs_are_checked_before_work_starts(body: Body) -> None:
    reader = stages.stage(inputs=("tasks",), sections=())(body).spec
    with pytest.raises(UserError, match="not a finished artifact"):
        reader.run(Config(), {"tasks": Path("absent")}, OUT)
    with pytest.raises(UserError, match="reads \\['tasks'\\]"):
        reader.run(Config(), {}, OUT)
    assert body.calls == 0


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(UserError, match="the stages are tasks, warm_start"):
        stages.load_stage("polic")


def test_a_file_that_a_killed_run_was_writing_is_not_published(body: Body, toy: StageSpec) -> None:
    body.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        toy.run(Config(), {}, OUT)
    (staged,) = stages.home().glob("work/toy-*/output")
    (staged / "worlds").mkdir()
    (staged / "worlds/.world.sqlite.4711").write_text("half")
    body.error = None
    toy.run(Config(), {}, OUT)
    assert artifacts.verify(OUT["toy"]).files.keys() == {"result"}
