"""What a workspace holds, read once and tolerantly: a missing part is None or empty, never an exception.

A report is looked at most when something went wrong, so it is built from
whatever is there. Artifacts are found by the stage named in their manifest.
"""

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geartrain.artifacts import MANIFEST, Manifest, origins, read_manifest
from geartrain.errors import UserError, WithdrawnError
from geartrain.home import LINEAGE, home
from geartrain.lineage.events import digests, error_of, read_events, stage_of
from geartrain.supply.attestation import signed_by
from geartrain.withdrawals import withdrawn

Record = dict[str, Any]
ROOTS = ("data", "models", "reports")
HISTORIES = ("warm_start", "reward_model", "critic", "policy")


@dataclass(frozen=True)
class Facts:
    """Everything that the report shows."""

    name: str
    """Name of the workspace's folder."""
    manifests: Mapping[str, Manifest]
    """By stage, of the artifacts that are there."""
    folders: Mapping[str, Path]
    """By stage, relative to the workspace."""
    resources: Mapping[str, Mapping[str, float]]
    """By stage: seconds, cpu_seconds and peak_memory_bytes of the run that made the artifact."""
    failures: Mapping[str, str]
    """By stage: why its last run failed, if it did and none succeeded since."""
    tables: Record | None
    """`tables.json` of the evaluation."""
    decision: Record | None
    """`decision.json` of the promotion."""
    quality: Record | None
    """`quality.json` of the preferences."""
    histories: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    """By stage: the records of `history.jsonl`."""
    credit: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    """"before" and "after": episodes with their credit."""
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    """By stage: why its artifact must not be used any more."""
    signed_by: str | None = None
    """Id of the key that the promoted model's signature names; the report does not check it."""

    def parameter(self, stage: str, *keys: str) -> Any:
        """Return a parameter of the run that made a stage's artifact, or None."""
        value: Any = self.manifests[stage].parameters if stage in self.manifests else None
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def metrics(self, stage: str) -> Mapping[str, Any]:
        """Return the metrics in a stage's manifest, or an empty map."""
        return self.manifests[stage].metrics if stage in self.manifests else {}


def gather(workspace: Path) -> Facts:
    """Read a workspace.

    Raises:
        UserError: it holds neither an artifact nor a lineage event, so there is nothing to report.
    """
    found = dict(_artifacts(workspace))
    manifests = {stage: manifest for stage, (_, manifest) in found.items()}
    folders = {stage: folder for stage, (folder, _) in found.items()}
    events = read_events(home(workspace) / LINEAGE)
    if not found and not events:
        raise UserError(f"{workspace}: no finished stage here. Run `geartrain run` first, or name its folder by --dir.")

    def file(stage: str, name: str) -> Path:
        return folders[stage] / name if stage in folders else Path(os.devnull)

    return Facts(
        name=workspace.resolve().name,
        manifests=manifests,
        folders={stage: folder.relative_to(workspace) for stage, folder in folders.items()},
        resources=_resources(events, manifests),
        failures=_failures(events, manifests),
        tables=_json(file("evaluation", "tables.json")),
        decision=_json(file("promotion", "decision.json")),
        quality=_json(file("preferences", "quality.json")),
        histories={stage: list(read_lines(file(stage, "history.jsonl"))) for stage in HISTORIES},
        credit={role: list(read_lines(file("policy", f"credit_{role}.jsonl"))) for role in ("before", "after")},
        withdrawn=_withdrawn(manifests),
        signed_by=signed_by(folders["promotion"]) if "promotion" in folders else None,
    )


def column(history: Sequence[Mapping[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Return (position, value) of the records that hold a finite number under a name.

    The position is the record's `iteration` or `step`, else its index.
    """
    xs, ys = [], []
    for index, record in enumerate(history):
        value = record.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            xs.append(float(record.get("iteration", record.get("step", index))))
            ys.append(float(value))
    return xs, ys


def _artifacts(workspace: Path) -> Iterator[tuple[str, tuple[Path, Manifest]]]:
    for root in ROOTS:
        for path in sorted((workspace / root).glob(f"*/{MANIFEST}")):
            if path.parent.name.startswith("."):
                continue  # a publication that was cut short
            try:
                manifest = read_manifest(path.parent)
            except UserError:
                continue
            yield manifest.stage, (path.parent, manifest)


def _resources(events: Sequence[Record], manifests: Mapping[str, Manifest]) -> dict[str, Mapping[str, float]]:
    """Return what the run that published each artifact used; an earlier run of other content does not count."""
    used: dict[str, Mapping[str, float]] = {}
    for event in events:
        stage = stage_of(event)
        if event["eventType"] != "COMPLETE" or stage not in manifests:
            continue
        if manifests[stage].digest in digests(event, "outputs").values():
            used[stage] = event["run"]["facets"].get("geartrain_resources", {})
    return used


def _failures(events: Sequence[Record], there: Collection[str]) -> dict[str, str]:
    """Return stage -> why it failed; a refusal of what is withdrawn says nothing against an artifact that is there."""
    failed: dict[str, str] = {}
    for event in events:
        stage, error = stage_of(event), error_of(event)
        if event["eventType"] in ("FAIL", "ABORT"):
            if not (error.get("type") == WithdrawnError.__name__ and stage in there):
                failed[stage] = error.get("message", "no reason recorded")
        elif event["eventType"] == "COMPLETE":
            failed.pop(stage, None)
    return failed


def _withdrawn(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    try:
        stones = withdrawn()
    except UserError as error:
        return dict.fromkeys(manifests, str(error))
    reasons = {}
    for stage, manifest in manifests.items():
        for digest, name in {**origins(manifest), manifest.digest: stage}.items():
            if digest in stones:
                reasons[stage] = f"{name} ({digest[:12]}) was {stones[digest]}"
    return reasons


def _json(path: Path) -> Record | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def read_lines(path: Path) -> Iterator[Record]:
    """Yield the records of a file of JSON lines; none of one that is not there, and not what is no record."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
