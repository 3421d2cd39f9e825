"""The rendered installations: what `kubectl kustomize` makes of an overlay, as documents."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

K8S = Path(__file__).parents[2] / "k8s"
OVERLAYS = tuple(sorted(path.name for path in (K8S / "overlays").iterdir()))
OLDEST_KUSTOMIZE = (5, 0)
"""Components with patches by target; Debian 12's kubernetes-client has 2.0.3."""


@functools.cache
def kubectl() -> str:
    """Return the kubectl to render with: the one of this environment, else the first on PATH that is new enough.

    Raises:
        AssertionError: there is none; the message lists what was found.
    """
    folders = (str(Path(sys.executable).parent), *os.environ["PATH"].split(os.pathsep))
    found = {path: kustomize_version(path) for folder in folders if (path := shutil.which("kubectl", path=folder))}
    fitting = [path for path, version in found.items() if version >= OLDEST_KUSTOMIZE]
    assert fitting, f"no kubectl with kustomize >= {OLDEST_KUSTOMIZE} (`make setup` installs one); found: {found}"
    return fitting[0]


def kustomize_version(path: str) -> tuple[int, ...]:
    """Return the version of the kustomize inside a kubectl; (0,) where it says none, as before 1.24, or is broken."""
    command = [path, "version", "--client", "--output=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        version = json.loads(done.stdout).get("kustomizeVersion", "v0")
    except ValueError:
        version = "v0"
    return tuple(int(part) for part in version.removeprefix("v").split(".")[:2])


def render(folder: Path) -> list[dict[str, Any]]:
    """Return the documents of one kustomization, in kustomize's order."""
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "kustomize warns of something deprecated"
    return list(yaml.safe_load_all(done.stdout))


@functools.cache
def overlay(name: str) -> tuple[dict[str, Any], ...]:
    """Return the documents of an overlay; shared between tests, so copy before you change one."""
    return tuple(render(K8S / "overlays" / name))


def smoke_job() -> dict[str, Any]:
    """Return the TrainJob that shows whether an installation works."""
    job: dict[str, Any] = yaml.safe_load((K8S / "smoke/trainjob.yaml").read_text())
    return job


def one(documents: list[dict[str, Any]] | tuple[dict[str, Any], ...], kind: str, name: str) -> dict[str, Any]:
    """Return the one document of this kind and name."""
    (document,) = [found for found in documents if (found["kind"], found["metadata"]["name"]) == (kind, name)]
    return document
