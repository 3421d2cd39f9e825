"""Lineage events: who read what and wrote what, as OpenLineage run events in an append-only file.

One JSON document a line. Each line carries the sha256 of the line before it,
so a changed or dropped line shows. The rest of lineage (queries, verification,
export) builds on this file.
"""

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

EventType = Literal["START", "COMPLETE", "FAIL", "ABORT"]
NAMESPACE = "geartrain"
PRODUCER = "https://geartrain.dev/geartrain"
SCHEMA_URL = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
GENESIS = "0" * 64


def new_run_id() -> str:
    """Return a fresh run id (UUID, as OpenLineage asks)."""
    return str(uuid.uuid4())


def emit(
    log: Path,
    event_type: EventType,
    *,
    run_id: str,
    job: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    facets: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Append one event and return it.

    `inputs` and `outputs` map dataset names to content digests. `facets` become
    run facets (parameters, resources, error message). Appends of several
    processes are serialised by a file lock.
    """
    event: dict[str, Any] = {
        "eventType": event_type,
        "eventTime": datetime.now(UTC).isoformat(),
        "producer": PRODUCER,
        "schemaURL": SCHEMA_URL,
        "run": {"runId": run_id, "facets": {f"geartrain_{name}": value for name, value in (facets or {}).items()}},
        "job": {"namespace": NAMESPACE, "name": job},
        "inputs": [_dataset(name, digest) for name, digest in sorted(inputs.items())],
        "outputs": [_dataset(name, digest) for name, digest in sorted(outputs.items())],
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        event["previous"] = _last_hash(file)
        file.write(json.dumps(event, sort_keys=True).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return event


def read_events(log: Path) -> list[dict[str, Any]]:
    """Return every complete event in order; a line cut short by a crash, or of something else, is left out."""
    if not log.is_file():
        return []
    events = []
    for line in log.read_bytes().splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and {"eventType", "job", "run"} <= event.keys():
            events.append(event)
    return events


def abort_unfinished(log: Path, message: str) -> list[str]:
    """Append ABORT for every run that has begun and said no end; return their jobs. Nobody may be at work on them."""
    unfinished: dict[str, dict[str, Any]] = {}
    for event in read_events(log):
        unfinished.pop(event["run"]["runId"], None)
        if event["eventType"] == "START":
            unfinished[event["run"]["runId"]] = event
    for run_id, event in unfinished.items():
        versions = {item["name"]: item.get("facets", {}).get("version", {}) for item in event.get("inputs", ())}
        inputs = {name: version.get("datasetVersion", "") for name, version in versions.items()}
        facets = {"error": {"type": "Unfinished", "message": message}}
        emit(log, "ABORT", run_id=run_id, job=event["job"]["name"], inputs=inputs, outputs={}, facets=facets)
    return [event["job"]["name"] for event in unfinished.values()]


def _dataset(name: str, digest: str) -> dict[str, Any]:
    facets = {"version": {"_producer": PRODUCER, "_schemaURL": SCHEMA_URL, "datasetVersion": digest}} if digest else {}
    return {"namespace": NAMESPACE, "name": name, "facets": facets}


def _last_hash(file: Any) -> str:
    """Hash of the last complete line; ends a line that a crash cut short."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return GENESIS
    window = min(size, 1 << 20)
    file.seek(size - window)
    tail = file.read(window)
    if not tail.endswith(b"\n"):
        file.write(b"\n")
    return hashlib.sha256(tail.rstrip(b"\n").splitlines()[-1]).hexdigest()
