"""The commands that work on a cluster: submit, runs, status, logs, cancel, retry, doctor; `cli` adds them.

Nothing heavy is imported at the top: kfp and kubernetes are loaded by the command that needs them.
"""

import json
import os
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geartrain.errors import EXIT_INFRASTRUCTURE, UserError
from geartrain.logs import say as say_line

if TYPE_CHECKING:
    from geartrain.cluster.api import Kubernetes
    from geartrain.cluster.kubeflow import Kubeflow
    from geartrain.cluster.pinned import Pin
    from geartrain.config import Config

app = typer.Typer()
PANEL = "On a cluster"

Host = Annotated[
    str | None,
    typer.Option(envvar="KF_PIPELINES_ENDPOINT", help="Address of the Kubeflow Pipelines API.", show_default=False),
]
Token = Annotated[
    Path | None,
    typer.Option(
        "--token-file", envvar="KF_PIPELINES_SA_TOKEN_PATH", help="File of a bearer token.", show_default=False
    ),
]
Authority = Annotated[Path | None, typer.Option("--ca-file", help="Certificates to trust.", show_default=False)]
Namespace = Annotated[str, typer.Option("--namespace", "-n", envvar="GEARTRAIN_NAMESPACE", help="Where the runs are.")]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="For the cluster itself; default: as kubectl finds it.", show_default=False),
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, as `geartrain runs` lists it.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
INTERRUPTED = 130
IN_CLUSTER = "http://ml-pipeline.kubeflow.svc.cluster.local:8888"
TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")


def connect(host: str | None, token: Path | None, authority: Path | None, namespace: str) -> "Kubeflow":
    """Return the server that the options name; inside a cluster they may all be left out.

    Raises:
        UserError: no address, or a file that is not there.
    """
    from geartrain.cluster.kubeflow import Kubeflow

    if host is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        host = IN_CLUSTER
    if host is None:
        raise UserError(
            "no address of Kubeflow Pipelines. Give --host or set KF_PIPELINES_ENDPOINT; from your own machine:"
            " kubectl -n kubeflow port-forward svc/ml-pipeline 8888, then --host http://127.0.0.1:8888"
        )
    if token is None and TOKEN.is_file():
        token = TOKEN
    for path in (token, authority):
        if path is not None and not path.is_file():
            raise UserError(f"{path}: no such file")
    url = host if "://" in host else f"https://{host}"
    return Kubeflow(url, namespace=namespace, token_file=token, ca_file=authority, sleep=time.sleep)


def pin_data(config: "Config", wanted: Sequence[str], project: str | None) -> dict[str, "Pin"]:
    """Return what a run is pinned to. Raises UserError, InfrastructureError: see `pinning.pin`."""
    if not wanted:
        if project is not None:
            raise UserError(f"--data-from {project}: says where --data is from, and there is none")
        return {}
    from geartrain.cluster.pinning import pin

    pins = pin(config, wanted, project=project, for_pods=True)
    for key, found in pins.items():
        say(f"{key}: {found.told}, sha256 {found.sha256}")
    return pins


def say(message: str) -> None:
    """Tell a person, beside the output."""
    say_line(message)


@app.command("compile", rich_help_panel=PANEL)
def compile_(out: Annotated[Path, typer.Option(help="Folder to write training.yaml to.")] = Path("build")) -> None:
    """Compile the Kubeflow pipeline, and print its content hash: the name of its version on a server.

    \b
    geartrain compile
    GEARTRAIN_IMAGE=registry.example.org/geartrain@sha256:… geartrain compile --out build
    """
    from geartrain.cluster.checkout import compile_package

    package = compile_package(out)
    print(f"{package.path}  {package.version_name}")


