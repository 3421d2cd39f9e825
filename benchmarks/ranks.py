"""What several ranks gain on the policy stage, and what they lose: time at work, waiting for others, telling them.

    python benchmarks/ranks.py --workspace runs/smoke --ranks 1 2

Runs the stage of a finished workspace (its inputs are read, nothing of it is
changed) with the same global batch on each number of ranks of this machine, one
thread each. Before each exchange a rank waits at a barrier: that time is the
others' being late; what follows is the exchange itself.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from geartrain.config_file import load_config
from geartrain.ranks import ALONE, Group, Ranks
from geartrain.stages.stage import FOLDERS, load_stage

T = TypeVar("T")


class TimedGroup(Group):
    """A group that knows where its time went, in seconds."""

    def __init__(self) -> None:
        super().__init__(os.environ)
        self.waited = self.told = 0.0

    def _timed(self, exchange: Callable[[], T]) -> T:
        started = time.perf_counter()
        self._dist.barrier()
        met = time.perf_counter()
        found = exchange()
        self.waited += met - started
        self.told += time.perf_counter() - met
        return found

    def gather(self, value: T) -> list[T]:
        return self._timed(lambda: super(TimedGroup, self).gather(value))

    def first(self, value: T) -> T:
        return self._timed(lambda: super(TimedGroup, self).first(value))

    def add(self, tensor: Any) -> None:
        self._timed(lambda: super(TimedGroup, self).add(tensor))


def work(workspace: Path, result: Path) -> None:
    """Be one rank: run the stage, write down how long it took."""
    import torch

    torch.set_num_threads(1)
    alone = "WORLD_SIZE" not in os.environ
    timed = None if alone else TimedGroup()
    ranks: Ranks = timed or ALONE
    config = load_config(workspace / "params.yaml").model_copy(update={"threads": 1})
    spec = load_stage("policy")
    inputs = {name: workspace / FOLDERS[name] for name in spec.inputs}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GEARTRAIN_HOME"] = str(result.parent / "home")
        started, used = time.perf_counter(), time.process_time()
        spec.run(config, inputs, {"policy": Path(folder) / "policy"}, ranks)
        record = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - used}
    record |= {"waited": timed.waited, "told": timed.told} if timed else {"waited": 0.0, "told": 0.0}
    result.with_suffix(f".{ranks.rank}.json").write_text(json.dumps(record))
    ranks.close()


def measure(workspace: Path, count: int) -> dict[str, float]:
    """Run the stage on `count` ranks; return the mean over ranks."""
    with tempfile.TemporaryDirectory() as folder:
        script = [str(Path(__file__).resolve()), "--workspace", str(workspace.resolve())]
        script += ["--result", str(Path(folder) / "rank")]
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(count)]
        command = [*start, *script] if count > 1 else [sys.executable, *script]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        records = [json.loads(path.read_text()) for path in Path(folder).glob("rank.*.json")]
        assert len(records) == count, records
    return {name: sum(record[name] for record in records) / count for name in records[0]}


def main() -> None:
    """Command line; as a rank, its work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result is not None:
        work(options.workspace, options.result)
        return
    print("| ranks | seconds | against one | CPU s per rank | waiting | telling |\n|---|---|---|---|---|---|")
    first = None
    for count in options.ranks:
        found = measure(options.workspace, count)
        first = first or found["seconds"]
        shares = [f"{100 * found[name] / found['seconds']:.1f} %" for name in ("waited", "told")]
        print(
            f"| {count} | {found['seconds']:.1f} | {first / found['seconds']:.2f} x | {found['cpu_seconds']:.1f} "
            f"| {shares[0]} | {shares[1]} |"
        )


if __name__ == "__main__":
    main()
