"""A built image holds under a cluster's rules: who runs it, what it lacks, and that everything of ours runs in it.

`make test-images` (TARGETS="cpu gpu", ENGINE, TAG); `make images` builds what it looks for.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kfp import dsl, local

from components.register import register
from pipelines.containers import Containers
from tests.fakes.promoted import promoted
from tests.images.conftest import ENGINE, Image

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
LABELS = ("title", "licenses", "version", "revision", "base.name")
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "make", "ninja-build")
IMPORTS = """
import importlib, json, pkgutil
import geartrain
for found in pkgutil.walk_packages(geartrain.__path__, "geartrain."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
import deepspeed.ops
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled, and there is no compiler
parts = {part["name"] for part in json.load(open("/usr/share/sbom/geartrain.cdx.json"))["components"]}
assert {"torch", "transformers", "deepspeed", "kfp"} <= parts, sorted(parts)
"""
MEETING = """
import deepspeed, deepspeed.ops, torch
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo")
total = torch.ones(1)
torch.distributed.all_reduce(total)
assert total.item() == 2
torch.distributed.destroy_process_group()
"""


def test_it_runs_as_nobody_and_says_what_it_is(image: Image) -> None:
    assert image.told("{{.Config.User}}") == "65532:65532"
    told = {label: image.told(f'{{{{index .Config.Labels "org.opencontainers.image.{label}"}}}}') for label in LABELS}
    assert {label for label, value in told.items() if value in ("", "<no value>")} == set()


@pytest.mark.parametrize("tool", COMPILERS)
def test_it_holds_no_compiler(image: Image, tool: str) -> None:
    assert image.run("bash", "-c", f"command -v {tool}").stdout == ""


@pytest.mark.parametrize(
    ("folder", "writable"),
    [("/app", False), ("/opt/geartrain", False), ("/tmp", True), ("/cache", True), ("/work", True)],
)
def test_it_writes_where_a_pod_may_and_nowhere_else(image: Image, folder: str, writable: bool) -> None:
    assert (image.run("touch", f"{folder}/x").returncode == 0) is writable


@pytest.mark.parametrize("command", [("geartrain", "--help"), ("python", "-c", IMPORTS)], ids=["help", "imports"])
def test_every_module_imports(image: Image, command: tuple[str, ...]) -> None:
    done = image.run(*command)
    assert done.returncode == 0, done.stderr


def test_two_processes_meet(image: Image) -> None:
    # by torchrun, as k8s/smoke/trainjob.yaml does it
    done = image.run("torchrun", "--nproc-per-node=2", "--no-python", "python", "-c", MEETING, DS_ACCELERATOR="cpu")
    assert done.returncode == 0, done.stderr


def test_the_smoke_profile_runs_through(image: Image) -> None:
    done = image.run("geartrain", "run", "--profile", "smoke", "--dir", "/work/smoke", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_component_runs_in_it_by_its_own_entry_point(image: Image, root: Path, tmp_path: Path) -> None:
    # as Kubeflow starts them: a container each
    command = [sys.executable, "-m", "pipelines.local", "--params", str(root / "profiles/smoke.yaml")]
    paths = {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")]), "GEARTRAIN_IMAGE": image.name}
    done = subprocess.run(
        [*command, "--engine", ENGINE],
        cwd=tmp_path,
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told[-8000:]
    ran = set(re.findall(r"Executing task .*?'([\w-]+)'", told))
    components = {path.stem.replace("_", "-") for path in (root / "components").glob("*.py") if _is_component(path)}
    assert components - {"register"} <= ran, (components - ran, ran)  # four tasks by heart pass no gate


def test_a_promoted_model_is_registered_in_it(image: Image, tmp_path: Path) -> None:
    model, store = tmp_path / "kfp/promoted", tmp_path / "kfp"
    digest = promoted(model).digest
    marks = {"run_id": "one", "dataset_rev": "v1", "dataset_digest": "sha256:0", "image_digest": "sha256:1"}

    @dsl.pipeline(name="register")
    def alone() -> None:
        register(promotion=dsl.importer(artifact_uri=str(model), artifact_class=dsl.Model).output, **marks)

    alone.pipeline_spec.deployment_spec["executors"]["exec-register"]["container"]["image"] = image.name
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(store), raise_on_error=True)
    with Containers(ENGINE).serve(work=tmp_path / "work"):
        alone()
    (told,) = store.glob("*/**/record")
    assert json.loads(told.read_text("utf-8"))["model"]["digest"] == f"sha256:{digest}"


def _is_component(path: Path) -> bool:
    return "@dsl.component" in path.read_text(encoding="utf-8")
