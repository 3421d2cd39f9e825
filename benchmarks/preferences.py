"""What it takes to build a data set of preferences: records per CPU second, and memory.

Made-up pairs as JSON lines, 450 bytes each: one record in 50 comes again, one in 50 is near another, one in 1000 is
broken. The bars: 20,000 records per CPU second without MinHash and 5,000 with it; 1 GiB of memory for 5,000,000
records. CPU seconds, for on a machine in use only they mean something (and even they grow with what shares its cores).

    python -m benchmarks.preferences                       200,000 records, with and without MinHash
    python -m benchmarks.preferences --records 5000000 --only near
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from geartrain.preferences.building import Options, build
from geartrain.preferences.sources import SourceFile

BARS = {"plain": 20_000, "near": 5_000}
"""Records per CPU second."""
MOST_MEMORY = 1024.0
"""MiB."""


def lines(count: int) -> Iterator[str]:
    """Yield pairs as JSON lines; the same every time."""
    chance = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(30_000)]
    words += ["the", "of", "and", "to", "in", "is", "that", "for"] * 1500
    phrases = [" ".join(chance.choices(words, k=5)) for _ in range(200_000)]
    pick, draw, size = phrases.__getitem__, chance.random, len(phrases)
    line = ""
    for number in range(count):
        kind = number % 50
        if kind == 7 and line:
            yield line
            continue
        if kind == 23 and line:
            yield line.replace(" #", " indeed #")
            continue
        if number % 1000 == 999:
            yield line[:-9]
            continue
        parts = [pick(int(draw() * size)) for _ in range(12)]
        line = (
            f'{{"prompt": "{parts[0]} {parts[1]} {parts[2]}?", "chosen": "{" ".join(parts[3:8])} #{number}", '
            f'"rejected": "{" ".join(parts[8:])} #{number}"}}'
        )
        yield line


def generate(path: Path, count: int) -> None:
    """Write the pairs."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines(count))


def measure(path: Path, near: bool) -> dict[str, float]:
    """Build once in this process; return seconds, counts and memory (MiB, of the whole process at its largest)."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        output = Path(folder) / "out"
        output.mkdir()
        cpu, wall = time.process_time(), time.perf_counter()
        report = build([SourceFile(path)], Options(near=near), output=output, work=Path(folder) / "work")
        return {
            "cpu": time.process_time() - cpu,
            "wall": time.perf_counter() - wall,
            "records": report["records"],
            "kept": report["kept"],
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def main() -> None:
    """Print one line per way of building: CPU and wall seconds, records per CPU second, memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", choices=sorted(BARS))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.only == "near")))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.jsonl"
        generate(path, options.records)
        size = path.stat().st_size
        print(f"{options.records:,} records, {size / 2**20:,.0f} MiB, {size / options.records:.0f} bytes each")
        print(f"{'':8}{'CPU s':>9}{'wall s':>9}{'records/s':>11}{'bar':>8}{'MiB':>7}  kept")
        for name in [options.only] if options.only else list(BARS):
            # a process each: memory is that of the largest moment of its life
            command = [sys.executable, "-m", "benchmarks.preferences", "--measure", str(path), "--only", name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout)
            speed = found["records"] / found["cpu"]
            late = "  SLOW" if speed < BARS[name] else ""
            late += "  LARGE" if found["memory"] > MOST_MEMORY else ""
            print(
                f"{name:8}{found['cpu']:9.1f}{found['wall']:9.1f}{speed:11,.0f}{BARS[name]:8,}{found['memory']:7.0f}  "
                f"{found['kept']:,}{late}",
                flush=True,
            )


if __name__ == "__main__":
    main()
