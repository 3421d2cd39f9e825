"""Starting a run: what is sent, how it differs from the defaults, and what a schedule sends in the same way."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from geartrain.cluster.jobs import read_jobs, require_jobs
from geartrain.cluster.package import SHORT, Package, arguments, canonical, differences
from geartrain.cluster.pinned import Pin
from geartrain.cluster.records import Run, Version
from geartrain.config import Config

EXPERIMENT = "geartrain"
SERVICE_ACCOUNT = "geartrain-pipeline"


class Server(Protocol):
    """What starting a run asks of Kubeflow; `kubeflow.Kubeflow` answers it."""

    def ensure_version(self, package: Package, *, description: str = "") -> Version:
        """Return the stored version of this content, uploaded if it is not there."""
        ...

    def ensure_experiment(self, name: str) -> str:
        """Return the id of the experiment, created if it is not there."""
        ...

    def create_run(
        self,
        version: Version,
        *,
        experiment: str,
        name: str,
        parameters: Mapping[str, Any],
        service_account: str,
        submission: str,
    ) -> Run:
        """Start a run, once per `submission`."""
        ...


def run_parameters(
    package: Package,
    config: Config,
    dataset_rev: str | None,
    cluster: Path | None = None,
    data: Mapping[str, Pin] | None = None,
) -> dict[str, Any]:
    """Return the parameters of a run: the sections of a checked configuration, and what is no part of one.

    Args:
        package: the compiled pipeline.
        config: the run's configuration.
        dataset_rev: revision of the data; None leaves it to the pipeline.
        cluster: file that describes the training jobs; None leaves them to the pipeline.
        data: what the run is pinned to, by key (`pinning.pin`); without, its steps read what their image holds.

    Raises:
        UserError: the compiled pipeline takes other parameters, the file is wrong, or a job that has to be described
            is not.
    """
    revision = {} if dataset_rev is None else {"dataset_rev": dataset_rev}
    jobs = {} if cluster is None else read_jobs(cluster)
    pins = {"data": {key: pin.model_dump() for key, pin in data.items()}} if data else {}
    require_jobs(package.launching, {**package.defaults, **jobs}, source=str(package.path))
    return arguments(package, config.model_dump(mode="json", exclude_none=True), {**revision, **jobs, **pins})


def changes(package: Package, parameters: Mapping[str, Any]) -> list[str]:
    """Return one line per value that is not the default: the pipeline's own, or else the schema's."""
    schema = Config().model_dump(mode="json", exclude_none=True)
    own = package.defaults
    defaults = {name: value for name, value in {**schema, **own}.items() if name in package.inputs}
    given = {**own, **parameters}
    return differences(given, defaults)


def run_name(source: str, package: Package, parameters: Mapping[str, Any]) -> str:
    """Return a name that says what a run is made of: equal runs have equal names."""
    made_of = canonical({"pipeline": package.digest, "parameters": dict(parameters)})
    return f"{Path(source).stem}-{hashlib.sha256(made_of.encode()).hexdigest()[:SHORT]}"


def start(
    server: Server,
    package: Package,
    parameters: Mapping[str, Any],
    *,
    name: str,
    submission: str,
    service_account: str = SERVICE_ACCOUNT,
) -> Run:
    """Upload what is not there yet, and start the run."""
    return server.create_run(
        server.ensure_version(package),
        experiment=server.ensure_experiment(EXPERIMENT),
        name=name,
        parameters=parameters,
        service_account=service_account,
        submission=submission,
    )
