"""What being watched costs a run: CPU seconds of the exporter beside those of an optimiser step's iteration.

The exporter takes in one line an iteration and answers scrapes from a thread of the training process. Both are timed
with a record that has every number declared, in CPU seconds of this process, the scraper being another one. The
iteration is `credit_overhead`'s: the demo's model, plain GRPO, one thread, the learning alone. Playing comes on top, so
the shares printed are upper bounds.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from credit_overhead import SIBLINGS, cpu_seconds, episodes

from geartrain.config import TinyModel
from geartrain.models.backbone import build_policy
from geartrain.models.tokenizer import train_tokenizer
from geartrain.policy_section import PolicySection
from geartrain.telemetry import METRICS, Metric
from geartrain.telemetry.endpoint import Endpoint
from geartrain.telemetry.readings import Readings

FAMILIES = ("ranking", "comparison", "drilldown", "join", "anomaly", "mail")
INTERVALS = (30.0, 15.0, 1.0, 0.1)
"""Seconds between two scrapes: as k8s/base has it, Prometheus' usual, and two that nobody needs."""
BAR = 0.01
"""Share of an iteration at most, at the usual interval."""
_SCRAPER = """
import sys
from urllib.request import ProxyHandler, build_opener
fetch = build_opener(ProxyHandler({})).open
for _ in range(int(sys.argv[2])):
    fetch(f"http://127.0.0.1:{sys.argv[1]}/metrics").read()
"""


def whole_line(index: int) -> dict[str, Any]:
    """Return an iteration's line in which every declared number is there."""
    line: dict[str, Any] = {"kind": "iteration", "time": time.time(), "index": index, "record": {"iteration": index}}
    for metric in METRICS.values():
        if metric.of == "policy" and metric.source.startswith(("record.", "seconds.", "tokens.")):
            for part in metric.source.split(" / "):
                _fill(line, part.split("."), metric)
    line["seconds"] |= {"play": 2.0, "train": 1.0, "validate": 0.5}
    line["record"] |= {"alarms": ["entropy: x"], "mismatch": 1e-5, "val_greedy": 0.5, "val_sampled": 0.5}
    line["record"]["scoring_failures"] = {"learned.too_long": 1, "n/a learned.tied": 3}
    line["ranks"] = [{"rank": rank, "node": "n", "memory_bytes": 1.0, "cpu_seconds": 1.0} for rank in range(8)]
    return line


def _fill(holder: dict[str, Any], path: list[str], metric: Metric, used: int = 0) -> None:
    part, *rest = path
    names = [part]
    if "*" in part:
        names = [part.replace("*", value) for value in metric.labels[used].values or FAMILIES]
        used += 1
    for name in names:
        if rest:
            _fill(holder.setdefault(name, {}), rest, metric, used)
        else:
            holder[name] = 0.5


def cpu_each(work: Callable[[], object], times: int) -> float:
    """Return the CPU seconds that this process, threads included, spends on one of so many."""
    start = time.process_time()
    work()
    return (time.process_time() - start) / times


def main() -> None:
    """Print CPU seconds of an iteration, of a line and of a scrape, and the exporter's share by interval."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=500, help="lines, and scrapes, that are timed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = train_tokenizer([str(number) for number in range(20_000)], vocabulary=2048)
    policy = build_policy(tokenizer, TinyModel(hidden=128, layers=4, heads=2, context=2048), seed=0)
    weights = {name: value.clone() for name, value in policy.model.state_dict().items()}
    trajectories = episodes(policy, options.trajectories)
    section = PolicySection(microbatch_tokens=2048)
    cpu_seconds("grpo", policy, weights, trajectories[:SIBLINGS], section)  # warm up
    rounds = [cpu_seconds("grpo", policy, weights, trajectories, section) for _ in range(options.rounds)]
    iteration = statistics.median(rounds)

    readings = Readings()
    readings.tell("policy", {"kind": "begin", "time": time.time(), "parameters": {"policy": {"iterations": 1}}})
    lines = [whole_line(index) for index in range(options.times)]
    line = cpu_each(lambda: [readings.tell("policy", one) for one in lines], options.times)
    endpoint = Endpoint(readings)
    command = [sys.executable, "-c", _SCRAPER, str(endpoint.port), str(options.times)]
    idle = cpu_each(lambda: subprocess.run([*command[:-1], "0"], check=True), 1)
    scrape = cpu_each(lambda: subprocess.run(command, check=True), options.times) - idle / options.times
    series = int(readings.samples()["geartrain_exporter_series"][0].value)
    endpoint.close()

    print(f"{len(trajectories)} trajectories, one thread, {options.rounds} rounds; {series} series")
    print(f"CPU: an iteration's learning {iteration:.2f} s, a line {1e3 * line:.2f} ms, a scrape {1e3 * scrape:.2f} ms")
    print(f"{'scraped every':>14} {'share of the iteration':>23}")
    for interval in INTERVALS:
        share = line / iteration + scrape / interval
        over = "  OVER" if interval >= INTERVALS[1] and share > BAR else ""
        print(f"{interval:12g} s {share:22.4%}{over}")


if __name__ == "__main__":
    main()
