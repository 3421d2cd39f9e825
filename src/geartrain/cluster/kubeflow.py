"""Kubeflow Pipelines, through its own client: calls with time-outs, answers as records, errors that name the mend.

The only module that imports kfp. It uses the generated services that `kfp.Client` carries, because the client's
own methods take no time-out, print, and repeat a lost request three times. Answers are read as JSON: the generated
decoders turn the HTML page of a log-in into an empty object, and drop the server's version.
"""

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import kfp
import kfp_server_api
import urllib3
from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

from geartrain.cluster import decoding
from geartrain.cluster.interface import ConflictError, ForbiddenError, InvalidError, NotFoundError
from geartrain.cluster.package import Package, same_content
from geartrain.cluster.records import Recurring, Run, Server, UnavailableError, Version
from geartrain.errors import UserError

SDK_VERSION: str = kfp.__version__
BUSY = frozenset({429, 500, 502, 503, 504})
ATTEMPTS = 5
CONNECT_SECONDS = 10.0
LONGEST_PAUSE = 30.0
PAGE = 100


class _Client(kfp.Client):  # type: ignore[misc]
    """kfp's client without its own repetitions: they would pause unseen, and repeat nothing that matters to us."""

    def _load_config(self, *args: Any, **kwargs: Any) -> Any:
        config = super()._load_config(*args, **kwargs)
        config.retries = False
        return config


