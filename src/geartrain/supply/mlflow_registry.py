"""A promoted model in MLflow: a run with its numbers and its data, and a version of a registered model.

The one importer of mlflow (mlflow-skinny: the client). Address and credentials are MLflow's own variables:
MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from geartrain.errors import InfrastructureError, UserError
from geartrain.supply.attestation import MODEL
from geartrain.supply.registration import DIGEST, PREFIX, Entry, Registered, short_digest

ADDRESS = "MLFLOW_TRACKING_URI"
ALIAS = "promoted"
"""Alias of the version that was promoted last: `models:/NAME@promoted`."""
WHOLE = f"{PREFIX}recorded"
"""Tag of a run that is written to the end; one without it is what a crash has left, and is gone on with."""
QUIET = ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT")
"""What its client says to others, and to the output, without being asked."""
COLLISION = re.compile(r"IntegrityError|UniqueViolation|UNIQUE constraint|duplicate key|Duplicate entry", re.IGNORECASE)
"""What SQLite, PostgreSQL and MySQL say where two insert the same row; the server hands it on, with status 400."""
_TRIES = 8
MISTAKES = frozenset(range(400, 500)) - {408, 409, 429, 499}


def enter(entry: Entry) -> Registered:
    """Enter a model, or record a candidate. Raises as `registration.register`."""
    address = _address()
    for variable in QUIET:
        os.environ.setdefault(variable, "true")
    from mlflow import MlflowClient

    with _told(address):
        client = MlflowClient(tracking_uri=address, registry_uri=address)
        run = _run(client, entry)
        if not entry.promoted:
            return Registered("mlflow", entry.name, "", new=False)
        return _version(client, entry, run)


def _run(client: Any, entry: Entry) -> Any:
    """Return the run of this model, complete; whatever of it is there is not written again."""
    number = _experiment(client, entry.name)
    found = client.search_runs([number], f"tags.`{DIGEST}` = '{entry.digest}'", max_results=1)
    tags = {**entry.properties, **{f"{PREFIX}data.{name}": digest for name, digest in entry.data.items()}}
    tags[f"{PREFIX}promoted"] = str(entry.promoted).lower()
    run = found[0] if found else client.create_run(number, tags=tags, run_name=f"{entry.name}-{entry.version}")
    if WHOLE in run.data.tags:
        return run
    _write(client, entry, run)
    return client.get_run(run.info.run_id)


def _write(client: Any, entry: Entry, run: Any) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric

    name, now = run.info.run_id, int(time.time() * 1000)
    data = [
        DatasetInput(
            Dataset(called, short_digest(digest), "geartrain", json.dumps({"sha256": digest})),
            [InputTag("mlflow.data.context", "training"), InputTag(DIGEST, digest)],
        )
        for called, digest in sorted(entry.data.items())
    ]
    _log_inputs(client, name, data)
    missing = {key: value for key, value in entry.numbers.items() if key not in run.data.metrics}
    client.log_batch(name, metrics=[Metric(key, value, now, 0) for key, value in sorted(missing.items())])
    if entry.promoted and entry.uri is None:
        client.log_artifacts(name, str(entry.folder), ALIAS)
    client.set_terminated(name)
    client.set_tag(name, WHOLE, "true")


def _log_inputs(client: Any, run: str, data: list[Any]) -> None:
    """Tell of the data sets; where another run tells of the same right now, the server stumbles over its own row."""
    from mlflow.exceptions import MlflowException

    for left in reversed(range(_TRIES)):
        try:
            client.log_inputs(run, data)
            return
        except MlflowException as error:
            if not left or not COLLISION.search(str(error.message)):
                raise


def _version(client: Any, entry: Entry, run: Any) -> Registered:
    there = client.search_model_versions(f"name = '{entry.name}' and tags.`{DIGEST}` = '{entry.digest}'")
    if there:
        return Registered("mlflow", entry.name, str(min(int(version.version) for version in there)), new=False)
    _make_name(client, entry.name)
    base = entry.uri.rstrip("/") if entry.uri else f"{run.info.artifact_uri.rstrip('/')}/{ALIAS}"
    made = client.create_model_version(
        entry.name, f"{base}/{MODEL}", run_id=run.info.run_id, tags=entry.properties, await_creation_for=0
    )
    _name_promoted(client, entry.name, made.version)
    return Registered("mlflow", entry.name, str(made.version), new=True)


def _experiment(client: Any, name: str) -> str:
    """Return the id of the experiment of a name; another promotion may be making it right now."""
    there = client.get_experiment_by_name(name)
    if there is None:
        with _unless_there():
            return str(client.create_experiment(name))
        there = client.get_experiment_by_name(name)
    if there.lifecycle_stage != "active":
        raise UserError(f"MLflow: the experiment {name} was deleted there. Restore it, or give another --name.")
    return str(there.experiment_id)


def _name_promoted(client: Any, name: str, version: Any) -> None:
    """Point the alias to a version. Of two who set one that nobody has had yet the server refuses the second."""
    with _unless_there():
        client.set_registered_model_alias(name, ALIAS, version)
        return
    client.set_registered_model_alias(name, ALIAS, version)


def _make_name(client: Any, name: str) -> None:
    with _unless_there():
        client.create_registered_model(name)


@contextmanager
def _unless_there() -> Iterator[None]:
    """Pass over that somebody was first."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS" and not COLLISION.search(str(error.message)):
            raise


def _address() -> str:
    address = os.environ.get(ADDRESS, "")
    if not address.startswith(("http://", "https://")):
        raise UserError(
            f"{ADDRESS}: name the server, such as https://mlflow.example.org (it is {address or 'not set'})."
        )
    if "@" in urlsplit(address).netloc:
        raise UserError(
            f"{ADDRESS} carries a password, which would be printed and stored with it. "
            "Use MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."
        )
    return address


@contextmanager
def _told(address: str) -> Iterator[None]:
    """Turn MLflow's errors into ours: what a person has to mend, and what may pass."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        text = f"MLflow at {address}: {' '.join(str(error.message).split()):.400}"
        if error.get_http_status_code() in MISTAKES and not COLLISION.search(str(error.message)):
            raise UserError(f"{text}. Nothing was entered twice; mend it, then `geartrain model register`.") from error
        raise InfrastructureError(f"{text}. Try again: what is entered already is not entered twice.") from error
