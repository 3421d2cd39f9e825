"""The command `geartrain exporter`: metrics of a workspace for Prometheus, while stages come and go; `cli` adds it."""

import os
import threading
from pathlib import Path
from typing import Annotated

import typer

from geartrain import logs
from geartrain.errors import UserError

app = typer.Typer()


@app.command()
def exporter(
    directory: Annotated[Path, typer.Option("--dir", help="The workspace; its stages need not have begun.")] = Path(),
    port: Annotated[int, typer.Option(help="Where to answer; 0: on a free port.", min=0, max=65535)] = 9464,
    host: Annotated[str, typer.Option(help="On which address; 0.0.0.0 is all.")] = "127.0.0.1",
    every: Annotated[float, typer.Option(help="Seconds between two looks at the files.", min=0.05)] = 1.0,
    textfile: Annotated[
        Path | None, typer.Option(help="Write them to this file instead, once: for node_exporter's collector.")
    ] = None,
) -> None:
    """Tell Prometheus how the stages of a workspace are: /metrics, until Ctrl-C or SIGTERM.

    Follows what running stages write to .geartrain/live, and keeps the results
    of those that have ended. docs/monitoring.md lists the metrics. In a pod
    each stage answers by itself (GEARTRAIN_METRICS_PORT).

    \b
    geartrain exporter                    beside `make demo`; localhost:9464/metrics
    geartrain exporter --dir runs/smoke --port 9500
    geartrain exporter --textfile /var/lib/node_exporter/geartrain.prom
    """
    from geartrain.home import home
    from geartrain.preemption import asked, listen
    from geartrain.telemetry.endpoint import Endpoint, write_text
    from geartrain.telemetry.follower import Follower
    from geartrain.telemetry.readings import Readings

    if not directory.is_dir():
        raise UserError(f"{directory}: no such folder. `geartrain run --dir {directory}` makes a workspace.")
    target = None if textfile is None else textfile.absolute()
    os.chdir(directory)
    readings = Readings()
    follower = Follower(home(), readings)
    follower.look()
    if target is not None:
        write_text(readings, target)
        return
    listen()
    try:
        endpoint = Endpoint(readings, host=host, port=port)
    except OSError as error:
        raise UserError(f"port {port} on {host}: {error.strerror}. Give another one with --port.") from error
    logs.say(f"http://{host}:{endpoint.port}/metrics")
    pause = threading.Event()
    try:
        while not asked():
            pause.wait(every)
            follower.look()
    except KeyboardInterrupt:
        pass
    finally:
        endpoint.close()