class Kubeflow:
    """One API server, as one person (or one service account) sees it."""

    def __init__(
        self,
        host: str,
        *,
        namespace: str = "",
        token_file: Path | None = None,
        ca_file: Path | None = None,
        timeout: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            host: address of the API, such as http://127.0.0.1:8888 behind `kubectl port-forward`.
            namespace: where our runs are; it is named to a server that has several users, and to no other.
            token_file: file of a bearer token, read anew for each call, for the kubelet renews it.
            ca_file: certificates to trust instead of the public ones.
            timeout: seconds that an answer may take.
            sleep: waits between repetitions; tests hand in their own.
        """
        self.host, self.namespace = host.rstrip("/"), namespace
        self._sleep = sleep
        self._several: bool | None = None
        self._timeout = (CONNECT_SECONDS, timeout)
        credentials = None if token_file is None else ServiceAccountTokenVolumeCredentials(str(token_file))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # "works with v2 only", at every start
            self._api = _Client(
                host=self.host,
                namespace="-",  # any but 'kubeflow' keeps the constructor from asking the server, with its own pauses
                credentials=credentials,
                ssl_ca_cert=None if ca_file is None else str(ca_file),
            )

    def server(self) -> Server:
        """Return the server's version and whether it has several users. Raises InvalidError: it is something else."""
        answer = self._ask(self._api.healthzs.healthz_service_get_healthz)
        if "multi_user" not in answer:
            raise InvalidError(f"{self.host}: answers, but not as Kubeflow Pipelines 2 does. Is the address right?")
        return Server(str(answer.get("tag_name") or "unknown").removeprefix("v"), bool(answer.get("multi_user")))

    # pipelines and their versions

    def find_pipeline(self, name: str) -> str | None:
        """Return the id of the pipeline of that name, or None."""
        call = self._api.pipelines.pipeline_service_list_pipelines
        found = list(self._pages(call, "pipelines", filter=_equals("display_name", name), **self._scope()))
        same = [item["pipeline_id"] for item in found if name in (item.get("display_name"), item.get("name"))]
        return same[0] if same else None

    def find_version(self, package: Package) -> Version | None:
        """Return the stored version of this very content, or None.

        Raises:
            UserError: a version of that name holds something else.
        """
        pipeline = self.find_pipeline(package.name)
        if pipeline is None:
            return None
        call = self._api.pipelines.pipeline_service_list_pipeline_versions
        wanted = _equals("display_name", package.version_name)
        for item in self._pages(call, "pipeline_versions", pipeline, filter=wanted):
            if package.version_name in (item.get("display_name"), item.get("name")):
                version = self.version(pipeline, item["pipeline_version_id"])
                if not same_content(version.spec, package):
                    raise UserError(
                        f"pipeline version {version.name} ({version.id}) does not hold what its name says: somebody"
                        " uploaded other content under it. Delete that version in Kubeflow, then try again."
                    )
                return version
        return None

    def ensure_version(self, package: Package, *, description: str = "") -> Version:
        """Return the stored version of this content; upload it (and the pipeline) if it is not there."""
        found = self.find_version(package)
        if found is not None:
            return found
        pipeline = self.find_pipeline(package.name)
        uploads = self._api.pipeline_uploads
        if pipeline is None:
            body = kfp_server_api.V2beta1Pipeline(display_name=package.name, name=package.name, **self._scope())
            create = self._api.pipelines.pipeline_service_create_pipeline
            self._create(lambda: self._ask(create, body, repeat=False))
            pipeline = self.find_pipeline(package.name)
            if pipeline is None:
                raise self._unlisted(f"pipeline {package.name}")
        named = {"name": package.version_name, "pipelineid": pipeline, "description": description}
        self._create(lambda: self._ask(uploads.upload_pipeline_version, str(package.path), repeat=False, **named))
        found = self.find_version(package)
        if found is None:
            raise self._unlisted(f"pipeline version {package.version_name}")
        return found

    def version(self, pipeline_id: str, version_id: str) -> Version:
        """Return one version with its content. Raises NotFoundError if it was deleted."""
        call = self._api.pipelines.pipeline_service_get_pipeline_version
        return decoding.version(self._ask(call, pipeline_id, version_id))

    # runs

    def ensure_experiment(self, name: str) -> str:
        """Return the id of the experiment of that name; create it if it is not there."""
        found = self.find_experiment(name)
        if found is None:
            body = kfp_server_api.V2beta1Experiment(display_name=name, **self._scope())
            create = self._api.experiments.experiment_service_create_experiment
            self._create(lambda: self._ask(create, body, repeat=False))
            found = self.find_experiment(name)
        if found is None:
            raise self._unlisted(f"experiment {name}")
        return found

    def find_experiment(self, name: str) -> str | None:
        """Return the id of the experiment of that name, or None."""
        call = self._api.experiments.experiment_service_list_experiments
        for item in self._pages(call, "experiments", filter=_equals("display_name", name), **self._scope()):
            if item.get("display_name") == name:
                return str(item["experiment_id"])
        return None

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
        """Start a run, once: after a lost answer the run of this `submission` is looked for before it is sent again.

        Args:
            submission: a name that no other run has; it is the run's description.
        """
        body = kfp_server_api.V2beta1Run(
            experiment_id=experiment,
            display_name=name,
            description=submission,
            pipeline_version_reference=_reference(version),
            runtime_config=kfp_server_api.V2beta1RuntimeConfig(parameters=dict(parameters)),
            service_account=service_account,
        )
        for attempt in range(ATTEMPTS):
            try:
                return decoding.run(self._ask(self._api.runs.run_service_create_run, body, repeat=False))
            except UnavailableError as error:
                if attempt == ATTEMPTS - 1:
                    raise
                self._sleep(0.5 * 2**attempt)
                if error.maybe_done:
                    for run in self.list_runs(experiment=experiment, description=submission):
                        return run
        raise AssertionError("the last attempt returns or raises")

    def run(self, run_id: str) -> Run:
        """Return a run with its tasks. Raises NotFoundError."""
        return decoding.run(self._ask(self._api.runs.run_service_get_run, run_id))

    def list_runs(
        self, *, experiment: str | None = None, recurring_run: str | None = None, description: str | None = None
    ) -> Iterator[Run]:
        """Yield the runs, newest first, without their tasks; page by page as they are taken."""
        scope = self._scope() if experiment is None else {"experiment_id": experiment}
        wanted = {"recurring_run_id": recurring_run, "description": description}
        given = {key: value for key, value in wanted.items() if value is not None}
        call, options = self._api.runs.run_service_list_runs, {"sort_by": "created_at desc", **scope}
        filters = {"filter": _equals(*next(iter(given.items())))} if given else {}
        items = self._pages(call, "runs", **options, **filters)
        try:
            first = list(islice(items, 1))
        except InvalidError:
            if not filters:
                raise
            first, items = [], self._pages(call, "runs", **options)  # a server that cannot filter by that key
        for item in chain(first, items):
            if all(item.get(key) == value for key, value in given.items()):
                yield decoding.run(item)

    def terminate(self, run_id: str) -> None:
        """End a run; one that has ended already is left as it is."""
        try:
            self._ask(self._api.runs.run_service_terminate_run, run_id)
        except (InvalidError, ConflictError):
            if self.run(run_id).active:
                raise

    def retry(self, run_id: str) -> None:
        """Run the failed tasks of a run again; what succeeded is kept."""
        self._ask(self._api.runs.run_service_retry_run, run_id, repeat=False)

    def node_log(self, run_id: str, node: str) -> str:
        """Return the log of one node (the pod's, or the archived one).

        Args:
            node: the pod's name.

        Raises:
            NotFoundError: there is none; the server says HTTP 500 to that, so a fault of its own looks the same.
        """
        path = f"/apis/v1alpha1/runs/{quote(run_id, safe='')}/nodes/{quote(node, safe='')}/log"
        # no service is generated for it: the API server serves logs beside its typed interface
        client = self._api.runs.run_service_get_run.__self__.api_client
        try:
            text = self._send(lambda **more: client.call_api(path, "GET", auth_settings=["Bearer"], **more), once=True)
        except UnavailableError as error:
            if not error.maybe_done:  # it could not be reached at all
                raise
            raise NotFoundError(f"run {run_id}: no log of {node}: {error}") from error
        return text.decode("utf-8", "replace")

    # schedules

    def list_recurring(self, *, experiment: str) -> list[Recurring]:
        """Return every recurring run of an experiment, oldest first; none of one that does not exist ("")."""
        if not experiment:
            return []
        call = self._api.recurring_runs.recurring_run_service_list_recurring_runs
        found = self._pages(call, "recurringRuns", experiment_id=experiment, sort_by="created_at asc")
        return [decoding.recurring(item) for item in found]

    def create_recurring(self, wanted: Recurring, *, experiment: str) -> Recurring:
        """Create a recurring run as described; `id` and `created` are the server's. Not repeated: see `schedules`."""
        modes = kfp_server_api.RecurringRunMode
        body = kfp_server_api.V2beta1RecurringRun(
            display_name=wanted.name,
            description=wanted.description,
            experiment_id=experiment,
            mode=modes.ENABLE if wanted.enabled else modes.DISABLE,
            trigger=kfp_server_api.V2beta1Trigger(cron_schedule=kfp_server_api.V2beta1CronSchedule(cron=wanted.cron)),
            max_concurrency=str(wanted.max_concurrency),
            no_catchup=wanted.no_catchup,
            pipeline_version_reference=_reference(Version(wanted.pipeline_id, wanted.version_id, "")),
            runtime_config=kfp_server_api.V2beta1RuntimeConfig(parameters=dict(wanted.parameters)),
            service_account=wanted.service_account or None,
        )
        create = self._api.recurring_runs.recurring_run_service_create_recurring_run
        return decoding.recurring(self._ask(create, body, repeat=False))

    def enable(self, recurring_id: str) -> None:
        """Let a recurring run start runs."""
        self._ask(self._api.recurring_runs.recurring_run_service_enable_recurring_run, recurring_id)

    def disable(self, recurring_id: str) -> None:
        """Keep a recurring run from starting runs; those at work go on."""
        self._ask(self._api.recurring_runs.recurring_run_service_disable_recurring_run, recurring_id)

    def delete(self, recurring_id: str) -> None:
        """Delete a recurring run; one that is gone is fine.

        Its workflows are left to themselves (ORPHAN): by default Kubernetes collects
        those that are still at work (kubeflow/pipelines#7421).
        """
        call = self._api.recurring_runs.recurring_run_service_delete_recurring_run
        try:
            self._ask(call, recurring_id, propagation_policy="ORPHAN")
        except NotFoundError:
            return

    # how a call is made

    def _scope(self) -> dict[str, str]:
        if self._several is None:
            self._several = self.server().multi_user
        return {"namespace": self.namespace} if self._several and self.namespace else {}

    def _create(self, create: Callable[[], Any]) -> None:
        """Create what may be there already; a lost answer is fine, for the caller looks it up afterwards."""
        try:
            create()
        except ConflictError:
            return
        except UnavailableError as error:
            if not error.maybe_done:
                raise

    def _unlisted(self, what: str) -> UnavailableError:
        return UnavailableError(f"{self.host}: {what} was created, but is not listed. Try again.", maybe_done=True)

    def _pages(self, call: Callable[..., Any], key: str, *arguments: str, **options: Any) -> Iterator[dict[str, Any]]:
        token, seen = "", set()
        while True:
            page = self._ask(call, *arguments, page_token=token, page_size=PAGE, **options)
            yield from page.get(key) or ()
            token = page.get("next_page_token") or ""
            if not token:
                return
            if token in seen:
                raise UnavailableError(f"{self.host}: the pages of {key} go in a circle. Try again.", maybe_done=False)
            seen.add(token)

    def _ask(self, call: Callable[..., Any], *arguments: Any, repeat: bool = True, **options: Any) -> dict[str, Any]:
        """Make one call of a generated service and return its JSON."""
        text = self._send(lambda **more: call(*arguments, **options, **more), repeat=repeat)
        try:
            answer = json.loads(text or b"{}")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ForbiddenError(f"{self.host}: answered with a page, not with data: {decoding.LOG_IN}")
        return answer

    def _send(self, call: Callable[..., Any], *, repeat: bool = True, once: bool = False) -> bytes:
        """Send a request and return the body; repeat it while the server is busy, where repeating does no harm."""
        for attempt in range(ATTEMPTS):
            try:
                response = call(_preload_content=False, _request_timeout=self._timeout)
                return bytes(response.data)
            except Exception as error:
                failure, pause = self._explain(error)
                unsent = isinstance(failure, UnavailableError) and not failure.maybe_done
                last = once or attempt == ATTEMPTS - 1
                if last or not isinstance(failure, UnavailableError) or not (repeat or unsent):
                    raise failure from error
            self._sleep(min(LONGEST_PAUSE, 0.5 * 2**attempt if pause is None else pause))
        raise AssertionError("the last attempt returns or raises")

    def _explain(self, error: Exception) -> tuple[Exception, float | None]:
        """Return the error for people, and the pause that the server asks for, in seconds."""
        if isinstance(error, AttributeError) and isinstance(error.__context__, kfp_server_api.ApiException):
            error = error.__context__  # the generated client stumbles over an error without a body: trouble with TLS
        if isinstance(error, kfp_server_api.ApiException):
            if error.status in BUSY:
                headers = error.headers or {}
                asked = str(headers.get("Retry-After", ""))
                message = f"{self.host}: HTTP {error.status}: {decoding.message(error.body)}. Try again later."
                return UnavailableError(message, maybe_done=error.status != 429), float(
                    asked
                ) if asked.isdigit() else None
            return decoding.refusal(self.host, error.status, error.body or str(error.reason)), None
        if isinstance(error, FileNotFoundError | PermissionError):  # of the token, which is read for each call
            return UserError(f"{error}. Is it the file of a token that you may read?"), None
        if isinstance(error, urllib3.exceptions.HTTPError | OSError):
            refused = isinstance(error, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError)
            return UnavailableError(decoding.unreachable(self.host, error), maybe_done=not refused), None
        return error, None


def _reference(version: Version) -> Any:
    return kfp_server_api.V2beta1PipelineVersionReference(
        pipeline_id=version.pipeline_id, pipeline_version_id=version.id
    )


def _equals(key: str, value: str) -> str:
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": key, "stringValue": value}]})
