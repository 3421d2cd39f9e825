"""What a run in the sandbox costs: wall clock and CPU of a small function, start and end of its process included.

CPU is that of all three who work on it: the supervisor, the zygote, the process of the run. Wall clock is what a caller
waits for one run after the other; on a machine that is busy with other things it says little, the CPU more.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from geartrain.sandbox.outcome import Call
from geartrain.sandbox.supervisor import Sandbox

CODE = "def add(a, b):\n    return a + b\n"
ALLOWED_MS = 5.0


def cpu_ms(process: int) -> float:
    """Return the CPU time of a process and of its children that have ended, in ms, as exact as a clock tick."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) * 10.0


def measure(imports: list[str], runs: int) -> None:
    """Print a row."""
    started = time.perf_counter()
    with Sandbox(imports) as sandbox:
        start_ms = (time.perf_counter() - started) * 1e3
        assert sandbox._zygote is not None
        zygote = sandbox._zygote.process
        sandbox.run(CODE, [Call("add", [20, 22])])
        loaded, walls, own = [], [], []
        before, mine, all_started = cpu_ms(zygote), time.process_time(), time.perf_counter()
        for _ in range(runs):
            begun = time.perf_counter()
            with sandbox.program(CODE) as program:
                loaded.append((time.perf_counter() - begun) * 1e3)
                answer = program.call(Call("add", [20, 22]))
            walls.append((time.perf_counter() - begun) * 1e3)
            outcome = program.outcome([answer])
            own.append(outcome.cpu_seconds * 1e3)
            assert outcome.values == [42]
        each = (time.perf_counter() - all_started) / runs * 1e3
        here, there = (time.process_time() - mine) / runs * 1e3, (cpu_ms(zygote) - before) / runs
    row = [start_ms]
    for times in (loaded, walls):
        row += [statistics.median(times), statistics.quantiles(times, n=10)[-1]]
    row += [each, statistics.median(own), here, there]
    print(f"{'+'.join(['standard', *imports]):16}" + "".join(f"{number:11.2f}" for number in row))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    runs = parser.parse_args().runs
    print(f"{runs} runs; ms. zygote: its start and trial, once. loaded: until the code can be called, median and p90.")
    print(
        "run: to its end. each: wall clock of all, by run. CPU: of the run's process, of the supervisor, of the zygote"
    )
    print("and all its runs.")
    names = ("zygote", "loaded", "p90", "run", "p90", "each", "CPU: run", "supervisor", "zygote")
    print(f"{'modules':16}" + "".join(f"{name:>11}" for name in names))
    for imports in ([], ["numpy"]):
        measure(imports, runs)


if __name__ == "__main__":
    sys.exit(main())