@app.command(rich_help_panel=PANEL)
def submit(
    params: Annotated[Path, typer.Option(help="The run's configuration.")] = Path("params.yaml"),
    profile: Annotated[str | None, typer.Option(help="demo, smoke, … instead of --params.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="section.key=value; may be repeated.")] = None,
    dataset_rev: Annotated[
        str | None, typer.Option(help="Git revision of the data, if the pipeline takes one.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=NAME@REV: pin a file of the settings to a version; or @FILE with pins. May be repeated."
        ),
    ] = None,
    data_from: Annotated[
        str | None, typer.Option("--data-from", help="Project of --data: folder or git URL; default: this one.")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(envvar="GEARTRAIN_CLUSTER", help="Settings of the training jobs, a file.")
    ] = None,
    package: Annotated[Path | None, typer.Option(help="Compiled pipeline; default: compile this checkout.")] = None,
    name: Annotated[str | None, typer.Option(help="The run's name; default: says what it is made of.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing; print what differs from defaults.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until it has ended; the exit code is its outcome.")
    ] = False,
    auto_retry: Annotated[int, typer.Option(help="With --wait: retry up to N times what may pass.", min=0)] = 0,
    ui: Annotated[str | None, typer.Option(envvar="KF_PIPELINES_UI_ENDPOINT", help="Address for the link.")] = None,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Start a run on Kubeflow; print its id and a link.

    The pipeline is uploaded once per content. With --wait the exit code is the
    outcome: 0 done; 2 failed for something to mend, or cancelled; 75 failed for
    the infrastructure; 1 otherwise. Ending the wait leaves the run alone.

    \b
    geartrain submit --dry-run
    geartrain submit --profile smoke --set policy.iterations=2
    geartrain submit --dataset-rev v3 --wait --auto-retry 1
    geartrain submit --data environment.source=raw/chinook.json@v3
    geartrain submit --cluster eight-nodes.yaml
    """
    from geartrain.cluster.checkout import choose_config, compile_package
    from geartrain.cluster.package import read_package
    from geartrain.cluster.submission import changes, run_name, run_parameters, start

    config, source = choose_config(params, profile, settings or [])
    compiled = compile_package(Path("build")) if package is None else read_package(package)
    pins = pin_data(config, data or [], data_from)
    parameters = run_parameters(compiled, config, dataset_rev, cluster, pins)
    name = name or run_name(source, compiled, parameters)
    if dry_run:
        print("\n".join([f"pipeline: {compiled.version_name}", f"name: {name}", *changes(compiled, parameters)]))
        return
    server = connect(host, token, authority, namespace)
    run = start(server, compiled, parameters, name=name, submission=f"submission {uuid.uuid4()}")
    print(run.id)
    say(f"{(ui or server.host).rstrip('/')}/#/runs/details/{run.id}")
    if wait:
        try:
            code = _wait(server, run.id, auto_retry)
        except KeyboardInterrupt:
            say(f"no longer waiting; the run goes on: geartrain status {run.id}, geartrain cancel {run.id}")
            code = INTERRUPTED
        raise typer.Exit(code)


def _wait(server: "Kubeflow", run_id: str, retries: int) -> int:
    from geartrain.cluster import runs

    while True:
        ended = runs.wait(server, run_id, sleep=time.sleep, say=say)
        reason = runs.first_failure(ended, runs.log_reader(server, run_id))
        code = runs.outcome(ended, reason)
        say(
            f"run {run_id}: {ended.state.lower()}"
            + (f": {reason.task}: {reason.message} ({reason.hint})" if reason else "")
        )
        if code != EXIT_INFRASTRUCTURE or retries == 0:
            return code
        retries -= 1
        say("retried: it may have been bad luck")
        runs.retry(server, run_id, force=False)


@app.command("runs", rich_help_panel=PANEL)
def list_runs(
    state: Annotated[list[str] | None, typer.Option(help="running, failed, …; may be repeated.")] = None,
    name: Annotated[str | None, typer.Option(help="Part of the name.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Only runs of this schedule.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 20,
    as_json: AsJson = False,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """List the runs, newest first.

    \b
    geartrain runs
    geartrain runs --state running --state pending
    geartrain runs --schedule nightly --limit 5 --json
    """
    from geartrain.cluster.display import run_record, runs_table
    from geartrain.cluster.schedules import owner_of
    from geartrain.cluster.submission import EXPERIMENT

    server = connect(host, token, authority, namespace)
    experiment = server.find_experiment(EXPERIMENT)
    schedules: dict[str, str] = {}
    found = []
    if experiment is not None:
        schedules = {one.id: owner_of(one) or one.name for one in server.list_recurring(experiment=experiment)}
        states = {text.upper() for text in state or ()}
        wanted = (
            run
            for run in server.list_runs(experiment=experiment)
            if (not states or run.state in states)
            and (name is None or name in run.name)
            and (schedule is None or schedules.get(run.recurring_run) == schedule)
        )
        found = list(islice(wanted, limit))
    print(_json([run_record(run) for run in found]) if as_json else runs_table(found, schedules, datetime.now(UTC)))


@app.command(rich_help_panel=PANEL)
def status(
    run: RunId,
    as_json: AsJson = False,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Show the tasks of a run: states, times, retries, and why the first one failed.

    \b
    geartrain status 3f0c…
    geartrain status 3f0c… --json
    """
    from geartrain.cluster.display import run_record, run_tree
    from geartrain.cluster.runs import first_failure, log_reader

    server = connect(host, token, authority, namespace)
    found = server.run(run)
    reason = first_failure(found, log_reader(server, run))
    print(_json(run_record(found, reason)) if as_json else run_tree(found, reason, datetime.now(UTC)))


@app.command(rich_help_panel=PANEL)
def logs(
    run: RunId,
    task: Annotated[str | None, typer.Option(help="policy, warm-start, …; default: what failed, else all.")] = None,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Print the logs of a run's tasks, attempt by attempt.

    \b
    geartrain logs 3f0c…
    geartrain logs 3f0c… --task policy
    """
    from geartrain.cluster.runs import logs as read_logs

    for title, text in read_logs(connect(host, token, authority, namespace), run, task):
        print(f"== {title}\n{text.rstrip()}")


@app.command(rich_help_panel=PANEL)
def cancel(
    run: RunId,
    lineage: Annotated[
        str | None, typer.Option(envvar="GEARTRAIN_LINEAGE", help="Where pods copy their lineage, to end it as well.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """End a run and delete its training jobs, from outside; may be repeated.

    What its stages left open in lineage gets ABORT, where --lineage says where
    that is; else `geartrain reap` writes it.

    \b
    geartrain cancel 3f0c…
    """
    from geartrain.cluster import remains, runs
    from geartrain.lineage.mirror import VARIABLE

    server = connect(host, token, authority, namespace)
    try:
        jobs = open_cluster(namespace, kubeconfig)
    except UserError as error:
        say(f"no access to the cluster: {error}")
        jobs = None
    print("\n".join(runs.cancel(server, jobs, run)))
    if lineage is None:
        print(f"lineage: not looked for ({VARIABLE} names no place); `geartrain reap` ends it later")
        return
    os.environ[VARIABLE] = lineage
    ended = remains.end_cancelled(lineage, run)
    print(f"lineage: ABORT of {', '.join(ended) or 'nothing, for no stage had left its end open'}")


@app.command(rich_help_panel=PANEL)
def retry(
    run: RunId,
    force: Annotated[bool, typer.Option("--force", help="Also if it would most likely fail again.")] = False,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Run the failed tasks of a run again, if they failed for a reason that may pass; what succeeded is kept.

    \b
    geartrain retry 3f0c…
    geartrain retry 3f0c… --force
    """
    from geartrain.cluster import runs

    reason = runs.retry(connect(host, token, authority, namespace), run, force=force)
    print(f"run {run}: retried" + (f" (had failed: {reason.task}: {reason.message})" if reason else ""))


@app.command(rich_help_panel=PANEL)
def doctor(
    claims: Annotated[
        list[str] | None, typer.Option("--pvc", help="Volume claim to look at; default: what the runtime mounts.")
    ] = None,
    secrets: Annotated[list[str] | None, typer.Option("--secret", help="Secret that should be there.")] = None,
    as_json: AsJson = False,
    kubeconfig: Kubeconfig = None,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Check an installation: versions, kinds, permissions, quota, storage, queue, runtime. Changes nothing.

    Exit codes: 0 nothing fails; 2 something is to mend; 75 nothing answered.
    Secrets are looked for by name; their values are not fetched.

    \b
    geartrain doctor
    geartrain doctor --secret geartrain-s3 --json
    """
    from dataclasses import asdict

    from geartrain.cluster import doctor as checks
    from geartrain.cluster.display import findings_text
    from geartrain.cluster.kubeflow import SDK_VERSION
    from geartrain.cluster.reading import ApiReader

    expected = checks.Expected(namespace, tuple(claims or ()), tuple(secrets or ()))
    findings = list(
        checks.examine(
            lambda: connect(host, token, authority, namespace).server(),
            SDK_VERSION,
            lambda: ApiReader(open_cluster(namespace, kubeconfig).client),
            expected,
        )
    )
    print(_json([asdict(finding) for finding in findings]) if as_json else findings_text(findings))
    code = checks.exit_code(findings)
    if code:
        raise typer.Exit(code)


def open_cluster(namespace: str, kubeconfig: Path | None) -> "Kubernetes":
    """Return the cluster's TrainJobs. Raises UserError: no usable configuration."""
    from geartrain.cluster.api import connect as connect_cluster

    return connect_cluster(namespace, kubeconfig=None if kubeconfig is None else str(kubeconfig))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, default=str)
