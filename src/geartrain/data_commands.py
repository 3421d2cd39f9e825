"""The commands `geartrain data …`: versions of data sets and models, what differs between two, what is withdrawn.

They say what they do in DVC's words, and leave the rest to it; nothing heavy is imported at the top.
"""

import getpass
import io
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geartrain import logs
from geartrain.errors import UserError

if TYPE_CHECKING:
    from geartrain.differences.compare import Difference
    from geartrain.versions.state import State

app = typer.Typer(
    no_args_is_help=True, help="Versions of data sets and models: what is where, copies, differences, withdrawal."
)

Project = Annotated[Path, typer.Option("--dir", help="The project, or a workspace in it.")]
Registry = Annotated[
    str | None, typer.Option("--from", help="Another project: a folder or a git URL.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Targets = Annotated[list[str] | None, typer.Argument(help="Names or paths; default: all.", show_default=False)]
Remote = Annotated[str | None, typer.Option(help="Name of a DVC remote; default: the project's.", show_default=False)]
Jobs = Annotated[int | None, typer.Option(help="Transfers at the same time.", min=1, show_default=False)]


@app.command()
def status(
    directory: Project = Path(),
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the remote.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is where: workspace, DVC's cache, remote; in which version; and whether it may be used.

    \b
    geartrain data status
    geartrain data status --dir runs/smoke --offline
    """
    from geartrain.versions.state import read_states

    states, notes = read_states(_folder(directory), remote=not offline)
    if as_json:
        print(json.dumps([state.record() for state in states], indent=2))
    elif not states:
        print("no data set and no model here yet; `geartrain run` makes them")
    else:
        _show_states(states)
    for note in notes:
        _say(note)


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME[@REV]", help="Such as rollouts, policy@v3, data/tasks@4f0b6d1.")],
    source: Registry = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: NAME-REV here.", show_default=False)
    ] = None,
    directory: Project = Path(),
) -> None:
    """Copy one version of a data set or model to a folder of its own, and verify it against its manifest.

    REV is a tag, branch or commit of git. To keep a data set of another project
    in this one, under a version that stays, use `dvc import` (docs/data.md).

    \b
    geartrain data get rollouts@v3
    geartrain data get preferences@2026-03 --from git@example.org:team/registry.git --out data/theirs
    """
    from geartrain.versions import fetching

    project = _project(directory)
    wanted = fetching.parse_source(name, project=source or str(project))
    target = out or Path("-".join(filter(None, [Path(wanted.name).name, wanted.revision.replace("/", "_")])))
    found = fetching.get(wanted, target, folder=project)
    vouched = "its manifest matches" if found.verified else "it has no manifest; DVC's md5 matched"
    print(f"{found.folder}: {wanted}, sha256 {found.digest}; {vouched}")
    if found.withdrawn:
        _say(f"warning: {wanted} must not be used: {found.withdrawn}")


@app.command()
def resolve(
    name: Annotated[str, typer.Argument(metavar="NAME[@REV]", help="As of `geartrain data get`.")],
    source: Registry = None,
    directory: Project = Path(),
) -> None:
    """Print what a name and a revision mean for good, as JSON: commit, md5, URI in the remote, files.

    Nothing is downloaded. What is printed goes to pods as parameters: they need
    neither git nor a workspace, and a tag that moves does not move them.

    \b
    geartrain data resolve rollouts@v3
    """
    from geartrain.versions import fetching

    project = _project(directory)
    wanted = fetching.parse_source(name, project=source or str(project))
    print(json.dumps(fetching.resolve(wanted, folder=project).record(), indent=2))


@app.command()
def pull(targets: Targets = None, directory: Project = Path(), remote: Remote = None, jobs: Jobs = None) -> None:
    """Fetch data sets and models from the remote into the workspace (`dvc pull --no-run-cache`), and verify them.

    \b
    geartrain data pull
    geartrain data pull rollouts policy
    """
    _transfer("pull", targets, directory, remote, jobs)


@app.command()
def push(targets: Targets = None, directory: Project = Path(), remote: Remote = None, jobs: Jobs = None) -> None:
    """Send data sets and models to the remote (`dvc push --no-run-cache`), by content: what is there is not sent again.

    \b
    geartrain data push
    geartrain data push --remote archive
    """
    _transfer("push", targets, directory, remote, jobs)


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The older: a folder or file, or NAME@REV.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The newer.")],
    shape: Annotated[str, typer.Option("--format", help="table, json, html or svg.")] = "table",
    out: Annotated[Path | None, typer.Option(help="File to write; default: the terminal.", show_default=False)] = None,
    file: Annotated[str, typer.Option(help="Which file of rows, if there are several.")] = "",
    key: Annotated[str, typer.Option("--id", help="Columns that name a row, such as task_id,sibling.")] = "",
    label: Annotated[str, typer.Option(help="Column whose changes are label flips.")] = "",
    group: Annotated[str, typer.Option(help="Column to compare means by, such as task_id.")] = "",
    measure: Annotated[str, typer.Option(help="Numeric column whose means are compared.")] = "",
    stratum: Annotated[str, typer.Option("--count-by", help="Column to count rows by, such as family.")] = "",
    source: Registry = None,
    directory: Project = Path(),
) -> None:
    """Compare two versions of a data set by row: added, removed, changed, label flips, shifts per task and number.

    Tasks, rollouts and preferences are known; of any other Parquet or JSON-lines
    file say which columns name a row.

    \b
    geartrain data diff rollouts@v3 rollouts
    geartrain data diff runs/a/data/preferences data/preferences --format html --out diff.html
    geartrain data diff old.parquet new.parquet --id user,day
    """
    if shape not in ("table", "json", "html", "svg"):
        raise UserError(f"--format {shape}: expected table, json, html or svg")
    from geartrain.differences.compare import compare
    from geartrain.differences.kinds import choose_kind

    with _found([a, b], source, directory) as places:
        columns = {"key": key, "label": label, "group": group, "measure": measure, "stratum": stratum}
        kind = choose_kind(places[0], places[1], file=file, **columns)
        difference = compare(places[0], places[1], kind, names=(a, b))
    _write_difference(difference, shape, out)


@app.command()
def withdraw(
    target: Annotated[str, typer.Argument(help="Digest of a data set, model or raw file; or its folder or file.")],
    reason: Annotated[str, typer.Option(help="Why, for whoever is refused, and for the auditor.")],
    by: Annotated[str | None, typer.Option(help="Who says so; default: as git knows you.", show_default=False)] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Lift the withdrawal, by one more record.")] = False,
    directory: Project = Path(),
    as_json: AsJson = False,
) -> None:
    """Withdraw a data set: from now on every stage refuses it, and what was made from it. Lists the models it reached.

    Writes a tombstone to data/withdrawn, to be committed; it deletes nothing and
    edits no history. What exists already stays where it is until you remove it.

    \b
    geartrain data withdraw data/rollouts --reason "customer 4711 asked for erasure"
    geartrain data withdraw 76e0916f… --reason "licence ended" --by legal@example.org
    geartrain data withdraw 76e0916f… --undo --reason "licence renewed"
    """
    from geartrain import withdrawals
    from geartrain.home import LINEAGE, home
    from geartrain.lineage import tombstones
    from geartrain.versions.copies import find_copies
    from geartrain.versions.reach import homes_of, identify, reached_by

    if not reason.strip():
        raise UserError("--reason: say why, in a sentence; whoever is refused will read it")
    project = withdrawals.project(_folder(directory))
    digest, name = identify(target, project, home(project))
    history = withdrawals.places()[0] if withdrawals.is_mounted() else project / withdrawals.FOLDER
    action = withdrawals.LIFT if undo else withdrawals.WITHDRAW
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with tombstones.recorded(home(project) / LINEAGE, digest, name) as written:
        path = withdrawals.record(history, digest, action, name=name, reason=reason, by=by or _me(), at=now)
        written.append(path)
    all_homes = homes_of(project, home(project))
    reached = reached_by(digest, project, all_homes)
    copies = find_copies(digest, {one.digest for one in reached}, project, all_homes)
    if as_json:
        lists = {"reached": [vars(one) for one in reached], "copies": [vars(one) for one in copies]}
        print(json.dumps({"digest": digest, "name": name, "tombstone": str(path), **lists}, indent=2))
        return
    print(f"{name or 'digest'} {digest} is {'no longer ' if undo else ''}withdrawn: {path}")
    print(f"commit it: git add {path} && git commit")
    if not reached:
        print("nothing that lies here, or that lineage knows of, was made from it")
    for one in reached:
        print(f"{'model' if one.model else 'data'}  {one.name}  {one.digest}  {one.place}")
    for copy in [] if undo else copies:
        print(f"lies in  {copy.place}  ({copy.what})")


@app.command()
def gc(
    delete: Annotated[bool, typer.Option("--delete", help="Delete; without, only look.")] = False,
    cloud: Annotated[bool, typer.Option("--cloud", help="The remote too, not the cache alone.")] = False,
    directory: Project = Path(),
) -> None:
    """List, or delete, what neither the workspace nor a tag holds; what a promoted model was made from stays.

    What lineage says that a promoted model needs has to be held by a tag, else
    nothing is deleted at all. Withdrawn data may go. One clone knows its own tags
    and lineage: fetch both first (`git fetch --tags`, `geartrain lineage pull`).

    \b
    geartrain data gc
    geartrain data gc --cloud --delete
    """
    from geartrain.home import home
    from geartrain.versions import retention

    project = _project(directory)
    needs = retention.needed(project, home(project))
    places = {"cache": retention.cache_of(project), **({"remote": retention.remote_of(project)} if cloud else {})}
    found = {name: retention.untagged(project, place, needs) for name, place in places.items()}
    for name, versions in found.items():
        for one in versions:
            reason = f"  needed by {one.needed_by}" if one.needed_by else ""
            print(f"{name}  {one.name or 'not whole'}  {one.digest[:12] or '-':<12}  md5 {one.md5}{reason}")
    held = [one for versions in found.values() for one in versions if one.needed_by]
    if held:
        raise UserError(
            f"{held[0].name} {held[0].digest[:12]} and what else is marked would be lost, and a promoted model needs "
            f"it. Tag the commits that hold it (`git log --all -S{held[0].md5} -- dvc.lock`, `git tag`), then run "
            "this again. Nothing was deleted."
        )
    count = sum(map(len, found.values()))
    if not delete:
        print(f"{count} versions may go; --delete deletes them, and files that belong to nothing")
        return
    print(retention.collect(project, cloud=cloud) or f"{count} versions deleted")


def _transfer(
    verb: Literal["pull", "push"], targets: Sequence[str] | None, directory: Path, remote: str | None, jobs: int | None
) -> None:
    from geartrain.artifacts import MANIFEST, verify
    from geartrain.versions import dvc_command
    from geartrain.versions.state import read_states
    from geartrain.versions.tracked import find_path, list_tracked

    project = _project(directory)
    tracked = list_tracked(project)
    if not tracked:
        raise UserError(f"{project}: DVC tracks nothing here, so nothing was moved; `dvc repro` makes what it tracks.")
    paths = [item.path for item in tracked]
    chosen = [find_path(name, paths) for name in targets or ()]
    told = dvc_command.transfer(verb, chosen, folder=project, remote=remote, jobs=jobs)
    print(told.splitlines()[-1] if told else "nothing to do")
    if verb == "push":
        return
    for path in chosen or paths:
        if (project / path / MANIFEST).is_file():
            verify(project / path)
    for state in read_states(project, remote=False)[0]:
        if state.withdrawn and state.path in (chosen or paths):
            _say(f"warning: {state.path} must not be used: {state.withdrawn}")


@contextmanager
def _found(texts: Sequence[str], source: str | None, directory: Path) -> Iterator[list[Path]]:
    """Give a folder or file for each text; of NAME@REV a copy that is gone afterwards."""
    from geartrain.stages.stage import FOLDERS
    from geartrain.versions import fetching

    with tempfile.TemporaryDirectory() as copies:
        places = []
        for number, text in enumerate(texts):
            here = next((one for one in (Path(text), directory / FOLDERS.get(text, Path(text))) if one.exists()), None)
            if here is None:
                project = _project(directory)
                wanted = fetching.parse_source(text, project=source or str(project))
                here = fetching.get(wanted, Path(copies) / str(number), folder=project).folder
            places.append(here)
        yield places


def _write_difference(difference: "Difference", shape: str, out: Path | None) -> None:
    from rich.console import Console

    from geartrain.artifacts import write_atomically
    from geartrain.differences import picture, words

    if shape == "table" and out is None:
        Console().print(words.to_terminal(difference))
        return
    if shape == "table":
        told = io.StringIO()
        Console(file=told, width=100).print(words.to_terminal(difference))
        text = told.getvalue()
    else:
        write: dict[str, Any] = {"json": words.to_json, "html": words.to_page, "svg": picture.draw_file}
        text = write[shape](difference)
    if out is None:
        print(text)
    else:
        write_atomically(out, text.rstrip("\n") + "\n")
        print(f"{out}: {words.headline(difference)}")


def _show_states(states: Sequence["State"]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("", "sha256", "DVC's md5", "workspace", "cache", "remote"):
        table.add_column(name, no_wrap=True)
    table.add_column("version", overflow="fold")
    for one in states:
        style = "red" if one.withdrawn else ""
        places = (one.workspace, one.cache, one.remote, one.version or "none")
        table.add_row(*(Text(cell, style=style) for cell in (one.path, one.digest[:12], one.md5[:9], *places)))
    Console(width=None if sys.stdout.isatty() else 1000).print(table)  # other programs get whole lines
    for one in states:
        if one.withdrawn:
            print(f"{one.path} must not be used: {one.withdrawn}")


def _folder(directory: Path) -> Path:
    if not directory.is_dir():
        raise UserError(f"{directory}: no such folder")
    return directory.resolve()


def _project(directory: Path) -> Path:
    from geartrain.versions.tracked import project_of

    return project_of(_folder(directory))


def _me() -> str:
    """Return who is at work here, as git knows them, else as the machine does."""
    from geartrain.versions import git_command

    name, address = (git_command.ask("config", key) or "" for key in ("user.name", "user.email"))
    return f"{name} <{address}>" if name and address else name or address or getpass.getuser()


def _say(message: str) -> None:
    logs.say(message)
