"""The one way in which a stage runs, whoever calls it.

`@stage` turns a body `body(job) -> metrics` into `run(config, inputs, outputs)
-> metrics`: inputs are verified against their manifests, the body writes into
a staging folder, outputs are sealed and published by rename, START and
COMPLETE or FAIL are recorded. A body that keeps checkpoints in `job.work`
resumes after SIGKILL; a run whose outputs are there and match is not repeated.
"""

import fcntl
import functools
import importlib
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from geartrain import artifacts
from geartrain.config import Config
from geartrain.errors import GeartrainError, UserError
from geartrain.lineage import events
from geartrain.preemption import PreemptedError
from geartrain.progress import mute
from geartrain.ranks import ALONE, Ranks

Metrics = dict[str, Any]
Paths = Mapping[str, Path]

ORDER = (
    "tasks",
    "warm_start",
    "collect",
    "preferences",
    "reward_model",
    "critic",
    "policy",
    "evaluation",
    "promotion",
)


FOLDERS = {
    "tasks": Path("data/tasks"),
    "warm_start": Path("models/warm_start"),
    "collect": Path("data/rollouts"),
    "preferences": Path("data/preferences"),
    "reward_model": Path("models/reward_model"),
    "critic": Path("models/critic"),
    "policy": Path("models/policy"),
    "evaluation": Path("reports/evaluation"),
    "promotion": Path("models/promoted"),
}
"""Where each stage's artifact lies in a workspace; `dvc.yaml` names the same folders."""


EVENT_LOG = Path("lineage/events.ndjson")
"""Of lineage, below `home()`."""


def home() -> Path:
    """Return the folder of work in progress and lineage: `$GEARTRAIN_HOME`, or `.geartrain` here."""
    return Path(os.environ.get("GEARTRAIN_HOME", ".geartrain"))


def event_log() -> Path:
    """Return the file of lineage events."""
    return home() / EVENT_LOG


@dataclass(frozen=True)
class Job:
    """What the body of a stage works with."""

    config: Config
    """Only the sections that the stage declared carry the caller's values."""
    inputs: Paths
    """Verified input folders, by name."""
    outputs: Paths
    """Staging folders to write to, by name; they exist and may hold what a killed run left."""
    work: Path
    """Folder for checkpoints, shared by all ranks; survives a kill, is removed after publication."""
    ranks: Ranks = ALONE
    """The processes that run this stage together; the one that leads writes the outputs."""


@dataclass(frozen=True)
class StageSpec:
    """What a stage reads and writes; DVC, KFP and the tests are held to it."""

    name: str
    inputs: tuple[str, ...]
    """Names of the artifacts read; each is the output of the stage of that name."""
    sections: tuple[str, ...]
    """Sections and shared keys of the configuration that the stage reads."""
    run: Callable[..., Metrics]
    """(config, inputs, outputs, ranks) -> metrics."""
    together: bool = False
    """Whether several ranks may run it."""

    def parameters(self, config: Config) -> dict[str, Any]:
        """Return the part of the configuration that the stage depends on, JSON-ready."""
        whole = config.model_dump(mode="json")
        return {name: whole[name] for name in ("seed", "threads", *self.sections)}


def load_stage(name: str) -> StageSpec:
    """Import a stage's module and return its spec. Raises UserError for an unknown name."""
    if name not in ORDER:
        raise UserError(f"no stage {name!r}; the stages are {', '.join(ORDER)}")
    spec = importlib.import_module(f"geartrain.stages.{name}").run.spec
    assert isinstance(spec, StageSpec)
    return spec


def stage(
    *, inputs: tuple[str, ...], sections: tuple[str, ...], together: bool = False
) -> Callable[[Callable[[Job], Metrics]], Any]:
    """Declare a stage. The stage's name, and that of its one output, is its module's; `together`: for several ranks."""

    def decorate(body: Callable[[Job], Metrics]) -> Any:
        name = body.__module__.rsplit(".", 1)[-1]

        @functools.wraps(body)
        def run(config: Config, inputs: Paths, outputs: Paths, ranks: Ranks = ALONE) -> Metrics:
            return _run(spec, body, config, inputs, outputs, ranks)

        spec = StageSpec(name, inputs, sections, run, together)
        run.spec = spec  # type: ignore[attr-defined]
        return run

    return decorate


