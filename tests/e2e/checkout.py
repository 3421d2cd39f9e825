"""A private copy of the checkout with the smoke profile, and what its artifacts are."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from geartrain.artifacts import verify
from geartrain.stages.stage import FOLDERS

ROOT = Path(__file__).parents[2]
COPIED = ("src", "components", "pipelines", "profiles", "data/feature_repo", "dvc.yaml", ".dvc/config", ".dvcignore")


@dataclass(frozen=True)
class Checkout:
    """A private copy of the sources, and the environment in which they are the ones that run."""

    root: Path

    @property
    def variables(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        cache = str(self.root / ".site-cache")  # DVC's default is shared by every run on the machine
        own = {"PYTHONPATH": str(self.root / "src"), "DVC_SITE_CACHE_DIR": cache, "DVC_NO_ANALYTICS": "1", "PATH": path}
        return {**os.environ, **own, "OMP_NUM_THREADS": "1"}

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in the copy; its output is captured."""
        return subprocess.run(command, cwd=self.root, env=self.variables, capture_output=True, text=True, check=False)


def make_checkout(root: Path, *, source: Path = ROOT) -> Checkout:
    """Copy what a run needs from `source` to `root`, with the smoke profile as its `params.yaml`."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in COPIED:
        there, here = source / name, root / name
        here.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(there, here, ignore=leave_out) if there.is_dir() else shutil.copy(there, here)
    shutil.copy(source / "profiles/smoke.yaml", root / "params.yaml")
    (root / "data/raw").mkdir(parents=True)
    shutil.copy(source / "data/raw/chinook.json", root / "data/raw")
    return Checkout(root)


def digests(root: Path) -> dict[str, str]:
    """Stage -> digest of its artifact, each verified against its manifest."""
    return {stage: verify(root / folder).digest for stage, folder in FOLDERS.items()}
