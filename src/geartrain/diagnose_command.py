"""The command `geartrain diagnose`: what is likely wrong with a run, why, and what to change; for `cli`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geartrain.errors import EXIT_UNHEALTHY, UserError

if TYPE_CHECKING:
    from geartrain.diagnosis.ranking import Diagnosis, Found
    from geartrain.diagnosis.records import Records

app = typer.Typer()
FORMATS = ("text", "json")
KILLED = "  it has said no end, and nobody is at work on it: the same command goes on from its checkpoint"
ALTERNATIVES = 3
"""Other causes that are shown in full."""


@app.command()
def diagnose(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="[RUN_OR_DIR]",
            help="A workspace, the name of one in runs/, a live record, or a history.jsonl; default: here.",
        ),
    ] = Path(),
    form: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    fail: Annotated[bool, typer.Option("--fail", help="Exit with 4 unless the run is healthy; for CI.")] = False,
) -> None:
    """Name the likely cause of a training that goes wrong: evidence, what to change in params.yaml, how sure it is.

    Reads records alone, those of a run that is on too; starts nothing. What a run
    has not recorded cannot be looked for: it is listed.

    \b
    geartrain diagnose
    geartrain diagnose runs/smoke --format json
    geartrain diagnose models/policy/history.jsonl
    geartrain diagnose --fail                       in CI
    """
    from geartrain.diagnosis.ranking import diagnose as examine
    from geartrain.reporting.health import read_records
    from geartrain.wording import printable

    if form not in FORMATS:
        raise UserError(f"--format {form}: expected one of {', '.join(FORMATS)}")
    place = run if run.exists() else Path("runs") / run
    if not place.exists():
        raise UserError(f"{run}: no such run. Name a workspace, one of runs/, a live record or a history.jsonl.")
    records = read_records(place)
    found = examine(records)
    text = as_text(records, found)
    # reasons and names come from records: what they hold must not move the cursor
    print(as_json(records, found) if form == "json" else "\n".join(map(printable, text.splitlines())))
    if fail and not found.healthy:
        raise typer.Exit(EXIT_UNHEALTHY)


def as_json(records: "Records", found: "Diagnosis") -> str:
    """Return a diagnosis for programs."""
    told: dict[str, Any] = {"healthy": found.healthy, **_run(records), **asdict(found)}
    for cause in told["causes"]:
        cause["evidence"] = [{**sign, "iteration": sign["iteration"] + 1} for sign in cause["evidence"]]
    return json.dumps(told, indent=2, ensure_ascii=False, default=str)


def as_text(records: "Records", found: "Diagnosis") -> str:
    """Return a diagnosis for people: the first cause in full, what else it could be, what could not be seen."""
    run = _run(records)
    lines = [
        f"{run['iterations']} of {run['planned']} iterations, {run['recipe'] or 'recipe unknown'}, {run['outcome']}"
    ]
    lines += [f"  it says: {records.reason}"] if records.reason else []
    lines += [KILLED] if records.outcome == "killed" else []
    if found.healthy:
        told = f"healthy: none of {len(found.checked)} signs of trouble is there"
        if found.unexplained:
            told = f"healthy: {len(found.unexplained)} of {len(found.checked)} signs of trouble, and no cause of it"
        lines += ["", told]
        lines += _listed("checked", found.checked)
    else:
        first, *others = found.causes
        lines += ["", f"{first.name} ({first.confidence}): {first.means}", *_detail(first)]
        lines += ["", "what else it could be:"] if others else []
        for cause in others[:ALTERNATIVES]:
            why = f"; follows from {cause.follows_from}" if cause.follows_from else ""
            lines += [f"  {cause.name} ({cause.confidence}{why}): {cause.means}"]
            lines += [f"    {cause.evidence[0].text}"]
        if len(others) > ALTERNATIVES:
            lines += [f"  and {', '.join(cause.name for cause in others[ALTERNATIVES:])}"]
    lines += _listed("seen besides", [sign.text for sign in found.unexplained])
    missing = [f"{means} (needs {', '.join(names)})" for means, names in found.unchecked.items()]
    lines += _listed("not recorded, so not examined", missing)
    lines += _listed("stages without records", records.absent)
    return "\n".join(lines)


def _detail(cause: "Found") -> list[str]:
    lines = _listed("evidence", [sign.text for sign in cause.evidence], blank=False)
    lines += _listed("it would also show, and does not", cause.against, blank=False)
    lines += _listed("change", [change.text() for change in cause.changes], blank=False)
    return [*lines, f"source: {cause.source}"]


def _listed(title: str, entries: Any, *, blank: bool = True) -> list[str]:
    return [*([""] if blank else []), f"{title}:", *(f"  {entry}" for entry in entries)] if entries else []


def _run(records: "Records") -> dict[str, Any]:
    return {
        "iterations": len(records.history),
        "planned": records.iterations,
        "recipe": records.recipe,
        "outcome": records.outcome,
    }
