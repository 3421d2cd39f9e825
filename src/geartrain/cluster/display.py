"""Runs, schedules and findings as text for a terminal, and as JSON for programs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from geartrain.cluster.failures import Reason
from geartrain.cluster.findings import Finding
from geartrain.cluster.records import Run
from geartrain.cluster.task_rows import rows

MARKS = {"SUCCEEDED": "✓", "SKIPPED": "✓", "FAILED": "✗", "RUNNING": "▶", "CANCELED": "■", "CANCELING": "■"}


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return columns as wide as their longest cell, two blanks apart, without blanks at the ends of lines."""
    cells = [list(header), *map(list, lines)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def duration(span: timedelta) -> str:
    """Return a length of time in its two largest units: "3 h 05 min"."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def clock(moment: datetime | None) -> str:
    """Return a time in UTC, to the minute."""
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M}Z"


def runs_table(runs: Iterable[Run], schedules: Mapping[str, str], now: datetime) -> str:
    """Return a table of runs; `schedules` names the recurring runs by id."""
    lines = [
        (run.id, run.name, run.state.lower(), clock(run.created), _took(run.created, run.finished, now),
         schedules.get(run.recurring_run, run.recurring_run) or "-")
        for run in runs
    ]  # fmt: skip
    return table(("RUN", "NAME", "STATE", "STARTED", "TOOK", "SCHEDULE"), lines)


def run_tree(run: Run, reason: Reason | None, now: datetime) -> str:
    """Return a run with its tasks, and why it failed."""
    lines = [f"run {run.id}  {run.name}  {run.state.lower()}  {_took(run.created, run.finished, now)}"]
    for row in rows(run):
        retries = {1: "", 2: ", 1 retry"}.get(row.attempts, f", {row.attempts - 1} retries")
        mark = MARKS.get(row.state, "·")
        took = _took(row.started, row.ended, now) if row.started else "-"
        lines.append(f"{'  ' * row.depth}  {mark} {row.name:<16} {row.state.lower():<10} {took}{retries}")
    if reason is not None:
        lines += [f"first failure: {reason.task}: {reason.message}", f"  {reason.kind}: {reason.hint}"]
    return "\n".join(lines)


def run_record(run: Run, reason: Reason | None = None) -> dict[str, Any]:
    """Return a run as JSON."""
    tasks = [
        {
            "name": row.name,
            "state": row.state,
            "depth": row.depth,
            "attempts": row.attempts,
            "started": _iso(row.started),
            "ended": _iso(row.ended),
            "error": row.error,
        }
        for row in rows(run)
    ]
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state,
        "created": _iso(run.created),
        "finished": _iso(run.finished),
        "recurring_run": run.recurring_run,
        "tasks": tasks,
        "first_failure": None if reason is None else reason_record(reason),
    }


def reason_record(reason: Reason) -> dict[str, Any]:
    """Return why a run failed, as JSON."""
    return {**asdict(reason), "exit_code": reason.code}


def findings_text(findings: Iterable[Finding]) -> str:
    """Return the doctor's report."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:4}  {finding.check}: {finding.message}")
        if finding.mend:
            lines.append(f"      -> {finding.mend}")
    return "\n".join(lines)


def _took(start: datetime | None, end: datetime | None, now: datetime) -> str:
    return "-" if start is None else duration((end or now) - start)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
