"""Where a model comes from, as a statement that tools can read: SLSA provenance v1 in an in-toto statement.

Its subjects are the files of the promoted artifact and its manifest; its dependencies are all ancestors that the
manifest names, down to the files from outside, and the code and the image that did it. The one importer of
in_toto_attestation.
"""

import json
import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from geartrain.artifacts import MANIFEST, Manifest, file_sha256, origins
from geartrain.errors import TamperedError
from geartrain.lineage import origin

PREDICATE = "https://slsa.dev/provenance/v1"
PRODUCER = "https://geartrain.dev/geartrain"
"""As in the lineage's events; their module takes a second to load."""
BUILD_TYPE = f"{PRODUCER}/promotion/v1"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def make_statement(folder: Path, manifest: Manifest, byproducts: Mapping[str, Path], run: str = "") -> bytes:
    """Return the statement about a sealed artifact, as JSON; the same work of the same run gives the same bytes.

    Args:
        folder: of the artifact.
        manifest: its manifest.
        byproducts: name -> file that was made with it, such as the SBOM.
        run: id of the run that made it, as lineage knows it; that of an orchestrator goes before it.
    """
    subjects = {**manifest.files, MANIFEST: file_sha256(folder / MANIFEST)}
    parent = origin.parent_run(os.environ)
    run = parent["run"] if parent else run
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": dict(manifest.parameters),
            "resolvedDependencies": _dependencies(manifest),
        },
        "runDetails": {
            "builder": {
                "id": f"{PRODUCER}/builders/{origin.job_namespace(os.environ).partition(':')[0]}",
                "version": {"geartrain": version("geartrain")},
            },
            **({"metadata": {"invocationId": run}} if run else {}),
            "byproducts": [
                {"name": name, "digest": {"sha256": file_sha256(path)}} for name, path in sorted(byproducts.items())
            ],
        },
    }
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": PREDICATE,
        "predicate": predicate,
    }
    text = json.dumps(statement, indent=2, sort_keys=True) + "\n"
    _parse(text.encode())  # refuses what the models do not know
    return text.encode()


def check_statement(statement: bytes, folder: Path, manifest: Manifest, byproducts: Mapping[str, Path]) -> list[str]:
    """Return what of a statement does not fit the artifact: a line per subject, dependency or byproduct.

    Raises:
        TamperedError: it is no provenance of ours.
    """
    subject, predicate = _parse(statement)
    subjects = {entry.name: entry.digest["sha256"] for entry in subject}
    made = {entry.name: entry.digest["sha256"] for entry in predicate.run_details.byproducts}
    found = {**manifest.files, MANIFEST: file_sha256(folder / MANIFEST)}
    beside = {name: file_sha256(path) if path.is_file() else "" for name, path in byproducts.items()}
    named = {entry.digest["sha256"] for entry in predicate.build_definition.resolved_dependencies}
    faults = [f"{name} is not the file that it names" for name in sorted(subjects) if found.get(name) != subjects[name]]
    faults += [f"{name} is not in it" for name in sorted(found.keys() - subjects.keys())]
    faults += [f"{name} is not the file that it names" for name in sorted(made) if beside.get(name) != made[name]]
    faults += [f"it leaves out {name} ({digest[:12]})" for digest, name in _known(manifest) if digest not in named]
    return faults


def dependencies(statement: bytes) -> list[dict[str, Any]]:
    """Return the descriptors of what a model was made from, as they stand in a statement."""
    return list(json.loads(statement)["predicate"]["buildDefinition"]["resolvedDependencies"])


def _dependencies(manifest: Manifest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": name, "digest": {"sha256": digest}} for digest, name in _known(manifest)]
    found.append({"name": "code of the package", "digest": {"sha256": manifest.code}})
    kind, _, digest = os.environ.get(origin.IMAGE, "").rpartition(":")
    if _SHA256.fullmatch(digest):
        found.append({"name": "image" if kind == "sha256" else "contents of the image", "digest": {"sha256": digest}})
    code, place = origin.code_facets(os.environ)["code"], origin.source_location(os.environ)
    if "commit" in code:
        uri = {"uri": f"git+{place['repository']}"} if place else {}
        changed = {"annotations": {"changed": True}} if code.get("changed") else {}
        found.append({"name": "source", **uri, "digest": {"gitCommit": code["commit"]}, **changed})
    return found


def _known(manifest: Manifest) -> list[tuple[str, str]]:
    """Return (digest, name) of all ancestors, by name."""
    return sorted(origins(manifest).items(), key=lambda entry: (entry[1], entry[0]))


def _parse(statement: bytes) -> tuple[Any, Any]:
    """Return subjects and predicate, as in-toto's own models read them. Raises TamperedError: they cannot."""
    from google.protobuf import json_format
    from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    try:
        told = json_format.Parse(statement, statement_pb2.Statement())
        Statement.copy_from_pb(told).validate()
        if told.predicate_type != PREDICATE:
            raise ValueError(f"its predicate is {told.predicate_type}")
        return told.subject, json_format.ParseDict(
            json_format.MessageToDict(told.predicate), provenance_pb2.Provenance()
        )
    except (json_format.ParseError, ValueError) as error:
        raise TamperedError(f"no SLSA provenance ({' '.join(str(error).split()):.200})") from error
