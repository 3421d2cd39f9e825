"""Entering a promoted model in a registry: what is told of it, and that a repetition enters nothing twice.

A registry holds names and addresses; which data made a model is in its lineage and its signed provenance, of which the
registry gets the digests. A candidate that the gate has not let through is never a version that somebody could deploy.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from geartrain import artifacts
from geartrain.artifacts import origins
from geartrain.errors import UserError
from geartrain.lineage.tombstones import require_allowed, used
from geartrain.supply.attestation import ENVELOPE, MODEL, SIGNATURE, is_promoted, require_packages, signed_by

LATER = "GEARTRAIN_REGISTERED_LATER"
"""Variable of a step after which another one registers: only that one knows where the artifact lies."""
PREFIX = "geartrain."
"""Of our tags and properties in a registry."""
DIGEST = f"{PREFIX}digest"
SHORT = 32
"""Characters of a digest where a registry has no room for more: MLflow takes 36 of a data set's."""
_HEAD = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """What a registry is told of a model."""

    name: str
    digest: str
    """Of the promoted artifact, sha256 in hex: the identity by which a repetition is recognised."""
    promoted: bool
    folder: Path
    uri: str | None
    """Address of the artifact, with a scheme; None where it lies on this machine only."""
    run_id: str
    """Kubeflow's id of the run, or empty."""
    numbers: dict[str, float]
    """The evaluation's, as the card has them, and the gate's."""
    data: dict[str, str]
    """Name -> digest of everything that it was made from."""
    properties: dict[str, str]
    """Further digests, and who has signed it."""

    @property
    def version(self) -> str:
        """What the version is called where versions have names."""
        return self.digest[:12]


@dataclass(frozen=True)
class Registered:
    """What has become of an entry."""

    registry: str
    name: str
    version: str
    """Empty: a candidate, of which the registry keeps a record and no version."""
    new: bool

    def __str__(self) -> str:
        if not self.version:
            return f"{self.registry}: {self.name}: no version, for the gate did not pass the candidate"
        return f"{self.registry}: {self.name}, version {self.version}" + ("" if self.new else ", was there already")


def describe(
    folder: Path, *, uri: str | None = None, run_id: str = "", name: str | None = None, homes: Sequence[Path] = ()
) -> Entry:
    """Return what is to be told of an artifact of the stage `promotion`, once it is whole.

    Args:
        folder: of the artifact.
        uri: where it is published, if it is.
        run_id: Kubeflow's id of the run.
        name: instead of the model's own.
        homes: whose lineage is asked whether it was made from something that is withdrawn, beside its manifest.

    Raises:
        UserError: it is damaged, withdrawn or made from what is, or no artifact of that stage.
    """
    manifest = artifacts.verify(folder)
    if manifest.stage != "promotion":
        raise UserError(f"{folder}: was written by the stage {manifest.stage}; give what `promotion` wrote.")
    require_allowed(homes, [used(str(folder), folder, manifest)])
    decision = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
    passed = is_promoted(manifest)
    signatures = {name: folder / name for name in (SIGNATURE, ENVELOPE) if (folder / name).is_file()}
    properties = {
        "digest": manifest.digest,
        "code": manifest.code,
        "candidate": decision["candidate"],
        "evaluation": decision["evaluation"],
        "signed_by": signed_by(folder) or "nobody",
        **{f"sha256.{name}": artifacts.file_sha256(path) for name, path in signatures.items()},
        **({"run": run_id} if run_id else {}),
    }
    gate = {f"gate_{check['name']}": check["value"] for check in decision["checks"] if check["value"] is not None}
    return Entry(
        name=name or decision["name"],
        digest=manifest.digest,
        promoted=passed,
        folder=folder,
        uri=uri if uri and "://" in uri and not uri.startswith("file://") else None,
        run_id=run_id,
        numbers={**gate, **(read_numbers(folder / MODEL / "README.md") if passed else {})},
        data={name: digest for digest, name in origins(manifest).items()},
        properties={f"{PREFIX}{key}": value for key, value in properties.items()},
    )


def read_numbers(card: Path) -> dict[str, float]:
    """Return the measurements in a model card's head, by split and decoding."""
    head = _HEAD.match(card.read_text(encoding="utf-8"))
    record: dict[str, Any] = yaml.safe_load(head[1]) if head else {}
    return {
        f"success_{result['dataset']['split']}_{metric['name'].rpartition(' ')[2]}": float(metric["value"])
        for model in record.get("model-index", ())
        for result in model["results"]
        for metric in result["metrics"]
    }


def short_digest(digest: str) -> str:
    """Return a digest where a registry cuts or refuses the whole: its beginning, without `sha256:`."""
    return digest.rpartition(":")[2][:SHORT]


def _mlflow(entry: Entry) -> Registered:
    require_packages("mlflow")
    from geartrain.supply.mlflow_registry import enter

    return enter(entry)


def _kubeflow(entry: Entry) -> Registered:
    require_packages("model_registry")
    from geartrain.supply.kubeflow_registry import enter

    return enter(entry)


REGISTRIES: dict[str, Callable[[Entry], Registered]] = {"mlflow": _mlflow, "kubeflow": _kubeflow}
"""The names that `promotion.registries` may hold."""


def register(
    folder: Path,
    registries: Sequence[str] | None = None,
    *,
    uri: str | None = None,
    run_id: str = "",
    name: str | None = None,
    homes: Sequence[Path] = (),
) -> list[Registered]:
    """Enter an artifact of the stage `promotion` in registries; what is entered already stays as it is.

    Args:
        folder, uri, run_id, name, homes: as of `describe`.
        registries: names; None takes those of the run's configuration (`promotion.registries`).

    Raises:
        UserError: no address or no right, a name that means another model, or a damaged artifact.
        InfrastructureError: a registry does not answer as it should; the same call may succeed later.
    """
    if registries is None:
        registries = configured(folder)
    if not registries:
        return []
    entry = describe(folder, uri=uri, run_id=run_id, name=name, homes=homes)
    return [REGISTRIES[registry](entry) for registry in dict.fromkeys(registries)]


def configured(folder: Path) -> tuple[str, ...]:
    """Return the registries that the configuration of an artifact names."""
    section = artifacts.read_manifest(folder).parameters.get("promotion", {})
    return tuple(section.get("registries", ()))
