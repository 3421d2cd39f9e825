"""How a run of the pipeline ended, written down by its exit task.

Kubeflow tells an exit task the state of the whole, neither which task failed nor why (the field for it is left empty,
backend/src/v2/driver/resolve.go). On a cluster its API knows the tasks, and the failed step's log the reason; on one
machine the step has left a note.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geartrain.artifacts import write_json
from geartrain.cluster.failures import Reason, explain
from geartrain.cluster.runs import Server, first_failure, log_reader
from geartrain.cluster.step import NOTE, say
from geartrain.errors import GeartrainError
from geartrain.home import home

ENDPOINT = "KF_PIPELINES_ENDPOINT"
STATES = {"COMPLETE": "SUCCEEDED", "CACHED": "SUCCEEDED", "CANCELED": "CANCELLED"}
"""What the backend calls a state of its metadata store, and what everybody else calls it."""


def conclude(
    *, run_id: str, state: str, output: Path, marks: dict[str, str], connect: Callable[[], Server] | None = None
) -> dict[str, Any]:
    """Write the final record of a run to the file `output` and, in one line, to the log; return it.

    A record is written in any case: where the failed task cannot be found out, it says why.

    Args:
        run_id: Kubeflow's id of the run.
        state: state of the guarded part, as Kubeflow told it.
        output: file to write.
        marks: digests that the run was made from.
        connect: returns the server to ask; None takes the one that `$KF_PIPELINES_ENDPOINT` names, if it is set.
    """
    state = STATES.get(state, state)
    reason, unknown = _from_note(), ""
    if reason is None and (connect is not None or ENDPOINT in os.environ):
        try:
            server = (connect or _server)()
            reason = first_failure(server.run(run_id), log_reader(server, run_id))
        except GeartrainError as error:
            unknown = f"Kubeflow was asked which task failed: {error}"
    if reason is not None:
        state = "FAILED"  # the backend may still say RUNNING of a part in which a task has failed
    elif state == "FAILED":
        unknown = unknown or "no step left a note, and Kubeflow names none"
    record = {
        "run": run_id,
        "state": state,
        "failed_task": None if reason is None else reason.task,
        "kind": None if reason is None else reason.kind,
        "reason": unknown if reason is None else reason.message,
        "hint": "" if reason is None else reason.hint,
        **marks,
    }
    write_json(output, record)
    say(f"conclusion: {json.dumps(record, sort_keys=True)}")
    return record


def read_note() -> dict[str, Any] | None:
    """Return what a step that failed on this machine left, if one has: task, kind, exit_code, message."""
    path = home() / NOTE
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) and {"task", "kind", "exit_code", "message"} <= note.keys() else None


def _from_note() -> Reason | None:
    note = read_note()
    if note is None:
        return None
    return explain(note["task"].replace("_", "-"), f"{note['kind']}: {note['message']} (exit code {note['exit_code']})")


def _server() -> Server:
    from geartrain.cluster.kubeflow import Kubeflow

    token = Path(os.environ.get("KF_PIPELINES_SA_TOKEN_PATH", "/var/run/secrets/kubeflow/pipelines/token"))
    namespace = os.environ.get("GEARTRAIN_NAMESPACE", "geartrain")
    return Kubeflow(os.environ[ENDPOINT], namespace=namespace, token_file=token if token.is_file() else None)
