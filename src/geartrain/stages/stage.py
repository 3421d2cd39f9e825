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
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from geartrain import artifacts, live, withdrawals
from geartrain.config import Config
from geartrain.errors import UserError, WithdrawnError
from geartrain.home import LINEAGE, WORK, home
from geartrain.lineage import tombstones
from geartrain.lineage.events import Data
from geartrain.lineage.origin import whence
from geartrain.lineage.recording import Published, Task, mend, recorded, refused
from geartrain.lineage.tombstones import Used
from geartrain.progress import mute
from geartrain.ranks import ALONE, Ranks
from geartrain.sources import Source, content_digests, read_sources, recall_sources
from geartrain.withdrawals import Tombstone

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


KINDS = {"data": "dataset", "models": "model", "reports": "report"}
"""What lies below each folder of a workspace."""


def homes(folder: Path = Path()) -> list[Path]:
    """Return the homes whose lineage may know what a workspace uses: its own, and that of the project around it."""
    return [home(folder), withdrawals.project(folder) / ".geartrain"]


def event_log() -> Path:
    """Return the folder of lineage events."""
    return home() / LINEAGE


def live_record(work: Path) -> Path:
    """Return the file that says what happens to a piece of work while it runs, given its work folder."""
    return home() / live.FOLDER / f"{work.name}.jsonl"


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
    files: tuple[str, ...] = ()
    """Keys of the files and folders from outside that the stage reads."""
    together: bool = False
    """Whether several ranks may run it."""
    sealed: Callable[[Path, str], None] | None = None
    """Called with the sealed output and the id of this run, before publication; may add `artifacts.ATTESTATIONS`."""

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
    *,
    inputs: tuple[str, ...],
    sections: tuple[str, ...],
    files: tuple[str, ...] = (),
    together: bool = False,
    sealed: Callable[[Path, str], None] | None = None,
) -> Callable[[Callable[[Job], Metrics]], Any]:
    """Declare a stage. The stage's name, and that of its one output, is its module's.

    Args:
        inputs: artifacts that it reads, by the stages that make them.
        sections: of the configuration.
        files: keys of what it reads from outside, such as `environment.source`.
        together: whether several ranks may run it.
        sealed: see `StageSpec`.
    """

    def decorate(body: Callable[[Job], Metrics]) -> Any:
        name = body.__module__.rsplit(".", 1)[-1]

        @functools.wraps(body)
        def run(config: Config, inputs: Paths, outputs: Paths, ranks: Ranks = ALONE) -> Metrics:
            return _run(spec, body, config, inputs, outputs, ranks)

        spec = StageSpec(name, inputs, sections, run, files, together, sealed)
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
    read = {name: artifacts.verify(path) for name, path in inputs.items()}
    sources = read_sources(config, spec.files)
    digests = {name: manifest.digest for name, manifest in read.items()} | {one.name: one.digest for one in sources}
    origins = {name: artifacts.origins(manifest) for name, manifest in read.items()}
    origins |= {one.name: artifacts.known_origins(Path(one.path)) for one in sources}
    made = [tombstones.used(name, inputs[name], manifest) for name, manifest in read.items()]
    heeded = withdrawals.withdrawn()  # only then are the files of a folder from outside hashed once more
    parts = {one.name: content_digests(Path(one.path)) if heeded else () for one in sources}
    outside = [Used(one.name, one.digest, "", origins[one.name], parts[one.name]) for one in sources]
    task = _task(spec.name, parameters, digests, sources, {one.name: one.manifest for one in made})
    _heed(heeded, [*made, *outside], task, ranks)
    ancestors = {digest: name for named in origins.values() for digest, name in named.items()}
    _require_same(ranks, [parameters, digests, artifacts.code_digest()])
    target, work = outputs[spec.name], task.work
    told = _known(spec.name, parameters, digests)
    if not ranks.leads:
        return _assist(body, config, spec, Job(config, dict(inputs), {}, work, ranks), told)
    with _exclusive(work):
        finished = ranks.first(_finished(target, parameters, digests, ancestors))
        if finished is not None:
            mend(event_log(), task, _published(target))
            return finished
        with live.telling(live_record(work), **told) as ending, recorded(event_log(), task) as published:
            staged = work / "output"
            staged.mkdir(parents=True, exist_ok=True)
            _remove_half_written(staged)
            _pin_threads(config.threads)
            narrowed = Config.model_validate(parameters)
            metrics = body(Job(narrowed, dict(inputs), {spec.name: staged}, work, ranks))
            ranks.gather(None)  # nobody is at work in the folder any more
            manifest = artifacts.write_manifest(
                staged,
                stage=spec.name,
                parameters=parameters,
                inputs=digests,
                metrics=metrics,
                ancestors=ancestors,
            )
            if spec.sealed is not None:
                spec.sealed(staged, published.run)
            artifacts.publish(staged, target)
            published.digest, published.metrics = manifest.digest, metrics
            published.manifest = artifacts.manifest_sha256(staged)
            ending |= {"digest": manifest.digest, "metrics": metrics}
        shutil.rmtree(work, ignore_errors=True)
        return metrics


