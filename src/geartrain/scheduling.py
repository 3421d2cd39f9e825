"""The commands `geartrain schedule …`: bring a server's schedules to what git says; `cli` adds them."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geartrain.errors import EXIT_USER, UserError
from geartrain.operations import (
    IN_CLUSTER,
    Authority,
    Host,
    Namespace,
    Token,
    connect,
    pin_data,
    say,
)

if TYPE_CHECKING:
    from geartrain.cluster.kubeflow import Kubeflow
    from geartrain.cluster.package import Package
    from geartrain.cluster.records import Recurring
    from geartrain.cluster.schedule_file import Schedule
    from geartrain.cluster.schedules import Action, Wanted

app = typer.Typer(no_args_is_help=True, help="Periodic runs: plan and apply what schedules/ says, pause, resume, list.")

Folder = Annotated[Path, typer.Option("--schedules", help="Where the schedules' files lie.")]
Compiled = Annotated[Path | None, typer.Option("--package", help="Compiled pipeline; default: compile this checkout.")]
Name = Annotated[str, typer.Argument(help="Name of a schedule.")]


@app.command()
def plan(
    folder: Folder = Path("schedules"),
    package: Compiled = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 2 if the server is not as git says.")] = False,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Say what `apply` would do, and why; changes nothing.

    \b
    geartrain schedule plan
    geartrain schedule plan --check     in CI: has somebody changed the server?
    """
    from geartrain.cluster.schedules import make_plan

    server = connect(host, token, authority, namespace)
    wanted = read_wanted(server, folder, package, upload=False)
    actions = make_plan(server, wanted, experiment=_experiment(server, create=False))
    _show(actions)
    if check and any(action.kind not in ("keep", "wait") for action in actions):
        raise typer.Exit(EXIT_USER)


