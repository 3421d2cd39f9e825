"""What lies between a TrainJob and its pods: Kueue admits it, Trainer sets PET_…, JobSet restarts. Pods are processes.

Each node is one real process on 127.0.0.1, started with the container's own command, arguments and environment.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.fakes.bench import COMPLETE, FAILED, PENDING, RUNNING
from tests.fakes.kubernetes_server import KubernetesServer, pod

Job = dict[str, Any]
SECONDS = 280


class ControlledServer(KubernetesServer):
    """A Kubernetes API whose TrainJobs are run.

    Args:
        run: runs a job's pods once; returns their exit codes and messages, by rank.
        restarts: how often all of them are started again after a failure that is no mistake (exit code 2).
    """

    def __init__(self, run: Callable[[Job], list[tuple[int, str]]], *, restarts: int = 0) -> None:
        super().__init__()
        self._run, self._restarts = run, restarts
        self.generations = 0
        """How often pods were started, all jobs together."""
        self._threads: list[threading.Thread] = []

    def __exit__(self, *error: object) -> None:
        for thread in self._threads:
            thread.join(SECONDS)
        super().__exit__(*error)

    def _create(self, body: Job) -> tuple[int, Any, dict[str, str]]:
        answer = super()._create(body)
        if answer[0] == 201:
            self._threads.append(threading.Thread(target=self._control, args=(answer[1],)))
            self._threads[-1].start()
        return answer

    def _control(self, job: Job) -> None:
        PENDING(job)
        for _ in range(self._restarts + 1):
            self.generations += 1
            RUNNING(job)
            ended = self._run(job)
            name = job["metadata"]["name"]
            self.pods = [
                pod(name, rank, {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed",
                                                "message": message}})
                for rank, (code, message) in enumerate(ended)
            ]  # fmt: skip
            codes = [code for code, _ in ended]
            if not any(codes):
                COMPLETE(job)
                return
            if 2 in codes:
                break
        FAILED(job)


class Pods:
    """Runs the nodes of a TrainJob as processes.

    Args:
        folder: for their logs and termination messages.
        variables: what the TrainingRuntime would give them: the way to the store, where the cache is.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder, self.variables = folder, dict(variables)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.started = threading.Event()
        self._times = 0

    def run(self, job: Job) -> list[tuple[int, str]]:
        """Start all, end all when one has failed, as JobSet does; return exit codes and messages."""
        self._times += 1
        trainer = job["spec"]["trainer"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        messages = [self.folder / f"message-{self._times}-{rank}" for rank in range(trainer["numNodes"])]
        self.processes = [self._start(trainer, rank, port, path) for rank, path in enumerate(messages)]
        self.started.set()
        failed = False
        while any(process.poll() is None for process in self.processes):
            for process in self.processes:
                try:
                    process.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
                if process.returncode and not failed:
                    failed = True
                    for other in self.processes:
                        if other.poll() is None:
                            other.send_signal(signal.SIGTERM)
        return [
            (process.returncode if process.returncode >= 0 else 128 - process.returncode, path.read_text())
            for process, path in zip(self.processes, messages, strict=True)
        ]

    def logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(self.folder.glob("log-*")))

    def _start(self, trainer: Job, rank: int, port: int, message: Path) -> "subprocess.Popen[bytes]":
        message.touch()
        environment = {
            **os.environ,
            **self.variables,
            **{entry["name"]: entry["value"] for entry in trainer["env"]},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_NODE_RANK": str(rank),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "GEARTRAIN_TERMINATION_LOG": str(message),
        }
        with (self.folder / f"log-{self._times}-{rank}").open("wb") as log:
            return subprocess.Popen(
                [*trainer["command"], *trainer["args"]], env=environment, stdout=log, stderr=log, cwd=self.folder
            )
