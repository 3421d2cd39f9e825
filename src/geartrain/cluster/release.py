"""The record of a promoted model: what it is, where it lies, what it is made from, why it passed, who has signed it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geartrain.artifacts import verify, write_json
from geartrain.errors import UserError
from geartrain.supply.attestation import signed_by
from geartrain.supply.registration import register


def publish_record(*, promoted: Path, uri: str, run_id: str, marks: Mapping[str, str], output: Path) -> dict[str, Any]:
    """Check a promoted artifact, enter it in the configured registries, write its record to `output`; return that.

    Args:
        promoted: folder that the stage `promotion` wrote.
        uri: where that folder is kept; only an address with a scheme goes into the record.
        run_id: Kubeflow's id of the run.
        marks: digests that the run was made from.
        output: file to write.

    Raises:
        UserError: the artifact is damaged, the gate has not let this model through, or a registry refuses it.
        InfrastructureError: a registry does not answer as it should.
    """
    manifest = verify(promoted)
    decision = json.loads((promoted / "decision.json").read_text(encoding="utf-8"))
    if decision.get("promoted") is not True:
        raise UserError(f"{promoted}: the gate did not promote this model; only a promoted one has a record.")
    weights = {name: digest for name, digest in manifest.files.items() if name.startswith("model/")}
    entered = register(promoted, uri=uri, run_id=run_id)
    record = {
        "model": {"digest": f"sha256:{manifest.digest}", "files": weights, "uri": uri if "://" in uri else None},
        "candidate": decision["candidate"],
        "evaluation": decision["evaluation"],
        "checks": {check["name"]: check["value"] for check in decision["checks"]},
        "code": manifest.code,
        "signed_by": signed_by(promoted),
        "registered": {one.registry: {"name": one.name, "version": one.version} for one in entered},
        "run": run_id,
        **marks,
    }
    write_json(output, record)
    return record