def _heed(heeded: Mapping[str, Tombstone], used: Sequence[Used], task: Task, ranks: Ranks) -> None:
    """Refuse to begin with what is withdrawn, and tell lineage so: who has tried to use it is asked one day."""
    try:
        tombstones.require_allowed(homes(), used, active=heeded)
    except WithdrawnError as error:
        if ranks.leads:
            refused(event_log(), task, error)
        raise


def record_current(folder: Path, name: str) -> None:
    """Complete the lineage of a stage whose output is current in a workspace, if a crash left that unsaid.

    What is a link belongs to another workspace, whose lineage tells of it.
    """
    if (folder / FOLDERS[name]).is_symlink():
        return
    manifest = artifacts.read_manifest(folder / FOLDERS[name])
    places = {one: folder / FOLDERS[one] for one in manifest.inputs if one in FOLDERS}
    there = {one: artifacts.manifest_sha256(place) for one, place in places.items() if place.is_dir()}
    task = _task(name, manifest.parameters, manifest.inputs, recall_sources(manifest.inputs), there)
    mend(folder / event_log(), task, _published(folder / FOLDERS[name]))


def _published(folder: Path) -> Published:
    manifest = artifacts.read_manifest(folder)
    return Published("", manifest.digest, manifest.metrics, artifacts.manifest_sha256(folder))


def _key(name: str, parameters: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    return artifacts.fingerprint([name, parameters, digests, artifacts.code_digest()])


def _work(name: str, parameters: Mapping[str, Any], digests: Mapping[str, str]) -> Path:
    return home() / WORK / f"{name}-{_key(name, parameters, digests)[:16]}"


def _task(
    name: str,
    parameters: Mapping[str, Any],
    digests: Mapping[str, str],
    sources: Sequence[Source],
    manifests: Mapping[str, str],
) -> Task:
    """Return a stage's work as lineage tells of it; `manifests` are the sha256 of those of the inputs, by name."""
    outside = {s.name: Data(s.name, s.digest, "source", s.path, s.licence, s.origin) for s in sources}
    inputs = [
        outside.get(read) or replace(_data(read, digest), manifest=manifests.get(read, ""))
        for read, digest in digests.items()
    ]
    key, work = _key(name, parameters, digests), _work(name, parameters, digests)
    return Task(name, key, tuple(inputs), _data(name, ""), parameters, work)


def _data(stage: str, digest: str) -> Data:
    folder = FOLDERS.get(stage, Path(stage))
    return Data(stage, digest, KINDS.get(folder.parts[0], "dataset"), folder.as_posix())


def _known(name: str, parameters: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """Return what `begin` tells those who watch: which work this is, of which run, data, image and code."""
    dataset = digests.get("tasks") or next(iter(digests.values()), None)
    told = {"stage": name, "key": _key(name, parameters, digests), "pid": os.getpid(), "parameters": parameters}
    return {**told, "dataset": dataset, **whence(os.environ)}


def _assist(
    body: Callable[[Job], Metrics], config: Config, spec: StageSpec, job: Job, told: Mapping[str, Any]
) -> Metrics:
    """Take part in a stage that another rank leads; what this one writes is thrown away."""
    finished: Metrics | None = job.ranks.first(None)
    if finished is not None:
        return finished
    mute()
    live.emit("begin", **told)  # to the exporter of this node; the file is the leader's
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


def _finished(
    target: Path, parameters: Mapping[str, Any], digests: Mapping[str, str], ancestors: Mapping[str, str]
) -> Metrics | None:
    """Return the metrics of an earlier run whose output is in place, whole and of the same making."""
    if not (target / artifacts.MANIFEST).is_file():
        return None
    try:
        manifest = artifacts.verify(target)
    except UserError:
        return None
    same = (manifest.parameters, manifest.inputs, manifest.code) == (parameters, digests, artifacts.code_digest())
    return dict(manifest.metrics) if same and ancestors.keys() <= artifacts.origins(manifest).keys() else None


@contextmanager
def _exclusive(work: Path) -> Iterator[None]:
    """Hold the stage's lock: an orphan of a killed orchestrator may still be at work on it."""
    work.parent.mkdir(parents=True, exist_ok=True)
    with work.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pin_threads(threads: int) -> None:
    """Set torch's threads where torch is loaded; a stage without tensors need not spend seconds on loading it."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
