"""Tasks of the pipeline in containers of this machine, under the rules of their pods.

`python -m pipelines.local --engine podman` hands every task of kfp's local runner to `podman` or `docker`. kfp's own
DockerRunner is not used: it has the engine remove the container before it asks how it ended, and takes the lack of an
answer for success. Here the engine runs in the foreground, and its exit code is the container's.

A container gets what a pod gets: the image, no network, no capabilities, a user that is nobody, a root that cannot be
written. `home()` of the workspace is its /work, so a task goes on from what a killed one left there.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp.local import status, subprocess_task_handler

from geartrain.errors import UserError
from pipelines.resources import NOBODY, TEMPORARY, WORK

ENGINE_FAILED = 125
"""Exit code of both engines where it was they that failed, not what they ran."""
RULES = (
    *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--pids-limit", "512"),
)
CACHE = "/cache"


@dataclass
class Containers:
    """Runs tasks, and knows how the first that failed has ended."""

    engine: str
    """`podman`, `docker`, or the path of one."""
    failed: int | None = None
    """Exit code of the first task that failed."""

    def check(self, images: Sequence[str]) -> None:
        """Raise UserError unless the engine starts and has the images; nothing is pulled."""
        for image in images:
            look = [self.engine, "image", "inspect", image]
            try:
                found = subprocess.run(look, capture_output=True, text=True, check=False)  # noqa: S603
            except OSError as error:
                raise UserError(f"--engine {self.engine} cannot be started: {error}") from None
            if found.returncode:
                said = (found.stderr.strip().splitlines() or ["no word"])[-1]
                raise UserError(
                    f"{self.engine} has no image {image} ({said}). Build it with `make images`, or name another with "
                    "GEARTRAIN_IMAGE."
                )

    def command(
        self, image: str, words: Sequence[str], root: Path, work: Path, variables: Mapping[str, str]
    ) -> list[str]:
        """Return what the engine is asked for a task.

        Args:
            image: its image.
            words: its command.
            root: folder of all artifacts; has the same path inside.
            work: becomes /work.
            variables: its environment, beside the image's own.
        """
        own, podman = os.getuid(), Path(self.engine).name == "podman"
        owner = NOBODY if own == 0 else own
        mapped = ["--userns", "keep-id"] if own and podman else []
        chown = (
            ",U" if podman else ""
        )  # podman gives a tmpfs to root, whatever its mode; docker does not know the option
        empty = [word for path in (TEMPORARY, CACHE) for word in ("--tmpfs", f"{path}:rw,size=1g,mode=1777{chown}")]
        folders = ["--volume", f"{root}:{root}:rw", "--volume", f"{work}:{WORK}:rw"]
        given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        entry, *arguments = words
        who = [*mapped, "--user", f"{owner}:{owner}"]
        run = [self.engine, "run", "--rm", "--pull", "never", *who, *RULES, *empty, *folders, *given]
        return [*run, "--entrypoint", entry, image, *arguments]

    def run(self, image: str, words: Sequence[str], root: Path, work: Path, variables: Mapping[str, str]) -> bool:
        """Run a task, print what it prints, return whether it succeeded; see `command`."""
        _give(root)
        code = int(subprocess_task_handler.run_local_subprocess(self.command(image, words, root, work, variables)))
        if code and self.failed is None:
            self.failed = code
        if code == ENGINE_FAILED:
            print(f"{self.engine} itself failed, see above: the task was not run")
        return code == 0

    @contextmanager
    def serve(self, *, work: Path) -> Iterator[None]:
        """Let kfp's runner of processes run its tasks here meanwhile: it has no place for other runners.

        Args:
            work: what tasks leave behind for the next try; their /work.
        """
        containers = self
        _give(work)

        class Handler:
            """One task, as kfp asks for it."""

            def __init__(
                self,
                image: str,
                full_command: list[str],
                pipeline_root: str,
                runner: Any,
                env_vars: dict[str, str] | None = None,
            ) -> None:
                self._task = (image, full_command, Path(pipeline_root), work.resolve(), env_vars or {})

            def run(self) -> status.Status:
                return status.Status.SUCCESS if containers.run(*self._task) else status.Status.FAILURE

        processes = subprocess_task_handler.SubprocessTaskHandler
        subprocess_task_handler.SubprocessTaskHandler = Handler
        try:
            yield
        finally:
            subprocess_task_handler.SubprocessTaskHandler = processes


def _give(folder: Path) -> None:
    """Let nobody write in a folder; what the task does there belongs to nobody."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink() and path.stat().st_uid != NOBODY:
                os.chown(path, NOBODY, NOBODY)
