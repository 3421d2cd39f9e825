"""The commands `geartrain lineage …` and `geartrain audit`: what made this, what came of it, is it true; for `cli`."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from geartrain import live, logs
from geartrain.errors import EXIT_DOUBT, UserError
from geartrain.home import LINEAGE, home

if TYPE_CHECKING:
    from rich.console import Console

    from geartrain.lineage.graph import Graph, Node
    from geartrain.lineage.index import Index
    from geartrain.lineage.journal import Head
    from geartrain.lineage.verification import Checked


class _Group(TyperGroup):
    """`geartrain lineage THING` is short for `geartrain lineage show THING`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer()
lineage_app = typer.Typer(
    no_args_is_help=True,
    cls=_Group,
    help="Which data made this model, and which models did this data reach: offline, years later, and checked.",
    epilog="Start with: geartrain lineage model:promoted",
)

audit_app = typer.Typer(no_args_is_help=True, help="Everything that an auditor asks about a model, on one page.")
app.add_typer(lineage_app, name="lineage")
app.add_typer(audit_app, name="audit")

Workspace = Annotated[Path, typer.Option("--dir", help="The workspace, whose .geartrain/lineage is read.")]
Thing = Annotated[
    str,
    typer.Argument(
        metavar="THING",
        help="model:NAME, model:NAME:VERSION, dataset:DIGEST, run:ID, a digest, or the folder of an artifact. "
        "Digests and ids may be cut short.",
    ),
]
FORMATS = ("tree", "json", "dot", "html")
HEADS = "Heads of the chains (JSON): FILE is compared with, then written. Keep it where nobody can change it."


@lineage_app.command()
def show(
    thing: Thing,
    up: Annotated[bool, typer.Option("--up", help="Only what it was made from.")] = False,
    down: Annotated[bool, typer.Option("--down", help="Only what was made from it.")] = False,
    form: Annotated[str, typer.Option("--format", help="tree, json, dot (Graphviz) or html (one page).")] = "tree",
    limit: Annotated[int, typer.Option(help="Lines of a tree.", min=1)] = 200,
    directory: Workspace = Path(),
) -> None:
    """Show what something was made from, and what was made from it. `show` may be left out.

    \b
    geartrain lineage model:promoted --up              which data made this model?
    geartrain lineage model:policy:3f2a --format html > policy.html
    geartrain lineage dataset:76e0916f --down          what did this data reach?
    geartrain lineage run:0193 --format json
    """
    from geartrain.reporting import lineage_page

    if form not in FORMATS:
        raise UserError(f"--format {form}: expected one of {', '.join(FORMATS)}")
    root, graphs = _ask(thing, directory, up=up or not down, down=down or not up)
    if form == "tree":
        console = _console()
        for way, graph in graphs.items():
            console.print(lineage_page.as_tree(graph, way, most=limit))
    elif form == "html":
        print(lineage_page.as_html(root, graphs))
    else:
        print(lineage_page.as_json(graphs) if form == "json" else lineage_page.as_dot(graphs))


@lineage_app.command()
def impact(
    data: Thing,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    directory: Workspace = Path(),
) -> None:
    """List the models that some data has reached, promoted ones first, each with the way to it.

    For the day on which the data has to be withdrawn: `geartrain data withdraw`
    lists the same.

    \b
    geartrain lineage impact dataset:76e0916f
    geartrain lineage impact data/tasks --json
    """
    from dataclasses import asdict

    from geartrain.reporting.lineage_page import line_of, reached_lines

    index = _open(directory)
    root = index.resolve(_seen_from(thing=data, directory=directory))
    reached = index.models_reached(root)
    for run in index.unfinished_below(root):
        logs.say(f"{run.label} has said no end: what it made of this, if anything, is not known here")
    for other in _not_pulled(directory):
        logs.say(f"{other} has a lineage of its own, which was not asked: `geartrain lineage pull {other}` brings it")
    if as_json:
        rows = [{**asdict(found.model), "way": [node.id for node in found.way]} for found in reached]
        print(json.dumps(rows, indent=2, sort_keys=True))
        return
    console = _console()
    console.print(line_of(root))
    for line in reached_lines(reached):
        console.print(line)
    promoted = sum(found.model.promoted for found in reached)
    print(f"{len(reached)} model{'s' * (len(reached) != 1)} reached, {promoted} of them promoted")


@lineage_app.command()
def verify(
    directory: Workspace = Path(),
    heads: Annotated[Path | None, typer.Option(help=HEADS)] = None,
    remote: Annotated[bool, typer.Option("--remote/--no-remote", help="Look into the DVC remote too.")] = True,
) -> None:
    """Check that the lineage is true: events, artifacts on disk and in the DVC remote.

    Every line against the one before it, every file against its head, every
    artifact against its manifest and the run that made it. Names each fault.

    Exit codes: 0 nothing is wrong; 3 something was changed, dropped, reordered,
    cut short or swapped, or nobody made it.

    \b
    geartrain lineage verify
    geartrain lineage verify --heads /mnt/elsewhere/heads.json
    """
    from geartrain.wording import printable

    _open(directory).close()  # says so where there is no lineage; then it is up to date
    checked = _check(directory, kept=_read_heads(heads), remote=remote)
    for found in checked.findings:
        print(f"{'FAULT' if found.fault else 'note '}  {printable(found.where)}: {printable(found.what)}")
    looked = ", ".join(f"{number} {what}" for what, number in checked.counts.items())
    print(f"{looked}: {len(checked.faults) or 'no'} fault{'s' * (len(checked.faults) != 1)}")
    if checked.faults:
        raise typer.Exit(EXIT_DOUBT)
    if heads is not None:
        _write_heads(heads, checked.heads)


