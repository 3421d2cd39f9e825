"""What a diagnosis reads: the live record of a run that is on or was cut short, else its artifacts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geartrain import live
from geartrain.artifacts import MANIFEST, read_manifest
from geartrain.diagnosis.records import Outcome, Records
from geartrain.errors import UserError
from geartrain.home import home
from geartrain.reporting.facts import Facts, gather, read_lines

READ = ("reward_model", "critic", "policy", "evaluation")
"""Stages whose records count."""
_ENDS: Mapping[str, Outcome] = {
    "complete": "complete",
    "failed": "failed",
    "interrupted": "interrupted",
    "killed": "killed",  # told by `_told` alone: who is killed says nothing
}
_KINDS = ("begin", "iteration", "end")
"""Lines of a live record that count."""


def read_records(place: Path) -> Records:
    """Read what a run has recorded.

    Args:
        place: a workspace; a live record, or a `history.jsonl`; or the folder of a policy.

    Raises:
        UserError: nothing there tells of a training of the policy.
    """
    if place.is_file():
        return _of_file(place)
    if (place / MANIFEST).is_file():
        return _of_artifact(place)
    try:
        facts: Facts | None = gather(place)
    except UserError:
        facts = None
    told = _newest(home(place) / live.FOLDER)
    if facts is None:
        if not told:
            raise _nothing(place)
        return of_lines(told)
    return of_facts(facts, told)


def of_facts(facts: Facts, told: Sequence[live.Line] = ()) -> Records:
    """Return the records of a workspace; `told` is the newest live record of its policy."""
    metrics = {stage: facts.metrics(stage) for stage in READ if stage in facts.manifests}
    history = facts.histories.get("policy", ())
    known: dict[str, Any] = {
        "metrics": metrics,
        "credit": {role: records for role, records in facts.credit.items() if records},
        "tables": facts.tables or {},
        "absent": tuple(stage for stage in READ if stage not in facts.manifests),
    }
    outcome, reason = _ending(told)
    if told and (outcome != "complete" or not history):
        return of_lines(told, **known)
    if not history and "policy" not in facts.failures:
        raise _nothing(Path(facts.name))
    parameters = facts.manifests["policy"].parameters if "policy" in facts.manifests else {}
    reason = facts.failures.get("policy", "")
    return Records(history, parameters, "failed" if reason else "complete", reason, **known)


def of_lines(told: Sequence[live.Line], **known: Any) -> Records:
    """Return what a live record tells, with what else is known of the run."""
    begun = [line for line in told if line["kind"] == "begin"]
    parameters = begun[-1].get("parameters") if begun else None
    history = [line["record"] for line in live.iterations(told) if isinstance(line.get("record"), Mapping)]
    outcome, reason = _ending(told)
    return Records(history, parameters if isinstance(parameters, Mapping) else {}, outcome, reason, **known)


def _ending(told: Sequence[live.Line]) -> tuple[Outcome, str]:
    for line in reversed(told):
        if line["kind"] == "begin":
            return "running", ""
        if line["kind"] == "end":
            return _ENDS.get(str(line.get("outcome")), "unknown"), str(line.get("reason") or "")
    return "unknown", ""


def _newest(folder: Path) -> list[live.Line]:
    """Return the lines of the policy's live record that was written last; empty where there is none."""
    files = sorted(folder.glob("policy-*.jsonl"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    return _told(files[-1]) if files else []


def _told(path: Path) -> list[live.Line]:
    """Return the lines of a live record that count, and an end for one that has said none and that nobody writes."""
    lines, updated = live.read(path, _KINDS), path.stat().st_mtime
    if lines and lines[-1]["kind"] != "end" and not live.is_at_work(path, updated):
        lines.append({"time": updated, "kind": "end", "outcome": "killed"})
    return lines


def _of_file(path: Path) -> Records:
    told = _told(path)
    if told:
        return of_lines(told)
    history = list(read_lines(path))
    if not history:
        raise _nothing(path)
    return _of_artifact(path.parent) if (path.parent / MANIFEST).is_file() else Records(history, {}, "unknown")


def _of_artifact(folder: Path) -> Records:
    manifest, history = read_manifest(folder), list(read_lines(folder / "history.jsonl"))
    if manifest.stage != "policy":
        raise UserError(f"{folder}: an artifact of stage {manifest.stage}; a diagnosis reads that of policy.")
    credit = {role: list(read_lines(folder / f"credit_{role}.jsonl")) for role in ("before", "after")}
    known: dict[str, Any] = {"metrics": {"policy": manifest.metrics}, "credit": credit}
    return Records(history, manifest.parameters, "complete", absent=("reward_model", "critic", "evaluation"), **known)


def _nothing(place: Path) -> UserError:
    return UserError(
        f"{place}: no record of a training of the policy. Name a workspace, a live record "
        "(.geartrain/live/policy-….jsonl) or a history.jsonl; `geartrain run --until policy` makes them."
    )
