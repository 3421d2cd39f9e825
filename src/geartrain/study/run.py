"""Run a study: what an (environment, seed) shares once, then its variants; a failed cell stops no other.

A cell is a workspace. Its shared stages are links into the workspace `base`
beside it, so `workspace.is_current` holds them against the same manifests as
its own: what is finished is never run again, whenever the study was killed.
"""

import json
import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from geartrain import workspace
from geartrain.artifacts import MANIFEST, write_json
from geartrain.config import Config
from geartrain.config_file import load_config
from geartrain.engines import run_direct
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_USER, GeartrainError, UserError
from geartrain.lineage.events import error_of, read_events, stage_of
from geartrain.progress import bar
from geartrain.stages.stage import FOLDERS, ORDER, event_log
from geartrain.study.schema import BASE, Cell, Plan

SHARED = ORDER[: ORDER.index("policy")]
"""Stages that all variants of one (environment, seed) share."""
OWN = ("policy", "evaluation")
LOG, FAILED = "log.txt", "failed.json"
INTERRUPTED = 130
Say = Callable[[str], None]


@dataclass(frozen=True)
class Failure:
    """Why a cell has no result."""

    cell: str
    stage: str
    code: int
    """Exit code of the stage: 2 is to mend, 75 may pass, 1 is a bug."""
    reason: str


def run_study(plan: Plan, say: Say, known: Collection[Cell] = ()) -> int:
    """Run what is not finished; return 0, or the exit code of the gravest failure.

    Args:
        plan: the study.
        say: takes lines for people.
        known: cells whose results are at hand from elsewhere; they are not run.

    Raises:
        UserError: a cell's workspace cannot be made.
    """
    wanted = [cell for cell in plan.cells() if cell not in known]
    needed = {cell.base for cell in wanted}
    bases = [base for base in plan.bases() if base in needed]
    if known:
        say(f"cells: {len(known)} are known from elsewhere")
    for cell in (*bases, *wanted):
        _prepare(plan, cell)
    failures = _run_all(plan, bases, "shared stages", say)
    broken = {failure.cell: failure for failure in failures}
    cells = [cell for cell in wanted if cell.base.name not in broken]
    failures += _run_all(plan, cells, "cells", say)
    for cell in wanted:
        if cell.base.name in broken:
            _note(plan, replace(broken[cell.base.name], cell=cell.name, reason=f"{cell.base.name} failed, see there"))
    for failure in failures:
        say(f"failed: {failure.cell}, stage {failure.stage}: {failure.reason}")
    codes = {failure.code for failure in failures}
    graver = [code for code in codes if code not in (EXIT_USER, EXIT_INFRASTRUCTURE)]
    return 1 if graver else EXIT_INFRASTRUCTURE if EXIT_INFRASTRUCTURE in codes else max(codes, default=0)


def is_finished(plan: Plan, cell: Cell) -> bool:
    """Tell from the manifests alone whether a cell has all its stages, of this study's configuration and this code."""
    folder, config = plan.folder(cell), plan.config(cell)
    stages = SHARED if cell.variant == BASE else (*SHARED, *OWN)
    return all(workspace.is_current(folder, stage, config) for stage in reversed(stages))


def why_unfinished(plan: Plan, cell: Cell) -> str:
    """Return why a cell that is not finished has no result, for people."""
    folder = plan.folder(cell)
    if (folder / FAILED).is_file():
        failure = Failure(**json.loads((folder / FAILED).read_text("utf-8")))
        return f"failed in stage {failure.stage or '?'}: {failure.reason}"
    if all((folder / FOLDERS[stage] / MANIFEST).is_file() for stage in OWN):
        return "was made with other settings, inputs or code; run the study again"
    return "not run yet"


def _prepare(plan: Plan, cell: Cell) -> None:
    folder = plan.folder(cell)
    workspace.prepare(folder, plan.record(cell), made_from=f"{plan.source}, {cell.name}")
    if cell.variant != BASE:
        for stage in SHARED:
            _link(folder / FOLDERS[stage], plan.folder(cell.base) / FOLDERS[stage])


def _link(link: Path, target: Path) -> None:
    """Make `link` a relative link to `target`, so that the output folder can be moved as a whole."""
    text = os.path.relpath(target, link.parent)
    if link.is_symlink() and os.readlink(link) == text:
        return
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        raise UserError(f"{link}: holds results of its own, where a study links what its variants share. Delete it.")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(text)


def _run_all(plan: Plan, cells: Sequence[Cell], label: str, say: Say) -> list[Failure]:
    """Run the cells that are not finished, some at the same time; return the failures in the order of cells."""
    left = [cell for cell in cells if not is_finished(plan, cell)]
    for cell in cells:
        if cell not in left:
            (plan.folder(cell) / FAILED).unlink(missing_ok=True)
    if len(left) < len(cells):
        say(f"{label}: {len(cells) - len(left)} of {len(cells)} are finished already")
    failures: dict[str, Failure] = {}
    if not left:
        return []
    pool = ThreadPoolExecutor(max_workers=plan.study.jobs)
    try:
        with bar(label, total=len(left)) as advance:
            running: dict[Future[Failure | None], Cell] = {pool.submit(_run_cell, plan, cell): cell for cell in left}
            for future in as_completed(running):
                cell, failure = running[future], future.result()
                if failure is not None:
                    failures[cell.name] = failure
                    _note(plan, failure)
                advance(1, status=f"{cell.name} {'failed' if failure else 'done'}")
        pool.shutdown()
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        if isinstance(error, KeyboardInterrupt):
            say("stopped; the same command goes on from here")
            # the stages die with us; to join threads that wait for them would take until they end
            os._exit(INTERRUPTED)
        raise
    return [failures[cell.name] for cell in left if cell.name in failures]


def _run_cell(plan: Plan, cell: Cell) -> Failure | None:
    """Run the stages of one cell; what they print goes to its log."""
    folder = plan.folder(cell)
    (folder / FAILED).unlink(missing_ok=True)
    events = folder / event_log()
    seen = len(read_events(events))
    with (folder / LOG).open("a", encoding="utf-8") as log:
        say = partial(print, file=log, flush=True)
        try:
            config = load_config(folder / workspace.PARAMS)
            stale = () if cell.variant == BASE else _stale(folder, config)
            if stale:
                return Failure(cell.name, stale[0], 1, f"{cell.base.name} has no current {stale[0]}")
            code = run_direct(folder, config, SHARED[-1] if cell.variant == BASE else OWN[-1], say, output=log)
        except GeartrainError as error:
            return Failure(cell.name, "", error.exit_code, str(error))
    if code == 0:
        return None
    ended = [event for event in read_events(events)[seen:] if event["eventType"] in ("FAIL", "ABORT", "START")]
    if not ended:
        return Failure(cell.name, "", code, f"see {cell.name}/{LOG}")
    last = ended[-1]
    reason = error_of(last).get("message", f"was killed; see {cell.name}/{LOG}")
    return Failure(cell.name, stage_of(last), code, reason)


def _stale(folder: Path, config: Config) -> list[str]:
    return [stage for stage in SHARED if not workspace.is_current(folder, stage, config)]


def _note(plan: Plan, failure: Failure) -> None:
    write_json(plan.output / failure.cell / FAILED, asdict(failure))