@app.command()
def apply(
    folder: Folder = Path("schedules"),
    package: Compiled = None,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Bring the server to what git says: create, switch over, delete what is idle.

    May be repeated, also after a crash: it goes on from there. A schedule with a run
    at work is switched off and deleted by a later apply.

    \b
    geartrain schedule apply
    """
    from geartrain.cluster.schedules import apply as reconcile

    server = connect(host, token, authority, namespace)
    wanted = read_wanted(server, folder, package, upload=True)
    done = reconcile(server, wanted, experiment=_experiment(server, create=True), say=print)
    if not done:
        print("nothing to do: the server is as git says")


@app.command()
def pause(
    name: Name,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Switch a schedule off on the server, now. Git wins at the next apply: to stay off, say so there.

    \b
    geartrain schedule pause nightly
    """
    server = connect(host, token, authority, namespace)
    on = [item for item in _ours(server, name) if item.enabled]
    for item in on:
        server.disable(item.id)
    print(f"{name}: " + ("paused; a run that is at work goes on" if on else "was off already"))
    say(f"`geartrain schedule apply` switches it on again unless schedules/{name}.yaml says enabled: false")


@app.command()
def resume(
    name: Name,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Switch a paused schedule on again; slots that it missed are not made up for.

    \b
    geartrain schedule resume nightly
    """
    server = connect(host, token, authority, namespace)
    items = _ours(server, name)
    if any(item.enabled for item in items):
        print(f"{name}: is on already")
        return
    newest = max(items, key=lambda item: (str(item.created), item.id))
    server.enable(newest.id)
    print(f"{name}: on ({newest.name}); next run {_next(newest.cron, 1)}")
    say("`geartrain schedule plan` says whether this is what git wants")


@app.command("list")
def list_schedules(
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """List the schedules on the server: their next runs, and how the last one ended.

    \b
    geartrain schedule list
    """
    from geartrain.cluster.display import clock, table
    from geartrain.cluster.schedules import owner_of

    server = connect(host, token, authority, namespace)
    lines = []
    for item in _all(server):
        last = next(iter(server.list_runs(recurring_run=item.id)), None)
        ended = "none yet" if last is None else f"{last.state.lower()} {clock(last.created)}"
        state, following = ("on", _next(item.cron, 2)) if item.enabled else ("off", "-")
        lines.append((owner_of(item) or "(not ours)", item.name, state, item.cron or "periodic", following, ended))
    print(table(("SCHEDULE", "ON THE SERVER", "STATE", "CRON (UTC)", "NEXT", "LAST RUN"), lines))


@app.command()
def render(
    names: Annotated[list[str] | None, typer.Argument(help="Schedules; default: all of the folder.")] = None,
    argo: Annotated[bool, typer.Option("--argo", help="As Argo CronWorkflows; the only form there is.")] = False,
    image: Annotated[str, typer.Option(envvar="GEARTRAIN_IMAGE", help="NAME@sha256:… that holds geartrain.")] = "",
    folder: Folder = Path("schedules"),
    package: Compiled = None,
    endpoint: Annotated[str, typer.Option(help="Kubeflow Pipelines as seen from the cluster.")] = IN_CLUSTER,
    namespace: Namespace = "geartrain",
) -> None:
    """Print schedules as Argo CronWorkflows, for clusters without Kubeflow's recurring runs. Asks no server.

    \b
    geartrain schedule render --argo --image registry.example.org/geartrain@sha256:… | kubectl apply -f -
    """
    from geartrain.cluster.cron_workflow import render as render_workflow
    from geartrain.cluster.submission import SERVICE_ACCOUNT

    if not argo:
        raise UserError("give --argo: Kubeflow's own recurring runs are made by `geartrain schedule apply`")
    schedules = _read(folder, names or [])
    compiled = _compiled(package)
    texts = []
    for schedule in schedules:
        parameters = _parameters(schedule, compiled)
        options = {"image": image, "endpoint": endpoint, "namespace": namespace, "service_account": SERVICE_ACCOUNT}
        texts.append(render_workflow(schedule, compiled, parameters, **options))
    sys.stdout.write("---\n".join(texts))


def read_wanted(server: "Kubeflow", folder: Path, package: Path | None, *, upload: bool) -> "list[Wanted]":
    """Return what git wants, with everything that decides what a run does; `upload` the pipeline if it is not there.

    Raises:
        UserError: a schedule, its configuration or the pipeline is wrong. Nothing has been changed then.
    """
    from geartrain.cluster.records import Version
    from geartrain.cluster.schedules import Wanted
    from geartrain.cluster.submission import SERVICE_ACCOUNT

    schedules = _read(folder, [])
    if not schedules:
        return []
    compiled = _compiled(package)
    parameters = {schedule.name: _parameters(schedule, compiled) for schedule in schedules}
    platform = server.server().version
    version = server.ensure_version(compiled) if upload else server.find_version(compiled)
    stored = version or Version("", "", compiled.version_name)
    return [
        Wanted(schedule, compiled, parameters[schedule.name], stored, SERVICE_ACCOUNT, platform)
        for schedule in schedules
    ]


def _read(folder: Path, names: Sequence[str]) -> "list[Schedule]":
    from geartrain.cluster.schedule_file import read_schedules

    schedules = read_schedules(folder)
    known = [schedule.name for schedule in schedules]
    for name in names:
        if name not in known:
            raise UserError(f"no schedule {name!r} in {folder}; there are: {', '.join(known) or 'none'}")
    return [schedule for schedule in schedules if not names or schedule.name in names]


def _compiled(package: Path | None) -> "Package":
    from geartrain.cluster.checkout import compile_package
    from geartrain.cluster.package import read_package

    return compile_package(Path("build")) if package is None else read_package(package)


def _parameters(schedule: "Schedule", compiled: "Package") -> dict[str, object]:
    from geartrain.cluster.checkout import choose_config
    from geartrain.cluster.submission import run_parameters

    config, _ = choose_config(Path(), schedule.profile, list(schedule.settings))
    pins = pin_data(config, schedule.data, schedule.data_from)
    return run_parameters(compiled, config, schedule.dataset_rev, schedule.cluster, pins)


def _experiment(server: "Kubeflow", *, create: bool) -> str:
    """Return the id of our experiment; empty if it is not there, and then there is no schedule either."""
    from geartrain.cluster.submission import EXPERIMENT

    found = server.ensure_experiment(EXPERIMENT) if create else server.find_experiment(EXPERIMENT)
    return found or ""


def _all(server: "Kubeflow") -> "list[Recurring]":
    return server.list_recurring(experiment=_experiment(server, create=False))


def _ours(server: "Kubeflow", name: str) -> "list[Recurring]":
    from geartrain.cluster.schedules import owner_of

    there = _all(server)
    found = [item for item in there if owner_of(item) == name]
    if not found:
        known = sorted({owner_of(item) for item in there if owner_of(item)})
        raise UserError(
            f"no schedule {name!r} on the server; there are: {', '.join(known) or 'none'}. `schedule apply`?"
        )
    return found


def _next(cron: str, count: int) -> str:
    from geartrain.cluster.cron import parse_cron

    try:
        firings = parse_cron(cron).firings(datetime.now(UTC))
    except UserError:  # somebody else's, in a form that we do not write
        return "?"
    return ", ".join(f"{moment:%a %d %b %H:%M}Z" for moment in islice(firings, count))


def _show(actions: "Sequence[Action]") -> None:
    from geartrain.cluster.display import table

    if not actions:
        print("no schedules, in git or on the server")
        return
    print(
        table(("ACTION", "SCHEDULE", "ON THE SERVER", "WHY"), [(a.kind, a.schedule, a.name, a.reason) for a in actions])
    )
