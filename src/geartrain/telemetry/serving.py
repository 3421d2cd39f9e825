"""The endpoint of a stage's own process, for as long as the stage runs.

A port that is taken, or a scrape that goes wrong, is no reason to stop training.

    GEARTRAIN_METRICS_PORT     where to answer; unset: nowhere, 0: on a free port
    GEARTRAIN_METRICS_HOST     on which address; in a pod on all, else on 127.0.0.1
    GEARTRAIN_METRICS_LINGER   most seconds that a stage which has ended waits for the scrape that sees its last numbers
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from geartrain import live
from geartrain.errors import UserError
from geartrain.progress import note
from geartrain.ranks import Ranks

if TYPE_CHECKING:  # where nobody scrapes, nothing of it is loaded
    from geartrain.telemetry.endpoint import Endpoint
    from geartrain.telemetry.readings import Readings

PORT, HOST, LINGER = "GEARTRAIN_METRICS_PORT", "GEARTRAIN_METRICS_HOST", "GEARTRAIN_METRICS_LINGER"
POD = "KUBERNETES_SERVICE_HOST"


@contextmanager
def exporting(stage: str, ranks: Ranks, environment: Mapping[str, str] = os.environ) -> Iterator["Endpoint | None"]:
    """Answer scrapes about a stage while the block runs, if the environment says where; one process a node does.

    Raises:
        UserError: a variable is no number.
    """
    port = _number(environment, PORT)
    if port is None or ranks.local_rank != 0:
        yield None
        return
    from geartrain.telemetry.readings import Readings

    readings = Readings(leader=ranks.leads, node=os.uname().nodename)
    end = live.subscribe(partial(readings.tell, stage))
    endpoint = _opened(readings, environment.get(HOST) or ("" if POD in environment else "127.0.0.1"), int(port))
    try:
        yield endpoint
    except BaseException as error:
        patient = isinstance(error, UserError)  # who was asked to end, or is to be started anew, has no time
        _close(endpoint, (_number(environment, LINGER) or 0.0) if patient else 0.0)
        raise
    else:
        _close(endpoint, _number(environment, LINGER) or 0.0)
    finally:
        end()


def _opened(readings: "Readings", host: str, port: int) -> "Endpoint | None":
    from geartrain.telemetry.endpoint import Endpoint

    try:
        endpoint = Endpoint(readings, host=host, port=port)
    except OSError as error:
        note(f"metrics: port {port}: {error.strerror or error}; nobody can scrape this stage, which goes on")
        return None
    if port == 0:
        note(f"metrics: http://{host or '127.0.0.1'}:{endpoint.port}/metrics")
    return endpoint


def _close(endpoint: "Endpoint | None", linger: float) -> None:
    if endpoint is not None:
        endpoint.close(linger=linger)


def _number(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
        if not 0 <= value <= 65535 or (name == PORT and value != int(value)):
            raise ValueError
    except ValueError:
        raise UserError(f"{name}={text}: a number from 0 to 65535 is expected, or nothing.") from None
    return value
