"""One graph in three places: what stages declare, dvc.yaml, the compiled pipeline; and shells that fit their stages."""

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

from geartrain.config_file import load_config
from geartrain.stages.stage import FOLDERS, ORDER, StageSpec, load_stage
from pipelines.resources import TABLE

ROOT = Path(__file__).parents[2]
BODY_LINES = 12


@pytest.fixture(scope="module")
def stages() -> dict[str, StageSpec]:
    return {name: load_stage(name) for name in ORDER}


@pytest.fixture(scope="module")
def declared_edges(stages: dict[str, StageSpec]) -> set[tuple[str, str]]:
    return {(source, name) for name, spec in stages.items() for source in spec.inputs}


def test_dvc_has_the_declared_edges(declared_edges: set[tuple[str, str]]) -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    makers = {str(folder): name for name, folder in FOLDERS.items()}
    assert {(makers[dep], name) for name, stage in stages.items() for dep in stage["deps"] if dep in makers} == (
        declared_edges
    )


def test_compiled_pipeline_has_the_declared_edges(spec: dict[str, Any], declared_edges: set[tuple[str, str]]) -> None:
    by_artifact, by_order = set(), set()
    for task, body in spec["root"]["dag"]["tasks"].items():
        for name, source in body.get("inputs", {}).get("artifacts", {}).items():
            assert source["taskOutputArtifact"]["outputArtifactKey"] == name
            by_artifact.add((source["taskOutputArtifact"]["producerTask"], task))
        by_order |= {(before, task) for before in body.get("dependentTasks", [])}
    assert by_artifact == by_order
    assert {(a.replace("-", "_"), b.replace("-", "_")) for a, b in by_artifact} == declared_edges


@pytest.mark.parametrize("name", ORDER)
def test_shell_has_the_stage_s_interface(name: str, spec: dict[str, Any], stages: dict[str, StageSpec]) -> None:
    component = spec["components"][f"comp-{name.replace('_', '-')}"]
    inputs, declared = component["inputDefinitions"], stages[name]
    own = {"settings" if section == name else section for section in declared.sections}
    assert set(inputs["parameters"]) == {"seed", "threads"} | own
    assert set(inputs.get("artifacts", {})) == set(declared.inputs)
    assert set(component["outputDefinitions"]["artifacts"]) == {name, "metrics"}


def test_pipeline_gives_each_parameter_its_section(spec: dict[str, Any]) -> None:
    for task, body in spec["root"]["dag"]["tasks"].items():
        for parameter, value in body["inputs"]["parameters"].items():
            section = task.replace("-", "_") if parameter == "settings" else parameter
            assert value == {"componentInputParameter": section}, task


def test_pipeline_parameters_are_the_configuration(spec: dict[str, Any]) -> None:
    whole = load_config(ROOT / "params.yaml").model_dump()
    assert set(spec["root"]["inputDefinitions"]["parameters"]) == set(whole)


@pytest.mark.parametrize("name", ORDER)
def test_shell_is_a_dozen_lines_and_calls_its_stage(name: str) -> None:
    text = (ROOT / f"components/{name}.py").read_text()
    (shell,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    body = shell.body[1:]  # the docstring is first
    lines = text.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
    assert len([line for line in lines if line.strip()]) <= BODY_LINES
    assert f"from geartrain.stages.{name} import run" in text


def test_every_task_has_its_resources(spec: dict[str, Any]) -> None:
    tasks = spec["root"]["dag"]["tasks"]
    assert set(TABLE) == set(tasks)
    for name, task in tasks.items():
        container = spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]
        assert container["resources"]["resourceMemoryRequest"] == TABLE[name].memory
        assert task["retryPolicy"]["maxRetryCount"] == TABLE[name].retries


def test_nothing_is_installed_when_a_task_starts(spec: dict[str, Any]) -> None:
    for name, executor in spec["deploymentSpec"]["executors"].items():
        assert "pip install" not in " ".join(executor["container"]["command"]), name
