"""What the API server of Kubeflow Pipelines answers, decoded: records, and errors that say how to mend them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from geartrain.cluster.interface import ConflictError, ForbiddenError, InvalidError, NotFoundError
from geartrain.cluster.records import Recurring, Run, Task, Version

LOG_IN = (
    "a log-in stands in front of it. Give --token-file with a token for it, or go round it:"
    " kubectl -n kubeflow port-forward svc/ml-pipeline 8888 and --host http://127.0.0.1:8888"
)
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""What the server writes where it means "not yet"; for nodes it may also be the year 1."""


def moment(text: str | None) -> datetime | None:
    """Return an RFC 3339 time in UTC; None for none."""
    if not text:
        return None
    found = datetime.fromisoformat(text).astimezone(UTC)
    return None if found <= NEVER else found


def run(item: Mapping[str, Any]) -> Run:
    """Return a run from the server's JSON."""
    reference = item.get("pipeline_version_reference") or {}
    details = (item.get("run_details") or {}).get("task_details") or ()
    return Run(
        id=str(item.get("run_id", "")),
        name=str(item.get("display_name", "")),
        state=str(item.get("state") or "PENDING"),
        description=str(item.get("description") or ""),
        created=moment(item.get("created_at")),
        finished=moment(item.get("finished_at")),
        error=_error(item),
        recurring_run=str(item.get("recurring_run_id") or ""),
        pipeline_id=str(reference.get("pipeline_id") or ""),
        version_id=str(reference.get("pipeline_version_id") or item.get("pipeline_version_id") or ""),
        parameters=(item.get("runtime_config") or {}).get("parameters") or {},
        tasks=tuple(task(detail) for detail in details),
    )


def task(item: Mapping[str, Any]) -> Task:
    """Return a node of a run from the server's JSON."""
    children = [child.get("task_id") or child.get("pod_name") or "" for child in item.get("child_tasks") or ()]
    return Task(
        id=str(item.get("task_id", "")),
        name=str(item.get("display_name", "")),
        state=str(item.get("state") or "PENDING"),
        error=_error(item),
        started=moment(item.get("start_time")),
        ended=moment(item.get("end_time")),
        parent=str(item.get("parent_task_id") or ""),
        pod=str(item.get("pod_name") or ""),
        children=tuple(child for child in children if child),
    )


def _error(item: Mapping[str, Any]) -> str:
    """Return the newest message of an object or of its history."""
    histories = [item, *reversed(item.get("state_history") or ())]
    messages = [(entry.get("error") or {}).get("message") for entry in histories]
    return str(next((text for text in messages if text), ""))


def recurring(item: Mapping[str, Any]) -> Recurring:
    """Return a schedule from the server's JSON; a periodic one has no cron expression."""
    reference = item.get("pipeline_version_reference") or {}
    return Recurring(
        id=str(item.get("recurring_run_id", "")),
        name=str(item.get("display_name", "")),
        cron=str(((item.get("trigger") or {}).get("cron_schedule") or {}).get("cron") or ""),
        # the mode is what was asked for; the status is what the controller reported last, and lags behind
        enabled=(item.get("mode") or item.get("status")) in ("ENABLE", "ENABLED"),
        description=str(item.get("description") or ""),
        created=moment(item.get("created_at")),
        pipeline_id=str(reference.get("pipeline_id") or ""),
        version_id=str(reference.get("pipeline_version_id") or item.get("pipeline_version_id") or ""),
        parameters=(item.get("runtime_config") or {}).get("parameters") or {},
        max_concurrency=int(item.get("max_concurrency") or 0),  # an int64 travels as a string
        no_catchup=bool(item.get("no_catchup", False)),
        service_account=str(item.get("service_account") or ""),
    )


def version(item: Mapping[str, Any]) -> Version:
    """Return a pipeline version from the server's JSON."""
    name = item.get("display_name") or item.get("name") or ""
    return Version(str(item["pipeline_id"]), str(item["pipeline_version_id"]), str(name), item.get("pipeline_spec"))


def message(body: Any) -> str:
    """Return the reason in an error's body, on one line."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "no reason given")
    try:
        record = json.loads(text)
        text = str(record.get("message") or record.get("error_message") or record.get("error") or text)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:500]


def refusal(host: str, status: int | None, body: Any) -> Exception:
    """Return the error for an answer that repeating does not change."""
    reason = message(body)
    if not status:
        return ForbiddenError(
            f"{host}: {reason}. Is it https, or plain http? Give --ca-file if its certificate is your own."
        )
    if 300 <= status < 400:
        return ForbiddenError(f"{host}: HTTP {status}: {LOG_IN}")
    if status == 401:
        return ForbiddenError(
            f"{host}: HTTP 401: it does not know who asks ({reason}). Give --token-file with a valid token."
        )
    if status == 403:
        return ForbiddenError(
            f"{host}: HTTP 403: {reason}. Ask for the role that k8s/ binds in your namespace; `geartrain doctor` lists"
            " the verbs that are missing."
        )
    if status == 404:
        return NotFoundError(
            f"{host}: HTTP 404: {reason}. The id may be wrong or the object deleted (`geartrain runs` lists them); if"
            " nothing is ever found, the address is not that of Kubeflow Pipelines 2 (`geartrain doctor`)."
        )
    if status == 409:
        return ConflictError(f"{host}: HTTP 409: {reason}")
    hint = (
        " The server may be older than 2.17: `geartrain doctor` compares versions." if status in (400, 405, 501) else ""
    )
    return InvalidError(f"{host}: HTTP {status}: {reason}.{hint}")


def unreachable(host: str, error: Exception) -> str:
    """Return why no answer came, and what to look at."""
    hint = "Is it running, and does the address lead to it? kubectl -n kubeflow port-forward svc/ml-pipeline 8888"
    return f"{host}: no answer ({type(error).__name__}). {hint}"
