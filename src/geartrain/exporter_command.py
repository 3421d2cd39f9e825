"""The command `geartrain exporter`: metrics of a workspace for Prometheus, while stages come and go; `cli` adds it."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geartrain import logs
from geartrain.errors import UserError
from geartrain.operations import Authority, Host, Kubeconfig, Namespace, Token, connect, open_cluster

if TYPE_CHECKING:
    from geartrain.telemetry.readings import Readings

app = typer.Typer()
CLUSTER_EVERY_SECONDS = 30.0
"""Least time between two looks at a cluster: its answers cost others something."""
POD = "KUBERNETES_SERVICE_HOST"
PATIENCE_SECONDS = 1.0
"""How soon a wish to end is heard."""


@app.command()
def exporter(
    directory: Annotated[Path, typer.Option("--dir", help="The workspace; its stages need not have begun.")] = Path(),
    port: Annotated[int, typer.Option(help="Where to answer; 0: on a free port.", min=0, max=65535)] = 9464,
    host: Annotated[str, typer.Option(help="On which address; 0.0.0.0 is all.")] = "127.0.0.1",
    every: Annotated[float, typer.Option(help="Seconds between two looks at the files.", min=0.05)] = 1.0,
    textfile: Annotated[
        Path | None, typer.Option(help="Write them to this file instead, once: for node_exporter's collector.")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Tell of Kubeflow's runs and of the queue instead of a workspace.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    endpoint: Host = None,
    token: Token = None,
    authority: Authority = None,
    namespace: Namespace = "geartrain",
) -> None:
    """Tell Prometheus how the stages of a workspace are: /metrics, until Ctrl-C or SIGTERM.

    Follows what running stages write to .geartrain/live, and keeps the results
    of those that have ended. docs/monitoring.md lists the metrics. In a pod
    each stage answers by itself (GEARTRAIN_METRICS_PORT); of steps whose pods
    are gone, and of jobs that queue, one with --cluster tells.

    \b
    geartrain exporter                    beside `make demo`; localhost:9464/metrics
    geartrain exporter --dir runs/smoke --port 9500
    geartrain exporter --textfile /var/lib/node_exporter/geartrain.prom
    geartrain exporter --cluster --host 0.0.0.0
    """
    from geartrain.preemption import asked, listen
    from geartrain.telemetry.endpoint import Endpoint, write_text
    from geartrain.telemetry.readings import Readings

    if not directory.is_dir():
        raise UserError(f"{directory}: no such folder. `geartrain run --dir {directory}` makes a workspace.")
    target = None if textfile is None else textfile.absolute()
    readings = Readings()
    if cluster:
        every = max(every, CLUSTER_EVERY_SECONDS)
        look = _cluster(readings, kubeconfig, endpoint, token, authority, namespace)
    else:
        look = _workspace(readings, directory)
    look()
    if target is not None:
        write_text(readings, target)
        return
    listen()
    try:
        server = Endpoint(readings, host=host, port=port)
    except OSError as error:
        raise UserError(f"port {port} on {host}: {error.strerror}. Give another one with --port.") from error
    logs.say(f"http://{host}:{server.port}/metrics")
    pause = threading.Event()
    waited = 0.0
    try:
        while not asked():
            pause.wait(min(every, PATIENCE_SECONDS))
            waited += min(every, PATIENCE_SECONDS)
            if waited >= every:
                look()
                waited = 0.0
    except KeyboardInterrupt:
        pass
    finally:
        server.close()


def _workspace(readings: "Readings", directory: Path) -> Callable[[], None]:
    from geartrain.home import home
    from geartrain.telemetry.follower import Follower

    os.chdir(directory)
    return Follower(home(), readings).look


def _cluster(
    readings: "Readings", kubeconfig: Path | None, host: str | None, token: Path | None, ca: Path | None, namespace: str
) -> Callable[[], None]:
    from geartrain.cluster.outcomes import Outcomes

    if host is None and POD not in os.environ:
        raise UserError(
            "--cluster: no address of Kubeflow Pipelines. Give --endpoint or set KF_PIPELINES_ENDPOINT; from your own"
            " machine: kubectl -n kubeflow port-forward svc/ml-pipeline 8888, then --endpoint http://127.0.0.1:8888"
        )
    server = connect(host, token, ca, namespace)
    server.server()  # an address that leads elsewhere would answer that there are no runs
    return Outcomes(server, open_cluster(namespace, kubeconfig), readings, say=logs.say).look
