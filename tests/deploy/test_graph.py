"""One graph in three places: what stages declare, dvc.yaml, the compiled pipeline; and shells that fit their stages."""

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

from geartrain.cluster.jobs import JOBS, ClusterFile
from geartrain.cluster.section import ClusterSection
from geartrain.config_file import load_config
from geartrain.stages.stage import FOLDERS, ORDER, StageSpec, load_stage
from pipelines.compiled import Compiled
from pipelines.resources import UNCACHED

ROOT = Path(__file__).parents[2]
BODY_LINES = 12
MARKS = {"dataset_rev", "dataset_digest", "image_digest"}
BESIDE_THE_CONFIGURATION = {"data", "dataset_rev", *JOBS.values()}
CHANNEL = "pipelinechannel--"
"""What Kubeflow puts before a name that it hands down into a sub-DAG."""


@pytest.fixture(scope="module")
def stages() -> dict[str, StageSpec]:
    return {name: load_stage(name) for name in ORDER}


@pytest.fixture(scope="module")
def declared_edges(stages: dict[str, StageSpec]) -> set[tuple[str, str]]:
    return {(source, name) for name, spec in stages.items() for source in spec.inputs}


@pytest.fixture(scope="module")
def steps(spec: dict[str, Any]) -> dict[str, Any]:
    """The stages' tasks: what the exit handler guards, without the gate and the first step."""
    guarded: dict[str, Any] = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    return {name: body for name, body in guarded.items() if name not in {"resolve", "condition-2"}}


def test_dvc_has_the_declared_edges(declared_edges: set[tuple[str, str]]) -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    makers = {str(folder): name for name, folder in FOLDERS.items()}
    assert {(makers[dep], name) for name, stage in stages.items() for dep in stage["deps"] if dep in makers} == (
        declared_edges
    )


def test_compiled_pipeline_has_the_declared_edges(steps: dict[str, Any], declared_edges: set[tuple[str, str]]) -> None:
    assert {name.replace("-", "_") for name in steps} == set(ORDER)
    by_artifact, by_order = set(), set()
    for task, body in steps.items():
        for name, source in body["inputs"].get("artifacts", {}).items():
            assert source["taskOutputArtifact"]["outputArtifactKey"] == name
            by_artifact.add((source["taskOutputArtifact"]["producerTask"], task))
        assert "resolve" in body["dependentTasks"]
        by_order |= {(before, task) for before in body["dependentTasks"] if before != "resolve"}
    assert by_artifact == by_order
    assert {(a.replace("-", "_"), b.replace("-", "_")) for a, b in by_artifact} == declared_edges


@pytest.mark.parametrize("name", ORDER)
def test_shell_has_the_stage_s_interface(name: str, spec: dict[str, Any], stages: dict[str, StageSpec]) -> None:
    component = spec["components"][f"comp-{name.replace('_', '-')}"]
    inputs, declared = component["inputDefinitions"], stages[name]
    own = {"settings" if section == name else section for section in declared.sections}
    pinned = {"data"} if declared.files else set()
    launching = {"cluster", "task_config"} if name in JOBS else set()
    assert set(inputs["parameters"]) == {"seed", "threads"} | own | MARKS | launching | pinned
    assert set(inputs.get("artifacts", {})) == set(declared.inputs)
    assert set(component["outputDefinitions"]["artifacts"]) == {name, "metrics"}


def test_pipeline_gives_each_parameter_its_section(spec: dict[str, Any], steps: dict[str, Any]) -> None:
    for task, body in steps.items():
        for parameter, value in body["inputs"]["parameters"].items():
            if parameter in MARKS - {"dataset_rev"}:
                assert value["taskOutputParameter"] == {"producerTask": "resolve", "outputParameterKey": parameter}
                continue
            stage = task.replace("-", "_")
            section = {"settings": stage, "cluster": JOBS.get(stage)}.get(parameter, parameter)
            assert value == {"componentInputParameter": f"{CHANNEL}{section}"}, task
    handed_down = spec["root"]["dag"]["tasks"]["exit-handler-1"]["inputs"]["parameters"]
    assert {name: value["componentInputParameter"] for name, value in handed_down.items()} == {
        name: name.removeprefix(CHANNEL) for name in handed_down
    }


def test_pipeline_parameters_are_the_configuration(spec: dict[str, Any]) -> None:
    whole = load_config(ROOT / "params.yaml").model_dump()
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert set(parameters) == set(whole) | BESIDE_THE_CONFIGURATION
    assert {name for name, about in parameters.items() if "defaultValue" in about} == BESIDE_THE_CONFIGURATION


def test_stages_that_jobs_may_train(stages: dict[str, StageSpec]) -> None:
    assert {name for name, spec in stages.items() if spec.together} == {"policy"}  # all others: section.LoneSection
    assert set(JOBS) <= set(stages)
    assert set(ClusterFile.model_fields) - set(ClusterSection.model_fields) == set(JOBS) - {"policy"}


def test_only_a_promoted_model_is_registered(spec: dict[str, Any]) -> None:
    gate = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]["condition-2"]
    assert gate["triggerPolicy"]["condition"] == f"inputs.parameter_values['{CHANNEL}promotion-Output'] == true"
    assert set(spec["components"]["comp-condition-2"]["dag"]["tasks"]) == {"register"}


def test_the_end_of_a_run_is_written_down_however_it_ends(compiled_pipeline: Compiled) -> None:
    (last,) = [task for task in compiled_pipeline.tasks if task.is_exit]
    assert (last.name, last.cached, last.above) == ("conclude", False, ())
    assert last.body["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert last.constants == {"run_id": "{{$.pipeline_job_uuid}}"}
    assert {task.name for task in compiled_pipeline.tasks if not task.guarded} == {"conclude"}


def test_steps_that_look_or_act_always_run(compiled_pipeline: Compiled) -> None:
    leaves = {task.name: task.cached for task in compiled_pipeline.tasks if task.container}
    assert {name for name, cached in leaves.items() if not cached} == UNCACHED
    assert len(leaves) == len(ORDER) + len(UNCACHED)


@pytest.mark.parametrize("name", [*ORDER, "resolve", "register", "conclude"])
def test_shell_is_a_dozen_lines_and_calls_its_stage(name: str) -> None:
    text = (ROOT / f"components/{name}.py").read_text()
    (shell,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    body = shell.body[1:]  # the docstring is first
    lines = text.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
    assert len([line for line in lines if line.strip()]) <= BODY_LINES
    if name in ORDER:
        assert f"from geartrain.stages.{name} import run" in text
