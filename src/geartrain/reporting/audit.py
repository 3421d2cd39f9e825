"""The audit of a model: one self-contained page with what an auditor asks, each number with where it is from.

Everything is read from the lineage and from artifacts whose digest the lineage names; what is not there is said.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment
from markupsafe import Markup

from geartrain import withdrawals
from geartrain.artifacts import ATTESTED, file_sha256, read_manifest
from geartrain.errors import TamperedError, UserError
from geartrain.lineage import events
from geartrain.lineage.graph import Graph, Node
from geartrain.lineage.index import Index
from geartrain.lineage.verification import Checked
from geartrain.reporting import sections
from geartrain.reporting.facts import Facts, gather
from geartrain.reporting.flow import draw
from geartrain.reporting.results import results
from geartrain.supply import attestation

SIGNED = {
    "model.sig": "signature of the model's files (OpenSSF model-signing)",
    "provenance.json": "provenance: what it was made from (in-toto, SLSA)",
    "provenance.sig": "signature of the provenance",
    "sbom.cdx.json": "packages of the environment (CycloneDX)",
}
"""Files beside a promoted model."""
SIGNATURES = {
    "none": "not signed",
    "unchecked": "signed, and not checked: give --key",
    "holds": "the signature holds",
    "broken": "the signature does not hold",
}
CREDIT = {
    "policy": ("recipe", "reward", "credit", "settings", "advantage", "kl", "teacher"),
    "reward_model": (),
    "critic": (),
}
"""Sections that say how reward and credit are given, and the beginnings of their keys; none takes all."""


@dataclass(frozen=True)
class Audit:
    """A model, and what is known of it."""

    model: Node
    made_of: Graph
    """Everything that it was made from."""
    led_to: Graph
    """Everything that was made from it: evaluations, and the gate's decision."""
    told: Mapping[str, Mapping[str, Any]]
    """Run id -> the last event of each run that the model was made by."""
    checked: Checked
    signed: "Signed"


@dataclass(frozen=True)
class Signed:
    """What is said of the promoted model where it lies."""

    rows: tuple[Mapping[str, str], ...]
    """Name, meaning and sha256 of each file."""
    state: str
    """"none", "unchecked" (no key was given), "holds" or "broken"."""
    told: str = ""
    """Of one that holds the key's id; of one that does not, what is wrong with it."""


def audit(index: Index, model: Node, checked: Checked, workspace: Path, key: Path | None = None) -> Audit:
    """Gather what the lineage knows of a model, and hold its signatures against a public key, where one is given.

    Raises:
        UserError: it is no model, or the key is none.
    """
    if model.type not in ("model", "report"):
        raise UserError(f"{model.label}: is a {model.type or 'run'}, no model; `geartrain lineage` shows it.")
    made_of = index.up(model)
    runs = [node for node in made_of if node.kind == "run" and node.state == "COMPLETE"]
    told = {run.id: event for run in runs for event in index.events(run.id)}
    led_to = index.down(model)
    return Audit(model, made_of, led_to, told, checked, _signed(model, led_to, workspace, key))


def render_audit(found: Audit, workspace: Path) -> str:
    """Return the page."""
    folder = files("geartrain.reporting")
    template = Environment(autoescape=True).from_string(folder.joinpath("audit.html.j2").read_text("utf-8"))
    facts = _known_facts(found, workspace)
    data = list(_data(found, workspace))
    decided = sections.verdict(facts) if facts else None
    return template.render(
        css=Markup(folder.joinpath("report.css").read_text("utf-8")),  # noqa: S704 - our own file
        model=found.model,
        data=data,
        unknown=[row for row in data if row["type"] == "source" and not row["licence"]],
        withdrawn=[row for row in data if row["withdrawn"]],
        graph=draw(found.made_of, label="What the model was made from"),
        runs=list(_runs(found)),
        parameters=_parameters(found),
        credit=_credit(found),
        results=results(facts) if facts and facts.tables else None,
        verdict=decided,
        signed=found.signed,
        faults=[finding for finding in found.checked.findings if finding.fault],
        notes=[finding for finding in found.checked.findings if not finding.fault],
        counts=found.checked.counts,
        heads=found.checked.heads,
    )


def _data(found: Audit, workspace: Path) -> Iterator[dict[str, Any]]:
    """Yield what came from outside, then what was made of it."""
    stones = withdrawals.withdrawn([*withdrawals.places(), withdrawals.project(workspace) / withdrawals.FOLDER])
    order = {"source": 0, "dataset": 1, "model": 2}
    nodes = [node for node in found.made_of if node.kind == "artifact" and node.id != found.model.id]
    for node in sorted(nodes, key=lambda node: (order.get(node.type, 3), node.time, node.name)):
        stone = stones.get(node.digest)
        yield {
            "name": node.name, "type": node.type, "digest": node.digest, "folder": node.folder,
            "licence": node.licence, "origin": node.origin,
            "withdrawn": "" if stone is None else str(stone),
        }  # fmt: skip


