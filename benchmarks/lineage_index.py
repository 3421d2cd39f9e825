"""What an auditor waits for: the index of a long history made anew, and the two questions asked of it.

A made-up history of 10,000 runs, 1,000 datasets and 1,000 models, in so many events. The bars: 10 s for an index of
100,000 events; 1 s for opening it once it is there and asking which models a dataset reached, and what the last of
these was made of. CPU seconds, and wall seconds beside them: on a machine in use only the first mean something.

    python -m benchmarks.lineage_index
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geartrain.lineage.index import Index, open_index
from tests.fakes.histories import write_history


@contextmanager
def timed(what: str, bar: float) -> Iterator[None]:
    """Print what the block took."""
    cpu, wall = time.process_time(), time.perf_counter()
    yield
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{what:28} {cpu:7.2f} {wall:7.2f} {bar:5.0f}{'  OVER' if cpu > bar else ''}", flush=True)


def ask(home: Path, digest: str) -> tuple[Index, int]:
    """Return the index, and how many models the data reached."""
    index = open_index(home)
    reached = index.models_reached(digest)
    index.up(reached[-1].model.digest)
    return index, len(reached)


def main() -> None:
    """Print one line per question: CPU seconds, wall seconds, bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        raw = write_history(home / "lineage", events=options.events)
        print(f"{options.events:,} events{'':14} {'CPU s':>7} {'wall s':>7} {'bar':>5}")
        with timed("index made", 10.0 * options.events / 100_000):
            open_index(home).close()
        with timed("opened, both questions", 1.0):
            index, models = ask(home, raw[0])
        print(f"{index.counts()['runs']:,} runs; {raw[0][:12]} reached {models} models")


if __name__ == "__main__":
    main()
