"""Run the Kubeflow pipeline on this machine: `python -m pipelines.local [--params params.yaml] [--engine podman]`.

The same compiled graph and the same component bodies as on a cluster, with
kfp's local runner; the artifacts end up in the folders of the workspace, which
is the working directory. Tasks are processes, or with an engine containers of
the image that a cluster runs. Honours neither resources nor retries, and
nothing that kfp-kubernetes sets.
"""

import argparse
import shutil
import sys
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kfp import local

from geartrain import artifacts
from geartrain.cluster.conclusion import read_note
from geartrain.cluster.pinned import Pin
from geartrain.cluster.pinning import pin
from geartrain.cluster.step import NOTE
from geartrain.config import Config
from geartrain.config_file import load_config
from geartrain.errors import GeartrainError
from pipelines.compile import arguments
from pipelines.containers import Containers
from pipelines.resources import POD_VARIABLES, UNREACHABLE
from pipelines.training import training

CONCLUSION = "conclusion.json"
"""File in `home()`: what the exit task wrote of the last run."""


def run_local(
    config: Config,
    workspace: Path,
    *,
    dataset_rev: str = "",
    data: Mapping[str, Pin] | None = None,
    containers: Containers | None = None,
) -> None:
    """Run the pipeline and publish each task's artifact to its stage's folder in `workspace`.

    Args:
        config: of the run.
        workspace: where artifacts end up; the working directory.
        dataset_rev, data: see `geartrain submit`.
        containers: run the tasks; without, they are processes.

    Raises:
        UserError: the engine cannot be started, or has not the image.
        RuntimeError: a task failed; its output says why.
    """
    from geartrain.home import home
    from geartrain.stages.stage import FOLDERS

    root = home(workspace) / "kfp"
    shutil.rmtree(root, ignore_errors=True)
    for name in (NOTE, CONCLUSION):
        (home(workspace) / name).unlink(missing_ok=True)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root), raise_on_error=True)
    _suit_this_machine(training.pipeline_spec, pods=containers is not None)
    if containers is not None:
        containers.check(_images(training.pipeline_spec))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="You may be attemping to run a task", category=RuntimeWarning)
            warnings.filterwarnings("ignore", message="Task '.*': settings .* have no effect")
            pins = {key: pin.model_dump() for key, pin in (data or {}).items()}
            with nullcontext() if containers is None else containers.serve(work=home(workspace)):
                training(**arguments(config), dataset_rev=dataset_rev, data=pins)
    finally:
        # <root>/<pipeline>-<time>/.../<task>/<artifact>
        for told in root.glob("*/**/conclude/record"):
            artifacts.write_atomically(home(workspace) / CONCLUSION, told.read_text(encoding="utf-8"))
    for stage, folder in FOLDERS.items():
        artifacts.publish(next(root.glob(f"*/**/{stage.replace('_', '-')}/{stage}")), workspace / folder)
    shutil.rmtree(root, ignore_errors=True)


def _images(spec: Any) -> list[str]:
    return sorted({executor["container"]["image"] for executor in spec.deployment_spec["executors"].values()})


def _suit_this_machine(spec: Any, *, pods: bool) -> None:
    """Take away retries (here a failure is not a node's: show it once, at once) and what makes sense in a pod only.

    Args:
        spec: of the pipeline; changed.
        pods: tasks are given a pod's folders.
    """
    away = UNREACHABLE if pods else POD_VARIABLES
    for component in (spec.root, *spec.components.values()):
        for task in component.dag.tasks.values():
            task.ClearField("retry_policy")
    for executor in spec.deployment_spec["executors"].values():
        container = executor["container"]
        kept = [dict(entry) for entry in container["env"] if entry["name"] not in away]
        container["env"] = kept


def main() -> None:
    """Command line. Exit codes: 0; 2 something to mend; 75 disk or network; 1 a fault of the program."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.local", description=__doc__)
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), help="configuration of the run")
    parser.add_argument("--dataset-rev", default="", help="which data to insist on, as of `geartrain submit`")
    parser.add_argument("--data", action="append", default=[], help="KEY=NAME@REV, as of `geartrain submit`")
    parser.add_argument("--data-from", help="project of --data")
    parser.add_argument("--engine", help="podman or docker: run each task in a container of its image")
    options = parser.parse_args()
    containers = None if options.engine is None else Containers(options.engine)
    try:
        config = load_config(options.params)
        pins = pin(config, options.data, project=options.data_from, for_pods=containers is not None)
        run_local(config, Path.cwd(), dataset_rev=options.dataset_rev, data=pins, containers=containers)
    except GeartrainError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except RuntimeError as error:
        note = read_note()
        print(f"error: {error}", file=sys.stderr)
        if note is not None:
            print(f"error: {note['task']}: {note['message']}", file=sys.stderr)
        code = None if containers is None else containers.failed
        raise SystemExit(int(note["exit_code"]) if note is not None else code or 1) from None


if __name__ == "__main__":
    main()
