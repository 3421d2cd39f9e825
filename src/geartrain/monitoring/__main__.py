"""Write rules and dashboards as files: `python -m geartrain.monitoring --out build/monitoring --runbooks URL`."""

from pathlib import Path
from typing import Annotated

import typer

from geartrain.monitoring.files import write


def main(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("build/monitoring"),
    runbooks: Annotated[str, typer.Option(help="Address of docs/runbooks as people reach it.")] = "docs/runbooks",
) -> None:
    """Write the rule file, the PrometheusRule and the dashboards, with links to your copy of the runbooks."""
    for path in write(out, runbooks=runbooks):
        print(path)


typer.run(main)
