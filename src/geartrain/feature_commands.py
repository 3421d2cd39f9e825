"""The commands `geartrain features …`: what is known of tasks, prompts, policies and sources, and as of when.

Feast is loaded by the command that needs it; it takes a second or two.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geartrain.errors import UserError
from geartrain.home import WORK, home

if TYPE_CHECKING:
    from geartrain.artifacts import Manifest
    from geartrain.features.store import Store
    from geartrain.lineage.events import Data

app = typer.Typer(no_args_is_help=True, help="Features of tasks, prompts, policies and sources, as of any time.")

Workspace = Annotated[Path, typer.Option("--dir", help="The workspace whose results are looked at.")]
Settings = Annotated[
    Path | None,
    typer.Option(
        "--store",
        envvar="GEARTRAIN_FEATURE_STORE",
        help="A feature_store.yaml, such as data/feature_repo/cluster.yaml; default: on this machine.",
        show_default=False,
    ),
]


@app.command()
def apply(directory: Workspace = Path(), settings: Settings = None) -> None:
    """Write the definitions of data/feature_repo to the registry, and gather the tables of this workspace.

    One at a time: a second one waits. What the registry holds beside them stays.

    \b
    geartrain features apply
    geartrain features apply --store data/feature_repo/cluster.yaml
    """
    with _open(directory, settings) as store:
        print("\n".join(store.apply()))


@app.command()
def keep(
    workspaces: Annotated[
        list[Path] | None, typer.Argument(help="Finished runs; default: this one.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write; what it holds already stays.")] = Path("data/history"),
) -> None:
    """Keep what runs have learned of tasks, for the next one: put their feature tables together in a folder.

    Give each run its own preferences.known_from: the next knows what was known
    before its own. A folder that holds what was made from withdrawn data is
    refused; write another without that run.

    \b
    geartrain features keep
    geartrain run --set preferences.history=data/history --set preferences.known_from=2026-12-01T02:00:00Z
    """
    counts = _keep(workspaces or [Path()], out)
    print("\n".join(f"{name:<20}{count:>8} rows" for name, count in counts.items() if count))
    print(f"{out}: what the next run may know, by --set preferences.history={out}")


@app.command()
def show(
    service: Annotated[str | None, typer.Argument(help="Explain this feature service; default: list all.")] = None,
    directory: Workspace = Path(),
    settings: Settings = None,
) -> None:
    """Say what is there: tables with their newest values, and who is given what; or explain one service.

    \b
    geartrain features show
    geartrain features show sampler_v1
    """
    with _open(directory, settings) as store:
        print(_list(store) if service is None else _explain(store, service))


@app.command()
def get(
    service: Annotated[str, typer.Argument(help="A feature service, as `show` lists them.")],
    keys: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="What `show SERVICE` says it is asked by.")],
    as_of: Annotated[
        str | None, typer.Option(help="Answer as of this time, such as 2000-01-01T03:00:00Z; default: now.")
    ] = None,
    online: Annotated[bool, typer.Option("--online", help="Ask the online store, see `materialize`.")] = False,
    directory: Workspace = Path(),
    settings: Settings = None,
) -> None:
    """Print the features of one key as JSON: what was known of it by then. Null is unknown.

    \b
    geartrain features get sampler_v1 task_id=… family=… siblings=6
    geartrain features get sampler_v1 task_id=… family=… siblings=6 --as-of 2000-01-01T03:00:00Z
    geartrain features get sampler_v1 task_id=… family=… siblings=6 --online
    """
    if online and as_of:
        raise UserError("--online knows the newest values alone; leave out --as-of, or --online")
    with _open(directory, settings) as store:
        key = _key(keys, numbers=(*store.needs(service).given, "policy_version"))
        found = store.look_up(service, [key])[0] if online else _as_of(store, service, key, _time(as_of, "--as-of"))
    print(json.dumps(found, indent=2))


@app.command()
def materialize(
    until: Annotated[str | None, typer.Option(help="Values that are newest at this time; default: now.")] = None,
    directory: Workspace = Path(),
    settings: Settings = None,
) -> None:
    """Copy the newest values to the online store, for look-ups in milliseconds.

    \b
    geartrain features materialize
    geartrain features get sampler_v1 task_id=… family=… siblings=6 --online
    """
    with _open(directory, settings) as store:
        views = store.materialize(_time(until, "--until"))
    if not views:
        raise UserError("nothing to copy: the registry has no views. `geartrain features apply` first.")
    print("\n".join(views))


def _open(directory: Path, settings: Path | None) -> "Store":
    """Return the store over the tables that the workspace's stages have written; it is the working directory then."""
    settings = None if settings is None else settings.absolute()
    if not directory.is_dir():
        raise UserError(f"--dir {directory}: no such folder")
    os.chdir(directory)
    from geartrain.features.store import open_store
    from geartrain.features.tables import FOLDER, gather
    from geartrain.stages.stage import FOLDERS

    sources = [FOLDERS[stage] / FOLDER for stage in ("preferences", "policy")]
    if not any(source.is_dir() for source in sources):
        raise UserError(f"{FOLDERS['preferences']}: no features yet. `geartrain run --until preferences` makes them.")
    gather(sources, _home() / "tables")
    return open_store(_home(), settings)


