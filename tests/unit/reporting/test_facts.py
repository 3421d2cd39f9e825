"""What the report knows about a workspace."""

from geartrain.reporting.facts import column, gather
from geartrain.reporting.graph import STAGES
from geartrain.stages import stage as stages
from tests.fakes import workspace


def test_drawing_has_the_stages_and_inputs_that_the_stages_declare():
    assert tuple(sorted(STAGES)) == tuple(sorted(stages.ORDER))
    assert {name: set(inputs) for name, (_, inputs) in STAGES.items()} == {
        name: set(stages.load_stage(name).inputs) for name in stages.ORDER
    }


def test_artifacts_are_found_in_the_folders_of_the_stages(tmp_path):
    assert {name: path.as_posix() for name, path in stages.FOLDERS.items()} == workspace.FOLDERS
    facts = gather(workspace.build(tmp_path / "run"))
    assert {name: path.as_posix() for name, path in facts.folders.items()} == workspace.FOLDERS
    assert facts.name == "run"
    assert facts.parameter("policy", "policy", "recipe") == "gear_a_sgcd"
    assert facts.parameter("policy", "policy", "no", "such") is None


def test_times_are_of_the_run_that_made_the_artifact(tmp_path):
    root = workspace.build(tmp_path / "run", stages=("tasks",))
    stale = {"resources": {"seconds": 999.0}}
    workspace.log(root, "COMPLETE", "tasks", outputs={"tasks": "f" * 64}, facets=stale)
    assert gather(root).resources["tasks"]["seconds"] == workspace.SECONDS["tasks"]


def test_a_failure_is_forgotten_once_the_stage_has_finished(tmp_path):
    root = workspace.build(tmp_path / "run", stages=("tasks",), failed="collect")
    assert set(gather(root).failures) == {"collect"}
    workspace.log(root, "COMPLETE", "collect", outputs={"collect": "a" * 64})
    assert gather(root).failures == {}


def test_a_refusal_is_a_failure_only_where_nothing_was_made(tmp_path):
    """Once the withdrawal is lifted the artifact that is there counts again, and no run says so."""
    root = workspace.build(tmp_path / "run", stages=("tasks",))
    refusal = {"error": {"type": "WithdrawnError", "message": "tasks (0123) was withdrawn"}}
    for stage in ("tasks", "collect"):
        workspace.log(root, "FAIL", stage, facets=refusal)
    assert gather(root).failures == {"collect": "tasks (0123) was withdrawn"}


def test_home_of_the_events_can_be_elsewhere(tmp_path, monkeypatch):
    root = workspace.build(tmp_path / "run", stages=("tasks",))
    (root / ".geartrain").rename(tmp_path / "elsewhere")
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path / "elsewhere"))
    assert gather(root).resources["tasks"]["seconds"] == workspace.SECONDS["tasks"]


def test_a_publication_that_was_cut_short_is_no_artifact(tmp_path):
    root = workspace.build(tmp_path / "run", stages=("tasks",))
    (root / "data/tasks").rename(root / "data/.tasks.incoming")
    assert gather(root).manifests == {}


def test_column_skips_what_is_not_a_finite_number():
    history = [{"iteration": 0, "x": 1.0}, {"iteration": 1, "x": None}, {"iteration": 2, "x": float("nan")}, {"y": 1}]
    assert column(history, "x") == ([0.0], [1.0])
    assert column([{"step": 5, "x": 2}, {"x": 3}], "x") == ([5.0, 1.0], [2.0, 3.0])
