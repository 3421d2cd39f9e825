"""Three ways to run the stages of a workspace in order: directly, by DVC, by Kubeflow's local runner.

Each runs every stage in a process of its own, so that memory goes back between
stages, and the direct and the DVC one skip a stage whose output is there and of the same making.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from geartrain import artifacts
from geartrain.config import Config
from geartrain.config_file import load_config
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_USER, UserError
from geartrain.lineage import events
from geartrain.lineage.origin import RUN_ID
from geartrain.processes import end_with_parent, run_group
from geartrain.stages.stage import FOLDERS, ORDER, event_log, record_current
from geartrain.workspace import PARAMS, is_current, project_root

TIED_TO_PARENT = "GEARTRAIN_TIED_TO_PARENT"
Say = Callable[[str], None]


def run_direct(folder: Path, config: Config, until: str, say: Say, *, output: IO[str] | None = None) -> int:
    """Run the stages up to `until`, each in a fresh process; return the exit code of the first that fails, or 0.

    `output` takes what the stages print; None leaves it on the terminal.
    """
    stages, session = ORDER[: ORDER.index(until) + 1], _session()
    for number, name in enumerate(stages, 1):
        title = f"[{number}/{len(stages)}] {name}"
        if load_config(folder / PARAMS) != config:  # a stage reads it anew
            raise UserError(
                f"{folder / PARAMS}: was changed during the run; run again, so that all stages agree on it."
            )
        if is_current(folder, name, config):
            record_current(folder, name)
            say(f"{title}: unchanged, skipped")
            continue
        say(title)
        started = time.monotonic()
        command = [sys.executable, "-m", "geartrain", "stage", name, "--dir", str(folder), "--quiet"]
        environment = {**process_environment(config.threads, tied=True), **session}
        code = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False).returncode  # noqa: S603
        if code:
            say(f"{title}: failed with exit code {code}; what finished is kept, and the same command goes on from here")
            return code if code > 0 else 1
        digest = artifacts.read_manifest(folder / FOLDERS[name]).digest
        say(f"{title}: done in {time.monotonic() - started:.1f} s, {FOLDERS[name]} ({digest[:12]})")
    return 0


def run_dvc(folder: Path, config: Config, until: str, say: Say) -> int:
    """Run `dvc repro` up to `until`; return 0 or the exit code that the failed stage's error stands for.

    Raises:
        UserError: the workspace has no `dvc.yaml`.
    """
    if not (folder / "dvc.yaml").is_file():
        raise UserError(f"{folder}: no dvc.yaml. `--engine dvc` works in the project's root; elsewhere use direct.")
    say(f"dvc repro {until}")
    return _orchestrate(folder, [sys.executable, "-m", "dvc", "repro", until], process_environment(config.threads))


def run_kfp(folder: Path, config: Config, until: str, say: Say) -> int:
    """Run the Kubeflow pipeline in this machine's processes (`kfp.local`); return an exit code as `run_dvc`.

    Raises:
        UserError: this is not a checkout (`pipelines/` is never installed), or `until` is not the last stage.
    """
    root = project_root()
    if root is None or not (root / "pipelines").is_dir():
        raise UserError("no pipelines/ beside the package. `--engine kfp` needs a checkout, installed by `make setup`.")
    if until != ORDER[-1]:
        raise UserError(f"--until {until}: Kubeflow runs the whole pipeline; use --engine direct or dvc.")
    say("kfp.local: pipelines.training")
    # pipelines/ and components/ are never installed; the tasks run the package of the same checkout
    search = os.pathsep.join([str(root), str(root / "src")])
    variables = {**process_environment(config.threads), "PYTHONPATH": search}
    return _orchestrate(folder, [sys.executable, "-m", "pipelines.local", "--params", PARAMS], variables)


ENGINES = {"direct": run_direct, "dvc": run_dvc, "kfp": run_kfp}


def process_environment(threads: int, *, tied: bool = False) -> dict[str, str]:
    """Return this process's environment with the settings that must be there before torch is loaded.

    Fixed threads make sums repeat. Between operations a thread spins for microseconds, then sleeps: one that sleeps at
    once costs a sixth of the speed, one that spins on takes the core from others. oneDNN keeps a kernel for each shape
    it has met: with batches of any length its default of 1024 holds gigabytes.
    """
    settings = {
        "GOMP_SPINCOUNT": "20000",
        "OMP_NUM_THREADS": str(threads),
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DVC_NO_ANALYTICS": "1",
    }
    # `dvc.yaml` says `python`: let it be the one that runs now
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**settings, **os.environ, "PATH": path, **({TIED_TO_PARENT: "1"} if tied else {})}


def die_with_parent(variables: Mapping[str, str] = os.environ) -> None:
    """Ask the kernel to end this process when the engine that started it ends, however that ends.

    A stage that outlived a killed `dvc` would go on for minutes, and its output
    would meet that of the next run. Ending it costs nothing: it resumes from
    its checkpoint. Only under an engine, and only on Linux; elsewhere the lock
    of `workspace.exclusive` makes the next run wait.
    """
    if TIED_TO_PARENT in variables or "DVC_STAGE" in variables:
        end_with_parent()


def _session() -> dict[str, str]:
    """Return the variable that tells stages which run they are part of: one that somebody gave, or a new one."""
    return {RUN_ID: os.environ.get(RUN_ID) or str(uuid.uuid4())}


def _orchestrate(folder: Path, command: list[str], variables: Mapping[str, str]) -> int:
    """Run an orchestrator; return 0 or the code of what failed.

    DVC's exit code says only "failed"; the kind of failure is in the last lineage event. Of what is no stage there is
    none, but `pipelines.local` ends with the code of the step.
    """
    log = folder / event_log()
    seen = len(events.read_events(log))
    code = run_group(command, cwd=folder, env={**variables, **_session()})
    if code == 0:
        return 0
    failures = [event for event in events.read_events(log)[seen:] if event["eventType"] == "FAIL"]
    kind = events.error_of(failures[-1]).get("type") if failures else None
    own = code if code in (EXIT_USER, EXIT_INFRASTRUCTURE) else 1
    return {"UserError": EXIT_USER, "InfrastructureError": EXIT_INFRASTRUCTURE}.get(str(kind), own)
