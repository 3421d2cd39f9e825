"""Two nodes on one machine: network namespaces with addresses of their own, joined by a cable; torchrun on each.

Needs root, `ip` and DeepSpeed: `make test-nodes`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from geartrain.credit_table import FOLDER
from geartrain.viewer.episodes import Asked, Episodes

NAMES = ("geartrain-a", "geartrain-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
CABLE = ("gt-a", "gt-b")
SECONDS = 280
"""Of one run; far more than it takes."""
SMOKE = Path(__file__).parents[2] / "profiles" / "smoke.yaml"
SETTINGS = (
    *("environment.name=twophase", "policy.iterations=3", "policy.recipe=gear_a_sgcd"),
    *("policy.settings.gear_a_sgcd.distil=0.3", "policy.microbatch_tokens=1024"),
)
"""The composed method with a teacher in its loss: every head and every pass is dealt out."""


@pytest.fixture(scope="session")
def cable() -> Iterator[None]:
    """Two namespaces that reach each other and nothing else."""
    _remove()
    for name in NAMES:
        _ip("netns", "add", name)
    _ip("link", "add", CABLE[0], "netns", NAMES[0], "type", "veth", "peer", "name", CABLE[1], "netns", NAMES[1])
    for name, end, address in zip(NAMES, CABLE, ADDRESSES, strict=True):
        _ip("-n", name, "address", "add", f"{address}/24", "dev", end)
        for device in (end, "lo"):
            _ip("-n", name, "link", "set", device, "up")
    yield
    _remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _remove() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with everything that the policy stage reads."""
    folder = tmp_path_factory.mktemp("prepared")
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    command = ["run", "--profile", str(SMOKE), "--dir", str(folder), "--until", "critic", *settings]
    subprocess.run([sys.executable, "-m", "geartrain", *command], check=True, cwd=SMOKE.parents[1])
    return folder


@dataclass
class Job:
    """The policy stage on some nodes, in a workspace of its own."""

    folder: Path
    nodes: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> "Job":
        """Start torchrun on every node; with one, the stage itself."""
        stage = ["-m", "geartrain", "stage", "policy", "--dir", str(self.folder), "--quiet"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.processes = []
        for node in range(self.nodes):
            command = [sys.executable, *stage]
            if self.nodes > 1:
                rendezvous = ["--master_addr", ADDRESSES[0], "--master_port", "29500", "--node_rank", str(node)]
                size = ["--nnodes", str(self.nodes), "--nproc_per_node", "1", *rendezvous]
                run = [sys.executable, "-m", "torch.distributed.run", *size, *stage]
                command = ["ip", "netns", "exec", NAMES[node], *run]
                environment["GLOO_SOCKET_IFNAME"] = CABLE[node]
            with (self.folder / f"node-{node}.log").open("a") as log:
                self.processes.append(
                    subprocess.Popen(command, env=dict(environment), stdout=log, stderr=log, start_new_session=True)
                )
        return self

    def wait(self) -> list[int]:
        """Return the exit codes; of a job that hangs, say what it printed."""
        try:
            return [process.wait(SECONDS) for process in self.processes]
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running after {SECONDS} s\n{self.logs()}") from error

    def tell(self, *nodes: int) -> None:
        """Send SIGTERM to what was started on some nodes, as a container's first process gets it."""
        for node in nodes:
            self.processes[node].send_signal(signal.SIGTERM)

    def lose(self, node: int) -> None:
        """Kill all processes of a node: torchrun, its workers, theirs; they are sessions of their own."""
        if self.nodes > 1:
            listed = subprocess.run(["ip", "netns", "pids", NAMES[node]], check=True, capture_output=True, text=True)
            for pid in map(int, listed.stdout.split()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif self.processes[node].poll() is None:
            os.killpg(self.processes[node].pid, signal.SIGKILL)
        self.processes[node].wait(SECONDS)

    def end(self) -> None:
        """Kill whatever still runs."""
        for node in range(len(self.processes)):
            self.lose(node)

    def checkpoints(self) -> int:
        """Return how many iterations the newest checkpoint has behind it."""
        found = [int(path.name.split("-")[0]) for path in self.folder.glob(".geartrain/work/policy-*/checkpoints/*.pt")]
        return max(found, default=0)

    def history(self) -> list[dict[str, Any]]:
        """Return what the finished stage wrote of its iterations."""
        text = (self.folder / "models/policy/history.jsonl").read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def episodes(self) -> list[dict[str, Any]]:
        """Return what the run page lists of the recorded episodes, of all iterations, in their order."""
        (folder,) = self.folder.glob(f".geartrain/live/policy-*/{FOLDER}")
        order = ("iteration", "task_id", "sibling")
        return sorted(Episodes(folder).page(Asked(limit=10_000))["rows"], key=lambda row: [row[name] for name in order])

    def logs(self) -> str:
        """Return what the nodes printed."""
        return "\n".join(path.read_text("utf-8") for path in sorted(self.folder.glob("node-*.log")))


@pytest.fixture
def job(prepared: Path, tmp_path: Path, cable: None) -> Iterator[Callable[..., Job]]:
    """Make a job; `policy` are settings of the section, `threads` those of each rank."""
    made: list[Job] = []

    def make(name: str, *, nodes: int = 2, threads: int = 1, **policy: Any) -> Job:
        folder = tmp_path / name
        shutil.copytree(prepared, folder, symlinks=True)
        params = yaml.safe_load((folder / "params.yaml").read_text("utf-8"))
        params["threads"] = threads
        params["policy"] |= policy
        (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False), "utf-8")
        made.append(Job(folder, nodes))
        return made[-1]

    yield make
    for one in made:
        one.end()
