"""What a run is made of, from this checkout: the compiled pipeline, and a checked configuration."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from geartrain.cluster.package import Package, read_package
from geartrain.config import Config, parse_config
from geartrain.errors import UserError
from geartrain.workspace import compose, find_profile, project_root


def compile_package(out: Path) -> Package:
    """Compile the pipeline in a process of its own, for geartrain does not know it; return what was written to `out`.

    Raises:
        UserError: this is not a checkout, or the pipeline does not compile.
    """
    root = project_root()
    if root is None or not (root / "pipelines").is_dir():
        raise UserError(
            "no pipelines/ beside the package. Work in a checkout, or give --package with a compiled pipeline."
        )
    search = [str(root), str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(search)}
    command = [sys.executable, "-m", "pipelines.compile", "--out", str(out)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise UserError(f"the pipeline does not compile:\n{done.stderr.strip() or done.stdout.strip()}")
    return read_package(out / "training.yaml")


def choose_config(params: Path, profile: str | None, settings: Sequence[str]) -> tuple[Config, str]:
    """Return the checked configuration of a file or a profile with settings applied, and where it is from.

    Files that it names need not be here: a run finds them in its image.

    Raises:
        UserError: there is no such file, or a key or value is wrong.
    """
    base = find_profile(profile) if profile else params
    return parse_config(compose(base, settings), source=str(base)), str(base)
