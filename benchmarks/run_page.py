"""How fast the run page is on a long run: 1,000 iterations, 50,000 episodes; in headless Chromium.

    python -m benchmarks.run_page [--folder KEPT]

Writes the run by the writers of a real one (of 20 iterations the episodes are
distinct, the other files are second names of theirs), starts `geartrain serve`
in a process of its own, and opens each part of the page anew: once right after
the server has started, which has read nothing yet, then five times more. Times
are the browser's own, from the start of the navigation: first paint of anything
(first-contentful-paint), and when what was asked for stands there. Ends with
exit code 1 if the first paint is late or the browser complained.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.fakes.chromium import Browser, browser
from tests.fakes.long_run import write_long_run

ITERATIONS, TASKS, SIBLINGS, DISTINCT = 1000, 10, 5, 20
AGAIN = 5
FIRST_PAINT = 1.0
"""Seconds until the page of the run has painted something; what was asked for comes after it."""
PAGES = {
    # what: (address, mark of the page when it stands there)
    "curves": ("", "curves-drawn"),
    "newest episodes": ("&tab=episodes", "episodes-shown"),
    "all episodes, by advantage": ("&tab=episodes&iteration=all&sort=advantage", "episodes-shown"),
    "one episode": ("&tab=episodes&at=500&place=7", "episodes-shown"),
}
TIMES = """(() => [
  performance.getEntriesByName('first-contentful-paint')[0]?.startTime,
  performance.getEntriesByName(MARK)[0]?.startTime,
  performance.getEntriesByType('resource').reduce((sum, one) => sum + one.encodedBodySize, 0),
])()"""


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "geartrain", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), psutil.Process(process.pid)
        finally:
            process.terminate()


def measure(window: Browser, address: str, mark: str) -> tuple[float, float, float]:
    """Return seconds to the first paint and to the mark, and megabytes that were sent."""
    times = TIMES.replace("MARK", repr(mark))
    with window.page(address) as page:
        page.until(f"performance.getEntriesByName({mark!r}).length && {times}[0]")
        paint, drawn, sent = page.run(times)
        complaints = page.complaints()
    if complaints:
        raise SystemExit(f"{address}: the browser complained: {complaints}")
    return paint / 1000, drawn / 1000, sent / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="keep the run there, or take the one that is there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch) / "long"
        if not folder.exists():
            write_long_run(
                folder, iterations=ITERATIONS, tasks=TASKS, siblings=SIBLINGS, ended="complete", distinct=DISTINCT
            )
        missed = False
        print(f"{'':28} {'first paint, s':>16} {'shown, s':>20} {'sent, MB':>10} {'server, MB':>11}")
        print(f"{'':28} {'cold':>8}{'warm':>8} {'cold':>10}{'warm':>10}")
        for name, (query, mark) in PAGES.items():
            with serving(folder) as (address, server), browser() as window:
                runs = [measure(window, address + query, mark) for _ in range(1 + AGAIN)]
                memory = server.memory_info().rss / 1e6
            cold = runs[0]
            paint, shown = (statistics.median(run[at] for run in runs[1:]) for at in (0, 1))
            print(
                f"{name:28} {cold[0]:8.2f}{paint:8.2f} {cold[1]:10.2f}{shown:10.2f} {cold[2]:10.2f} {memory:11.0f}",
                flush=True,
            )
            missed = missed or (name == "curves" and max(run[0] for run in runs) > FIRST_PAINT)
    if missed:
        raise SystemExit(f"the first paint took longer than {FIRST_PAINT:g} s")


if __name__ == "__main__":
    main()
