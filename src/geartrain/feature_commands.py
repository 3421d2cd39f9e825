"""The commands `geartrain features …`: what is known of tasks, prompts, policies and sources, and as of when.

Feast is loaded by the command that needs it; it takes a second or two.
"""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geartrain.errors import UserError

if TYPE_CHECKING:
    from geartrain.features.store import Store

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
    for name in _open(directory, settings).apply():
        print(name)


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
    store = _open(directory, settings)
    if service is None:
        from geartrain.features.tables import freshness

        print(f"{'table':<20}{'rows':>8}{'keys':>8}  newest value of            known since")
        for name, facts in freshness(_home() / "tables").items():
            print(f"{name:<20}{facts.rows:>8}{facts.keys:>8}  {_shown(facts.newest):<25}  {_shown(facts.known)}")
        found = store.services()
        print("\n" + ("service" if found else "no service yet: geartrain features apply"))
        print("".join(f"{each.name:<20}{each.description}\n" for each in found), end="")
        return
    needs = store.needs(service)
    print(f"{service} is asked by {', '.join((*needs.keys, *needs.given))}, and gives:")
    print("\n".join(f"  {name}" for name in needs.features))


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
    store = _open(directory, settings)
    needs = store.needs(service)
    key = _key(keys, numbers=(*needs.given, "policy_version"))
    if online:
        (found,) = store.look_up(service, [key])
    else:
        import pyarrow as pa

        from geartrain.features.tables import EVENT

        row = {name: [value] for name, value in key.items()}
        frame = pa.table({**row, EVENT: pa.array([_time(as_of, "--as-of")])})
        (answer,) = store.as_of(service, frame).to_pylist()
        found = {name: answer[name] for name in needs.features}
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
    views = _open(directory, settings).materialize(_time(until, "--until"))
    if not views:
        raise UserError("nothing to copy: the registry has no views. `geartrain features apply` first.")
    print("\n".join(views))


def _open(directory: Path, settings: Path | None) -> "Store":
    """Return the store over the tables that the workspace's stages have written; it is the working directory then."""
    settings = None if settings is None else settings.absolute()
    if not directory.is_dir():
        raise UserError(f"--dir {directory}: no such folder")
    os.chdir(directory)
    from geartrain.features.collected import TABLES
    from geartrain.features.store import open_store
    from geartrain.features.tables import gather
    from geartrain.stages.stage import FOLDERS

    sources = [FOLDERS[stage] / TABLES for stage in ("preferences", "policy")]
    if not any(source.is_dir() for source in sources):
        raise UserError(f"{FOLDERS['preferences']}: no features yet. `geartrain run --until preferences` makes them.")
    gather(sources, _home() / "tables")
    return open_store(_home(), settings)


def _home() -> Path:
    from geartrain.stages.stage import home

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