def _runs(found: Audit) -> Iterator[dict[str, Any]]:
    for node in sorted((n for n in found.made_of if n.id in found.told), key=lambda node: node.time):
        event = found.told[node.id]
        facets = event["run"].get("facets", {})
        code, around = facets.get("geartrain_code", {}), facets.get("geartrain_environment", {})
        used = facets.get("geartrain_resources", {})
        yield {
            "stage": node.name, "id": node.id, "time": node.time[:19].replace("T", " "), "attempt": node.attempt,
            "seconds": used.get("seconds"), "code": code.get("digest", ""), "commit": code.get("commit", ""),
            "changed": code.get("changed", False), "version": code.get("version", ""),
            "image": around.get("image", ""), "python": around.get("python", ""),
            "parent": events.parent_of(event) or "", "namespace": event["job"].get("namespace", ""),
            "mended": facets.get("geartrain_recovery", {}).get("reason", ""),
        }  # fmt: skip


def _parameters(found: Audit) -> str:
    rows = sorted((n for n in found.made_of if n.id in found.told), key=lambda node: node.time)
    return yaml.safe_dump({node.name: events.parameters_of(found.told[node.id]) for node in rows}, sort_keys=False)


def _credit(found: Audit) -> list[dict[str, str]]:
    """Return the settings that say how reward and credit were given."""
    shown = {}
    for node in found.made_of:
        told = events.parameters_of(found.told[node.id]) if node.id in found.told else {}
        if node.name in CREDIT and node.name in told:
            begins = CREDIT[node.name]
            chosen = {k: v for k, v in told[node.name].items() if not begins or k.startswith(begins)}
            shown[node.name] = _only_recipe(chosen)
    return [{"section": name, "text": yaml.safe_dump(shown[name], sort_keys=True)} for name in CREDIT if name in shown]


def _only_recipe(section: dict[str, Any]) -> dict[str, Any]:
    """Leave out the settings of algorithms that did not run."""
    recipe, settings = str(section.get("recipe", "")), section.get("settings")
    if not isinstance(settings, Mapping):
        return section
    return {**section, "settings": {name: value for name, value in settings.items() if name == recipe}}


def _known_facts(found: Audit, workspace: Path) -> Facts | None:
    """Return what lies in the workspace, without artifacts that have nothing to do with the model."""
    try:
        facts = gather(workspace)
    except UserError:
        return None
    known = {*found.made_of.nodes, *found.led_to.nodes}
    belongs = {stage for stage, manifest in facts.manifests.items() if manifest.digest in known}
    manifests = {stage: manifest for stage, manifest in facts.manifests.items() if stage in belongs}
    tables = facts.tables if "evaluation" in belongs else None
    decision = facts.decision if "promotion" in belongs else None
    return Facts(facts.name, manifests, facts.folders, facts.resources, facts.failures, tables, decision, facts.quality)


def _signed(model: Node, led_to: Graph, workspace: Path, key: Path | None) -> Signed:
    """Return what lies beside the promoted model in the workspace, if that is the model in question."""
    nodes = {node.digest: node for node in (model, *led_to) if node.promoted and node.folder and node.type == "model"}
    for folder in dict.fromkeys(workspace / node.folder for node in nodes.values()):
        try:
            manifest = read_manifest(folder)
        except UserError:
            continue
        rows = [
            {"name": name, "what": what, "sha256": file_sha256(folder / name)}
            for name, what in SIGNED.items()
            if (folder / name).is_file()
        ]
        if manifest.digest not in nodes or manifest.stage != ATTESTED:
            continue
        if attestation.SIGNATURE not in {row["name"] for row in rows}:
            return Signed(tuple(rows), "none")
        if key is None:
            return Signed(tuple(rows), "unchecked", attestation.signed_by(folder) or "")
        try:
            return Signed(tuple(rows), "holds", attestation.verify(folder, key).key_id)
        except TamperedError as error:
            return Signed(tuple(rows), "broken", str(error))
    return Signed((), "none")


def summary(found: Audit) -> str:
    """Return the page's main lines for a terminal."""
    sources = [node for node in found.made_of if node.type == "source"]
    runs = sum(node.kind == "run" for node in found.made_of)
    faults = len(found.checked.faults)
    return (
        f"{found.model.label}: {len(sources)} source{'s' * (len(sources) != 1)} from outside, {runs} runs, "
        f"{faults or 'no'} fault{'s' * (faults != 1)} in the lineage, {SIGNATURES[found.signed.state]}"
    )
