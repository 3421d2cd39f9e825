"""The command `geartrain reap`, which cleans up after runs; `cli` adds it."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from geartrain.errors import EXIT_INFRASTRUCTURE, UserError
from geartrain.lineage.mirror import VARIABLE
from geartrain.operations import PANEL, Authority, Host, Kubeconfig, Namespace, Token, connect, open_cluster

app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def reap(
    keep_hours: Annotated[float, typer.Option(help="Keep finished jobs of unknown runs so long.", min=0)] = 24.0,
    work: Annotated[
        Path | None, typer.Option(envvar="GEARTRAIN_WORK", help="Shared volume of training jobs, to clean as well.")
    ] = None,
    keep_days: Annotated[
        float, typer.Option(envvar="GEARTRAIN_KEEP_DAYS", help="Keep what ended runs left on it so long.", min=0)
    ] = 7.0,
    lineage: Annotated[
        str | None, typer.Option(envvar="GEARTRAIN_LINEAGE", help="Where pods copy their lineage, to end it as well.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    kubeconfig: Kubeconfig = None,
    host: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Delete training jobs that no run waits for any more, and their checkpoints; what the CronJob in k8s/ calls.

    Nothing of an active run is touched. Of what a run has left on the shared
    volume its lineage events stay; a stage that ended without a word gets its
    ABORT, there and where pods copy their lineage to.

    \b
    geartrain reap --dry-run
    geartrain reap --work /work --keep-days 3
    """
    from geartrain.cluster import remains
    from geartrain.cluster.interface import ForbiddenError, NotFoundError
    from geartrain.cluster.reaper import RunState
    from geartrain.cluster.reaper import reap as reap_jobs

    if work is not None and not work.is_dir():
        raise UserError(f"--work {work}: no such folder; it is where the volume of the training jobs is mounted")
    server = connect(host, token, authority, namespace)
    server.server()  # an address that leads elsewhere would answer 404 to every run, and all jobs would be reaped

    def lookup(run_id: str) -> RunState:
        try:
            return RunState.ACTIVE if server.run(run_id).active else RunState.OVER
        except NotFoundError:
            return RunState.GONE
        except ForbiddenError:
            return RunState.UNKNOWN

    cluster, wall = open_cluster(namespace, kubeconfig), time.time()
    report = reap_jobs(cluster, lookup, keep_hours=keep_hours, wall=wall, dry_run=dry_run)
    verdicts = list(report.verdicts)
    if work is not None:
        verdicts += remains.clean(work, cluster, lookup, keep_days=keep_days, wall=wall, dry_run=dry_run)
    if lineage is not None:
        os.environ[VARIABLE] = lineage
        verdicts += remains.end_lost(lineage, cluster, lookup, dry_run=dry_run)
    for verdict in verdicts:
        print(f"{verdict.outcome or ('would delete' if verdict.delete else 'kept')}  {verdict.name}: {verdict.reason}")
    if any(verdict.outcome.startswith("failed") for verdict in verdicts):
        raise typer.Exit(EXIT_INFRASTRUCTURE)
