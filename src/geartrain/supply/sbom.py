"""What software made a model: a CycloneDX SBOM of the environment, with the model as the component that it is about.

An image carries the list of its packages, made when it was built; elsewhere `cyclonedx-py` lists those of this Python,
without its own validation, which takes half a minute (the tests do that).
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geartrain.artifacts import Manifest, write_json
from geartrain.errors import InfrastructureError

OF_THE_IMAGE = Path("/usr/share/sbom/geartrain.cdx.json")
"""The list of packages that an image carries; the Dockerfile makes it."""
SPEC_VERSION = "1.6"


def write_sbom(path: Path, manifest: Manifest) -> None:
    """Write the SBOM of a promoted artifact to a file.

    Raises:
        InfrastructureError: the packages cannot be listed.
    """
    made = OF_THE_IMAGE.is_file()
    bom = json.loads(OF_THE_IMAGE.read_text(encoding="utf-8")) if made else _list_packages(path.with_suffix(".part"))
    bom["metadata"] = {**bom.get("metadata", {}), "component": describe_model(manifest)}
    write_json(path, bom)


def describe_model(manifest: Manifest) -> dict[str, Any]:
    """Return a promoted artifact as CycloneDX's machine-learning-model: name, files, what it was made from."""
    files = {name: digest for name, digest in manifest.files.items() if name.startswith("model/")}
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model@{manifest.digest}",
        "name": "geartrain policy",
        "version": manifest.digest,
        "modelCard": {"modelParameters": {"task": "tool use", "approach": {"type": "reinforcement-learning"}}},
        "components": [_file(name, digest) for name, digest in sorted(files.items())],
        "properties": _properties({"code": manifest.code, **{f"input:{k}": v for k, v in manifest.inputs.items()}}),
    }


def _file(name: str, digest: str) -> dict[str, Any]:
    return {
        "type": "file",
        "bom-ref": f"{name}@{digest}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _properties(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": f"geartrain:{name}", "value": value} for name, value in sorted(values.items())]


def _list_packages(part: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--no-validate", "--output-reproducible"]
    command += ["--spec-version", SPEC_VERSION, "--output-format", "JSON", "--output-file", str(part)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)  # noqa: S603
        if done.returncode:
            raise InfrastructureError(f"cyclonedx-py could not list the packages of this Python: {done.stderr[-500:]}")
        bom: dict[str, Any] = json.loads(part.read_text(encoding="utf-8"))
    finally:
        part.unlink(missing_ok=True)
    return bom