@lineage_app.command()
def export(
    to: Annotated[str, typer.Option("--to", help="Address of a receiver; events go to ADDRESS/api/v1/lineage.")],
    directory: Workspace = Path(),
) -> None:
    """Send the events to a receiver that speaks OpenLineage (Marquez, DataHub, Feast, …); may be stopped and repeated.

    What was taken is not sent again. A key in OPENLINEAGE_API_KEY is sent as a
    bearer token.

    \b
    geartrain lineage export --to http://127.0.0.1:6580
    """
    from geartrain.lineage.export import export as send

    _open(directory).close()  # says so where there is no lineage
    sent = send(home(directory) / LINEAGE, to, key=os.environ.get("OPENLINEAGE_API_KEY"))
    print(f"{sent.now} events sent to {to}; {sent.before} had been sent before")


@lineage_app.command()
def pull(
    uri: Annotated[str, typer.Argument(help="Folder or bucket with journals, or another workspace.")],
    directory: Workspace = Path(),
) -> None:
    """Bring the events that others have written; from then on every command sees them.

    Pods copy theirs to the place that GEARTRAIN_LINEAGE names. May be repeated: a
    journal whose past has changed is refused.

    \b
    geartrain lineage pull s3://bucket/lineage
    geartrain lineage pull runs/smoke
    """
    from geartrain.lineage.mirror import pull as bring

    found = bring(home(directory) / LINEAGE, uri)
    print(f"{sum(found.values())} new events of {len(found)} writer{'s' * (len(found) != 1)}")


@audit_app.command()
def report(
    model: Thing = "model:promoted",
    out: Annotated[Path, typer.Option(help="The file to write; seen from the workspace.")] = Path("reports/audit.html"),
    key: Annotated[
        Path | None,
        typer.Option(
            envvar="GEARTRAIN_VERIFICATION_KEY",
            help="The signer's public key, to check signatures.",
            show_default=False,
        ),
    ] = None,
    directory: Workspace = Path(),
) -> None:
    """Write one self-contained page about a model: data and licences, code, parameters, evaluation, gate, signatures.

    Works offline, and on what `geartrain lineage pull` and `geartrain data pull`
    have brought from elsewhere. A fault in the lineage, or a signature that does
    not hold, is in the page, and ends with exit code 3.

    \b
    geartrain audit report
    geartrain audit report model:policy:3f2a --out policy.html
    """
    from geartrain.artifacts import write_atomically
    from geartrain.reporting import audit

    index = _open(directory)
    root = index.resolve(_seen_from(thing=model, directory=directory))
    found = audit.audit(index, root, _check(directory), directory, key)
    write_atomically(directory / out, audit.render_audit(found, directory))
    print(audit.summary(found))
    print(f"audit: {directory / out}")
    if found.checked.faults or found.signed.state == "broken":
        raise typer.Exit(EXIT_DOUBT)


def _check(directory: Path, *, kept: "Mapping[str, Head] | None" = None, remote: bool = True) -> "Checked":
    """Check everything that can be checked in a workspace, by an index that is made anew from the events."""
    from geartrain.lineage import verification
    from geartrain.lineage.index import make_anew
    from geartrain.lineage.remote import check_remote
    from geartrain.stages.stage import FOLDERS

    log = home(directory) / LINEAGE
    index = make_anew(log)
    parts = [verification.check_chain(log, kept)]
    parts.append(verification.check_artifacts(directory, FOLDERS, index, at_work=lambda: live.at_work(home(directory))))
    parts.append(verification.check_events(index, at_work=live.at_work(home(directory))))
    parts.append(verification.check_copies(directory, FOLDERS, index))
    parts.append(verification.check_tombstones(index))
    parts.append(verification.check_sources(index, directory))
    if remote:
        parts.append(check_remote(directory, FOLDERS, index))
    return verification.together(parts)


def _console() -> "Console":
    """Return where trees are printed: folded in a terminal, whole lines for other programs."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 1000)


def _ask(thing: str, directory: Path, *, up: bool, down: bool) -> "tuple[Node, dict[str, Graph]]":
    index = _open(directory)
    root = index.resolve(_seen_from(thing=thing, directory=directory))
    ways = (("up", up, index.up), ("down", down, index.down))
    return root, {way: walk(root) for way, wanted, walk in ways if wanted}


def _seen_from(*, thing: str, directory: Path) -> str:
    """Return a thing's name; a folder may be one of the workspace."""
    return str(directory / thing) if ":" not in thing and (directory / thing).is_dir() else thing


def _open(directory: Path) -> "Index":
    from geartrain.lineage.index import open_index

    return open_index(home(directory))


def _not_pulled(directory: Path) -> list[Path]:
    """Return the workspaces in `runs/` with events that the lineage here has not."""
    from geartrain.lineage import journal

    def sizes(place: Path) -> dict[str, int]:
        found = journal.writers(home(place) / LINEAGE)
        return {writer: sum(path.stat().st_size for path in paths) for writer, paths in found.items()}

    here = sizes(directory)
    below = (directory / "runs").rglob(f"{home().name}/{LINEAGE}") if not home().is_absolute() else ()
    others = sorted(path.parent.parent for path in below)
    return [one for one in others if any(size > here.get(name, -1) for name, size in sizes(one).items())]


def _read_heads(path: Path | None) -> "dict[str, Head]":
    from geartrain.lineage.journal import Head

    if path is None or not path.exists():
        return {}
    try:
        return {name: Head(**record) for name, record in json.loads(path.read_text("utf-8")).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a file that `lineage verify --heads` has written ({error}).") from error


def _write_heads(path: Path, heads: "Mapping[str, Head]") -> None:
    from dataclasses import asdict

    from geartrain.artifacts import write_json

    write_json(path, {name: asdict(head) for name, head in heads.items()})
    logs.say(f"heads: {path}")
