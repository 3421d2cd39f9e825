"""An image that was built before, and how a command runs in it: as in a pod, a nobody with a root that is read-only."""

import os
import shutil
import subprocess
from dataclasses import dataclass

import pytest

ENGINE = os.environ.get("ENGINE", "podman")
TAG = os.environ.get("TAG", "dev")
TARGETS = os.environ.get("TARGETS", "cpu").split()
NAMES = {"cpu": "geartrain/python", "gpu": "geartrain/train"}
SECONDS = 900
"""Of one command in a container; far more than it takes."""


@dataclass(frozen=True)
class Image:
    """A built image."""

    name: str

    def told(self, template: str) -> str:
        """Return what the engine says of it, by a template of Go's."""
        return _engine("image", "inspect", "--format", template, self.name).stdout.strip()

    def run(self, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command as the TrainingRuntime would: no network, no capabilities, three folders to write to."""
        own = ",U" if ENGINE == "podman" else ""  # podman gives a tmpfs to root whatever its mode; docker has no word
        folders = (("/tmp:", "1g", ""), ("/cache:", "1g", own), ("/work:", "2g", own))
        options = [f"--tmpfs={folder}rw,size={size},mode=1777{owner}" for folder, size, owner in folders]
        options += [f"--env={name}={value}" for name, value in variables.items()]
        options += ["--network=none", "--user=65532:65532", "--read-only", "--cap-drop=ALL", "--pids-limit=512"]
        return _engine("run", "--rm", "--security-opt=no-new-privileges", "--memory=4g", *options, self.name, *command)


def _engine(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([ENGINE, *words], capture_output=True, text=True, check=False, timeout=SECONDS)


@pytest.fixture(scope="session", params=TARGETS)
def image(request: pytest.FixtureRequest) -> Image:
    """Each image that is to be tested; one that is not there is a failure that says how to build it."""
    target = request.param
    if target not in NAMES:
        pytest.fail(f"TARGETS: no target {target!r}; there are {', '.join(NAMES)}")
    if shutil.which(ENGINE) is None:
        pytest.fail(f"no {ENGINE} on this machine. Install it, or name yours: make test-images ENGINE=docker")
    found = Image(f"{NAMES[target]}:{TAG}")
    if not found.told("{{.Id}}"):
        pytest.fail(f"no image {found.name} here. Build it: make images TARGETS={target} TAG={TAG} ENGINE={ENGINE}")
    return found
