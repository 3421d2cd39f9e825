"""What lineage, features and supply chain cost beside the work itself: CPU seconds within one run, stage by stage.

Runs every stage of a profile as `dvc repro` does, a process each, and counts the seconds that are spent in what would
not be there without them: events and the digests of sources, tombstones, feature tables, frames and Feast (its import
included), model card, signature, provenance, SBOM, registration. Numerator and denominator are of the same run, so that
other work on the machine disturbs little. What DVC itself takes is left out of the denominator, which makes the share
larger. The model is trained under the same clock, so this takes as long as a run does.

    python benchmarks/evidence_overhead.py                    # the demo, 7 minutes
    python benchmarks/evidence_overhead.py --profile smoke    # tiny training: a larger share
    python benchmarks/evidence_overhead.py --key signing.key.pem
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

BAR = 5.0
"""Per cent of a run's CPU seconds."""
KINDS = ("lineage", "withdrawal", "features", "supply")
CALLS = {
    "geartrain.stages.stage": {"mend": "lineage", "read_sources": "lineage", "_task": "lineage"},
    "geartrain.lineage.tombstones": {"used": "withdrawal", "require_allowed": "withdrawal"},
    "geartrain.stages.preferences": dict.fromkeys(["recall", "remember", "spines", "write_features"], "features"),
    "geartrain.stages.reward_model": dict.fromkeys(["read_frame", "require_rows", "headroom_weights"], "features"),
    "geartrain.stages.critic": dict.fromkeys(["read_frame", "require_rows", "headroom_weights"], "features"),
    "geartrain.stages.policy": dict.fromkeys(["read_frame", "require_rows", "played"], "features"),
    "geartrain.stages.promotion": {"render_card": "supply"},
}
"""Module -> function -> kind: functions that do nothing else, where a stage finds them."""


class Meter:
    """Seconds by kind; what is measured within a measurement counts once, for the outer one."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)
        self._open = False

    @contextmanager
    def count(self, kind: str) -> Iterator[None]:
        """Count what happens inside."""
        if self._open:
            yield
            return
        self._open, cpu, wall = True, used(), time.perf_counter()
        try:
            yield
        finally:
            self._open = False
            self.cpu[kind] += used() - cpu
            self.wall[kind] += time.perf_counter() - wall

    def counted(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts whatever it does."""

        def measured(*arguments: Any, **options: Any) -> Any:
            with self.count(kind):
                return function(*arguments, **options)

        return measured

    def counted_around(self, kind: str, manager: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
        """Return a context manager of which beginning and end count, and what is done inside does not."""

        @contextmanager
        def measured(*arguments: Any, **options: Any) -> Iterator[Any]:
            with self.count(kind):
                inner = manager(*arguments, **options)
                value = inner.__enter__()
            yield value  # a stage that fails ends the benchmark
            with self.count(kind):
                inner.__exit__(None, None, None)

        return measured


def used() -> float:
    """Return CPU seconds of this process and of the children that it waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_stage(name: str, report: Path) -> None:
    """Run a stage in the workspace that is the working directory, and write what was counted."""
    started, meter = time.perf_counter(), Meter()
    with meter.count("lineage"):
        importlib.import_module("geartrain.lineage.recording")
    module = importlib.import_module(f"geartrain.stages.{name}")
    stages = importlib.import_module("geartrain.stages.stage")
    for place, functions in CALLS.items():
        if place in sys.modules:
            for function, kind in functions.items():
                setattr(sys.modules[place], function, meter.counted(kind, getattr(sys.modules[place], function)))
    stages.recorded = meter.counted_around("lineage", stages.recorded)  # type: ignore[attr-defined]
    spec = module.run.spec
    if spec.sealed is not None:
        object.__setattr__(spec, "sealed", meter.counted("supply", spec.sealed))
    history = sys.modules.get("geartrain.features.history")
    if history is not None:
        for method in ("observe", "write", "expected_success"):
            setattr(history.History, method, meter.counted("features", getattr(history.History, method)))
    from geartrain.cli import app

    app(["stage", name, "--quiet"], standalone_mode=False)
    told = {"total": [used(), time.perf_counter() - started]}
    told |= {kind: [meter.cpu[kind], meter.wall[kind]] for kind in KINDS}
    report.write_text(json.dumps(told))


def run_all(profile: str, folder: Path, settings: list[str]) -> dict[str, dict[str, list[float]]]:
    """Return seconds, [CPU, wall], by stage and kind."""
    from geartrain import workspace
    from geartrain.config import parse_config
    from geartrain.engines import process_environment
    from geartrain.stages.stage import ORDER

    path = workspace.find_profile(profile)
    record = workspace.compose(path, settings)
    workspace.prepare(folder, record, made_from=str(path))
    variables = {**os.environ, **process_environment(parse_config(record, source=profile).threads)}
    found = {}
    for name in ORDER:
        report = folder / f"{name}.json"
        command = [sys.executable, str(Path(__file__).resolve()), "--stage", name, "--report", str(report)]
        subprocess.run(command, cwd=folder, env=variables, check=True)
        found[name] = json.loads(report.read_text())
        print(row(name, found[name]), flush=True)
    return found


def row(name: str, seconds: dict[str, list[float]]) -> str:
    """Return a line of the table."""
    cells = "".join(f"{seconds[kind][0]:>12.2f}" for kind in KINDS)
    shares = [100 * sum(seconds[kind][which] for kind in KINDS) / seconds["total"][which] for which in (0, 1)]
    return f"{name:<14}{seconds['total'][0]:>10.1f}{cells}{shares[0]:>9.2f} %{shares[1]:>9.2f} %"


def main() -> None:
    """Print CPU seconds by stage and kind, and the share of all; exit with 1 above the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="demo")
    parser.add_argument("--set", action="append", default=[], help="section.key=value, as of `geartrain run`")
    parser.add_argument("--key", type=Path, help="sign with this key (`geartrain model keygen`); default: do not sign")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        run_stage(options.stage, options.report)
        return
    if options.key:
        os.environ["GEARTRAIN_SIGNING_KEY"] = str(options.key.resolve())
    print(f"{'CPU seconds':<14}{'total':>10}{''.join(f'{kind:>12}' for kind in KINDS)}{'share':>11}{'of time':>11}")
    with tempfile.TemporaryDirectory() as folder:
        found = run_all(options.profile, Path(folder), options.set)
    kinds = ("total", *KINDS)
    whole = {kind: [sum(one[kind][which] for one in found.values()) for which in (0, 1)] for kind in kinds}
    print(row("all", whole))
    share = 100 * sum(whole[kind][0] for kind in KINDS) / whole["total"][0]
    print(f"{share:.2f} % of {whole['total'][0]:.0f} CPU seconds; the bar is {BAR:g} %")
    raise SystemExit(share >= BAR)


if __name__ == "__main__":
    main()
