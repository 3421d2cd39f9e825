"""The command `geartrain node`, which the pods of a TrainJob run; `cli` adds it."""

import os
from typing import Annotated

import typer

from geartrain import logs

app = typer.Typer()


@app.command()
def node(
    request: Annotated[str, typer.Option(metavar="FILE_OR_JSON", help="What to run: JSON, or where it lies.")],
) -> None:
    """Run one node's part of a training job; what the pods of a TrainJob do.

    Fetches the inputs, starts torchrun for the stage (PET_NNODES, PET_NODE_RANK
    and so on, as Kubeflow Trainer sets them), and publishes the artifact from
    the node of rank 0. Work in progress lies in GEARTRAIN_HOME, inputs in
    GEARTRAIN_CACHE. SIGTERM ends it at the next checkpoint.

    Exit codes: 0 done; 2 something for you to mend; 75 anything else: the same
    job goes on from its last checkpoint.

    \b
    geartrain node --request request.json
    geartrain node --request s3://bucket/runs/policy/request.json
    """
    from geartrain.cluster.node import leave_message, read_request, run_node
    from geartrain.cluster.patience import until_terminated
    from geartrain.cluster.storage import Storage

    try:
        with until_terminated() as clock:
            storage = Storage(clock)
            run_node(read_request(request, storage), storage, clock, logs.say, os.environ)
    except BaseException as error:
        leave_message(error, os.environ)
        raise
