"""Who may import whom: the contracts of pyproject.toml, and one importer per heavy dependency."""

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]

IMPORTERS = {
    "transformers": {"geartrain.models.backbone"},
    "tokenizers": {"geartrain.models.tokenizer", "geartrain.models.backbone", "geartrain.models.gguf"},
    "matplotlib": {"geartrain.reporting.svg"},
    "dvc": set(),
    "prometheus_client": {"geartrain.telemetry.endpoint"},
    "feast": {"geartrain.features.store"},
    "openlineage": {"geartrain.lineage.openlineage"},
    "model_signing": {"geartrain.supply.signing"},
    "securesystemslib": {"geartrain.supply.signing"},
    "cryptography": {"geartrain.supply.signing"},
    "in_toto_attestation": {"geartrain.supply.provenance"},
    "cyclonedx": set(),
    "mlflow": {"geartrain.supply.mlflow_registry"},
    "model_registry": {"geartrain.supply.kubeflow_registry"},
    "mr_openapi": {"geartrain.supply.kubeflow_registry"},
    "deepspeed": {"geartrain.training.sharded"},
    "fsspec": {"geartrain.places"},
    "s3fs": set(),
    "kubernetes": {"geartrain.cluster.api"},
    "sacrebleu": {"geartrain.rewards.metrics"},
    "rouge_score": {"geartrain.rewards.metrics"},
    "kfp_server_api": {"geartrain.cluster.kubeflow"},
}
"""CONTRIBUTING.md names the same; kfp is held to components/, pipelines/ and cluster/kubeflow.py by a contract."""


def test_import_contracts_hold() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.parametrize("package", IMPORTERS)
def test_heavy_dependency_has_one_importer(package: str, imports: grimp.ImportGraph) -> None:
    found = imports.find_modules_that_directly_import(package) if package in imports.modules else set()
    ours = {name for name in found if name.partition(".")[0] in {"geartrain", "components", "pipelines"}}
    assert ours <= IMPORTERS[package]


def test_metrics_are_scraped_and_never_pushed() -> None:
    """What is pushed outlives its job, and so do the files of prometheus-client's several-process mode."""
    ways = r"push_to_gateway|pushadd_to_gateway|prometheus_multiproc_dir|prometheus_client\.multiprocess|pushgateway:"
    command = ["git", "grep", "-iE", ways, "--", "src", "components", "pipelines", "k8s", "Dockerfile"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (found.returncode, found.stdout) == (1, ""), found.stdout + found.stderr


def test_importing_pipelines_loads_no_torch() -> None:
    assert _loaded_by("pipelines.training, pipelines.compile", "torch", "transformers") == "[]\n"


def test_command_line_loads_nothing_heavy() -> None:
    heavy = (
        "torch",
        "pydantic",
        "yaml",
        "transformers",
        "kfp",
        "kubernetes",
        "model_signing",
        "mlflow",
        "prometheus_client",
    )
    assert _loaded_by("geartrain.cli", *heavy) == "[]\n"


def _loaded_by(modules: str, *heavy: str) -> str:
    """Return, as printed by a fresh process, which of `heavy` an import of `modules` loads."""
    code = f"import sys, {modules}; print([name for name in {heavy!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