def _keep(workspaces: Sequence[Path], out: Path) -> dict[str, int]:
    """Put the tables of finished runs together with what `out` holds, as an artifact that knows its origins."""
    from geartrain import artifacts, withdrawals
    from geartrain.features.earlier import KEPT, keep
    from geartrain.features.tables import FOLDER
    from geartrain.lineage.events import Data
    from geartrain.lineage.recording import Task, recorded
    from geartrain.stages.stage import FOLDERS, event_log
    from geartrain.workspace import exclusive

    with exclusive(KEPT):
        made = [workspace / FOLDERS[stage] for workspace in workspaces for stage in ("preferences", "policy")]
        sealed = {folder: artifacts.verify(folder) for folder in made}
        inputs = {_called(one): one.digest for one in sealed.values()}
        ancestors = {digest: name for one in sealed.values() for digest, name in artifacts.origins(one).items()}
        sources = [folder / FOLDER for folder in made]
        if out.exists():
            before = artifacts.verify(out)
            if before.stage != KEPT:
                raise UserError(f"{out}: holds {before.stage}, no tables that were kept. Give another --out.")
            if inputs.keys() - before.inputs.keys():  # else what comes out is what was there, not made from itself
                sealed[out] = before
            inputs, ancestors = {**before.inputs, **inputs}, {**before.ancestors, **ancestors}
            sources.insert(0, out)
        withdrawals.require_allowed(inputs, {"what is kept": ancestors})
        key = artifacts.fingerprint([KEPT, inputs, artifacts.code_digest()])
        work = home() / WORK / f"{KEPT}-{key[:16]}"
        output = Data(KEPT, "", "dataset", out.name if out.is_absolute() else out.as_posix())
        task = Task(KEPT, key, tuple(_read(workspaces, sealed)), output, {}, work)
        with recorded(event_log(), task) as published:
            staged = work / "output"
            shutil.rmtree(staged, ignore_errors=True)
            counts = keep(sources, staged)
            manifest = artifacts.write_manifest(
                staged, stage=KEPT, parameters={}, inputs=inputs, metrics=counts, ancestors=ancestors
            )
            artifacts.publish(staged, out)
            published.digest, published.metrics = manifest.digest, counts
            published.manifest = artifacts.manifest_sha256(out)
        shutil.rmtree(work)
    return counts


def _read(workspaces: Sequence[Path], sealed: Mapping[Path, "Manifest"]) -> "list[Data]":
    """Return artifacts as lineage names what was read; that of other workspaces is brought, for it tells of them.

    What nobody here has seen made is from outside.
    """
    from geartrain.artifacts import manifest_sha256
    from geartrain.lineage import mirror
    from geartrain.lineage.events import Data
    from geartrain.lineage.index import open_all
    from geartrain.stages.stage import FOLDERS, KINDS, event_log

    for workspace in workspaces:
        if workspace.resolve() != Path().resolve():
            mirror.pull(event_log(), str(workspace), missing_ok=True)
    known = {digest for index in open_all([home()]) for digest in index.made()}
    found = []
    for folder, one in sealed.items():
        path = FOLDERS.get(one.stage, folder)
        seen = {"kind": KINDS.get(path.parts[0], "dataset"), "path": path.as_posix()} if one.digest in known else {}
        found.append(Data(_called(one), one.digest, **(seen or {"kind": "source"}), manifest=manifest_sha256(folder)))
    return found


def _called(manifest: "Manifest") -> str:
    return f"{manifest.stage}-{manifest.digest[:8]}"


def _list(store: "Store") -> str:
    """Return the tables with their freshness, and the services."""
    from geartrain.features.tables import freshness

    lines = [f"{'table':<20}{'rows':>8}{'keys':>8}  {'newest value of':<25}  known since"]
    for name, facts in freshness(_home() / "tables").items():
        lines.append(f"{name:<20}{facts.rows:>8}{facts.keys:>8}  {_shown(facts.newest):<25}  {_shown(facts.known)}")
    services = [f"{service.name:<20}{service.description}" for service in store.services()]
    head = "service" if services else "no service yet: geartrain features apply"
    return "\n".join([*lines, "", head, *services])


def _explain(store: "Store", service: str) -> str:
    """Return what a service is asked by, and what it gives."""
    needs = store.needs(service)
    asked = f"{service} is asked by {', '.join((*needs.keys, *needs.given))}, and gives:"
    return "\n".join([asked, *(f"  {name}" for name in needs.features)])


def _as_of(store: "Store", service: str, key: dict[str, Any], time: datetime) -> dict[str, Any]:
    """Return the features of one key as of a time."""
    import pyarrow as pa

    from geartrain.features.tables import EVENT

    frame = pa.table({**{name: [value] for name, value in key.items()}, EVENT: pa.array([time])})
    (answer,) = store.as_of(service, frame).to_pylist()
    return {name: answer[name] for name in store.needs(service).features}


def _home() -> Path:
    return home() / "features"


def _key(pairs: Sequence[str], *, numbers: Sequence[str]) -> dict[str, Any]:
    key: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UserError(f"{pair}: expected KEY=VALUE, such as family=ranking")
        if name in numbers and not value.lstrip("-").isdigit():
            raise UserError(f"{pair}: {name} is a whole number")
        key[name] = int(value) if name in numbers else value
    return key


def _time(text: str | None, option: str) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"{option} {text}: not a time; give one such as 2000-01-01T03:00:00Z") from error
    if time.tzinfo is None:
        raise UserError(f"{option} {text}: has no time zone; add Z for UTC, or an offset such as +01:00")
    return time


def _shown(time: datetime | None) -> str:
    return "-" if time is None else time.isoformat()
