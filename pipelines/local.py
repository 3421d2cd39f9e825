"""Run the Kubeflow pipeline in processes of this machine: `python -m pipelines.local [--params params.yaml]`.

The same compiled graph and the same component bodies as on a cluster, with
kfp's local runner; the artifacts end up in the folders of the workspace, which
is the working directory. Honours neither resources nor retries.
"""

import argparse
import shutil
import sys
import warnings
from pathlib import Path

from kfp import local

from geartrain import artifacts
from geartrain.config import Config
from geartrain.config_file import load_config
from geartrain.errors import UserError
from pipelines.compile import arguments
from pipelines.training import training


def run_local(config: Config, workspace: Path) -> None:
    """Run the pipeline and publish each task's artifact to its stage's folder in `workspace`.

    Raises:
        RuntimeError: a task failed; its output says why.
    """
    from geartrain.stages.stage import FOLDERS, home

    root = workspace / home() / "kfp"
    shutil.rmtree(root, ignore_errors=True)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(root), raise_on_error=True)
    for task in training.pipeline_spec.root.dag.tasks.values():
        task.ClearField("retry_policy")  # here a failure is not a node's: show it once, at once
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You may be attemping to run a task", category=RuntimeWarning)
        training(**arguments(config))
    for stage, folder in FOLDERS.items():
        # <root>/<pipeline>-<time>/<task>/<artifact>
        produced = next(root.glob(f"*/{stage.replace('_', '-')}/{stage}"))
        artifacts.publish(produced, workspace / folder)
    shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.local", description=__doc__)
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), help="configuration of the run")
    options = parser.parse_args()
    try:
        config = load_config(options.params)
        run_local(config, Path.cwd())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
