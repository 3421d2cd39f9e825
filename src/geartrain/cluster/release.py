"""The record of a promoted model: what it is, where it lies, what it is made from and why it passed the gate."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geartrain.artifacts import verify, write_json
from geartrain.errors import UserError


def publish_record(*, promoted: Path, uri: str, run_id: str, marks: Mapping[str, str], output: Path) -> dict[str, Any]:
    """Check a promoted artifact against its manifest and write its record to the file `output`; return the record.

    Args:
        promoted: folder that the stage `promotion` wrote.
        uri: where that folder is kept; only an address with a scheme goes into the record.
        run_id: Kubeflow's id of the run.
        marks: digests that the run was made from.
        output: file to write.

    Raises:
        UserError: the artifact is damaged, or the gate has not let this model through.
    """
    manifest = verify(promoted)
    decision = json.loads((promoted / "decision.json").read_text(encoding="utf-8"))
    if decision.get("promoted") is not True:
        raise UserError(f"{promoted}: the gate did not promote this model; only a promoted one has a record.")
    weights = {name: digest for name, digest in manifest.files.items() if name.startswith("model/")}
    record = {
        "model": {"digest": f"sha256:{manifest.digest}", "files": weights, "uri": uri if "://" in uri else None},
        "candidate": decision["candidate"],
        "evaluation": decision["evaluation"],
        "checks": {check["name"]: check["value"] for check in decision["checks"]},
        "code": manifest.code,
        "run": run_id,
        **marks,
    }
    write_json(output, record)
    return record