def _run(
    spec: StageSpec, body: Callable[[Job], Metrics], config: Config, inputs: Paths, outputs: Paths, ranks: Ranks
) -> Metrics:
    if ranks.size > 1 and not spec.together:
        raise UserError(f"stage {spec.name} runs in one process, not in {ranks.size}: start it without torchrun.")
    if set(inputs) != set(spec.inputs) or set(outputs) != {spec.name}:
        expected = f"reads {sorted(spec.inputs)} and writes [{spec.name!r}]"
        raise UserError(f"stage {spec.name}: {expected}; got {sorted(inputs)} and {sorted(outputs)}")
    parameters = spec.parameters(config)
    digests = {name: artifacts.verify(path).digest for name, path in inputs.items()}
    _require_same(ranks, [parameters, digests, artifacts.code_digest()])
    key = artifacts.fingerprint([spec.name, parameters, digests, artifacts.code_digest()])
    target = outputs[spec.name]
    work = home() / "work" / f"{spec.name}-{key[:16]}"
    if not ranks.leads:
        return _assist(body, config, spec, Job(config, dict(inputs), {}, work, ranks))
    with _exclusive(work):
        finished = ranks.first(_finished(target, parameters, digests))
        if finished is not None:
            return finished
        with _recorded(spec.name, digests, parameters) as published:
            staged = work / "output"
            staged.mkdir(parents=True, exist_ok=True)
            _remove_half_written(staged)
            _pin_threads(config.threads)
            narrowed = Config.model_validate(parameters)
            metrics = body(Job(narrowed, dict(inputs), {spec.name: staged}, work, ranks))
            ranks.gather(None)  # nobody is at work in the folder any more
            manifest = artifacts.write_manifest(
                staged, stage=spec.name, parameters=parameters, inputs=digests, metrics=metrics
            )
            artifacts.publish(staged, target)
            published[spec.name] = manifest.digest
        shutil.rmtree(work, ignore_errors=True)
        return metrics


def _assist(body: Callable[[Job], Metrics], config: Config, spec: StageSpec, job: Job) -> Metrics:
    """Take part in a stage that another rank leads; what this one writes is thrown away."""
    finished: Metrics | None = job.ranks.first(None)
    if finished is not None:
        return finished
    mute()
    own = job.work / f"rank-{job.ranks.rank}" / "output"
    own.mkdir(parents=True, exist_ok=True)
    _pin_threads(config.threads)
    metrics = body(replace(job, config=Config.model_validate(spec.parameters(config)), outputs={spec.name: own}))
    job.ranks.gather(None)
    return metrics


def _require_same(ranks: Ranks, mine: Any) -> None:
    """Raise UserError unless all ranks were given the same configuration, inputs and code."""
    found = ranks.gather(artifacts.fingerprint(mine))
    others = [rank for rank, other in enumerate(found) if other != found[0]]
    if others:
        raise UserError(
            f"rank {others[0]} was given another configuration, other inputs or other code than rank 0. "
            "All nodes need the same image and the same artifacts."
        )


def _remove_half_written(staged: Path) -> None:
    """Remove what a killed run was writing: by our convention a file under its temporary name starts with a dot."""
    for path in staged.rglob(".*"):
        if path.is_file():
            path.unlink()


def _finished(target: Path, parameters: Mapping[str, Any], digests: Mapping[str, str]) -> Metrics | None:
    """Return the metrics of an earlier run whose output is in place, whole and of the same making."""
    if not (target / artifacts.MANIFEST).is_file():
        return None
    try:
        manifest = artifacts.verify(target)
    except UserError:
        return None
    same = (manifest.parameters, manifest.inputs, manifest.code) == (parameters, digests, artifacts.code_digest())
    return dict(manifest.metrics) if same else None


@contextmanager
def _exclusive(work: Path) -> Iterator[None]:
    """Hold the stage's lock: an orphan of a killed orchestrator may still be at work on it."""
    work.parent.mkdir(parents=True, exist_ok=True)
    with work.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _recorded(name: str, digests: Mapping[str, str], parameters: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Emit START, then COMPLETE with what was published or FAIL with the reason."""
    run_id, log, started = events.new_run_id(), event_log(), time.monotonic()
    events.emit(log, "START", run_id=run_id, job=name, inputs=digests, outputs={}, facets={"parameters": parameters})
    published: dict[str, str] = {}
    try:
        yield published
    except BaseException as error:
        ended = isinstance(error, PreemptedError) or not isinstance(error, Exception)
        kind: events.EventType = "ABORT" if ended else "FAIL"
        message = str(error) if isinstance(error, GeartrainError) else repr(error)
        reason = {"type": type(error).__name__, "message": message}
        events.emit(log, kind, run_id=run_id, job=name, inputs=digests, outputs={}, facets={"error": reason})
        raise
    facets = {"resources": _resources(started)}
    events.emit(log, "COMPLETE", run_id=run_id, job=name, inputs=digests, outputs=published, facets=facets)


def _resources(started: float) -> dict[str, float]:
    """Wall seconds; CPU seconds and peak memory of this process and of the workers it waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    return {
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(cpu, 3),
        "peak_memory_bytes": max(own.ru_maxrss, children.ru_maxrss) * 1024,
    }


def _pin_threads(threads: int) -> None:
    """Set torch's threads where torch is loaded; a stage without tensors need not spend seconds on loading it."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
