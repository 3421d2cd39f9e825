"""Finished cells as files: what a study keeps when its workspaces are gone, or lie on another machine.

A cell's workspace holds a model and its episodes, tens of megabytes; its record
is a few kilobytes and has all that tables and tests read. A record counts
where it is of the very configuration that the study asks for; the code that
made it is written down with it, and results name every version.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from geartrain.algorithms.credit_scores import CreditScore
from geartrain.artifacts import fingerprint, write_json
from geartrain.config import Config
from geartrain.errors import UserError
from geartrain.study.collect import CellResult
from geartrain.study.curves import Curve
from geartrain.study.exact import CreditMoment
from geartrain.study.schema import Cell, Plan

FOLDER = "cells"
Record = dict[str, Any]


def write_record(output: Path, result: CellResult, config: Config) -> Path:
    """Write a finished cell into `output/cells`; equal results give equal bytes."""
    path = output / FOLDER / f"{result.cell.name.replace('/', '.')}.json"
    write_json(path, {"config": _digest(config), **_record(result)})
    return path


def read_records(folders: Sequence[Path], plan: Plan) -> dict[Cell, CellResult]:
    """Read the cells of a study from folders of records, or from folders that hold one; the first that has a cell wins.

    Raises:
        UserError: a folder has no record of this study, or a file is no record.
    """
    found: dict[Cell, CellResult] = {}
    wanted = {cell.name: cell for cell in plan.cells()}
    for folder in folders:
        inner = folder / FOLDER if (folder / FOLDER).is_dir() else folder
        fitting = 0
        for path in sorted(inner.glob("*.json")):
            record = _read(path)
            cell = wanted.get(f"{record['environment']}/seed-{record['seed']}/{record['variant']}")
            if cell is not None and record["config"] == _digest(plan.config(cell)):
                found.setdefault(cell, _result(record, cell))
                fitting += 1
        if not fitting:
            raise UserError(
                f"{folder}: no cell of {plan.source} of the configuration that it has now. Records lie in the "
                f"folder {FOLDER}/ of a study's output."
            )
    return found


def _digest(config: Config) -> str:
    """Identify a configuration by what is not a default: a new setting, left alone, makes no old record another's."""
    return fingerprint(config.model_dump(mode="json", exclude_defaults=True))


def _read(path: Path) -> Record:
    try:
        record = json.loads(path.read_text("utf-8"))
        if not {"config", "environment", "seed", "variant", "curve", "success"} <= set(record):
            raise ValueError("a key is missing")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not the record of a cell ({error}). Delete it, or name another folder.") from error
    found: Record = record
    return found


def _record(result: CellResult) -> Record:
    return {
        "environment": result.cell.environment,
        "seed": result.cell.seed,
        "variant": result.cell.variant,
        "code": result.code,
        "ground": result.ground,
        "curve": asdict(result.curve),
        "critic": dict(result.critic),
        "outcomes": {moment: dict(found) for moment, found in result.outcomes.items()},
        "phase_curves": {name: asdict(curve) for name, curve in result.phase_curves.items()},
        "environment_steps": result.environment_steps,
        "episodes": result.episodes,
        "kept_iteration": result.kept_iteration,
        "success": {"_".join(measure): dict(tasks) for measure, tasks in result.success.items()},
        "behaviour": dict(result.behaviour),
        "training": dict(result.training),
        "credit": {moment: asdict(found) for moment, found in result.credit.items()},
        "phases": dict(result.phases),
        "seconds": result.seconds,
        "alarms": list(result.alarms),
    }


def _result(record: Mapping[str, Any], cell: Cell) -> CellResult:
    credit = {}
    for moment, found in record["credit"].items():
        scores = {phase: CreditScore(**score) for phase, score in found["scores"].items()}
        credit[moment] = CreditMoment(**{**found, "scores": scores})
    simple = (
        "environment_steps",
        "episodes",
        "kept_iteration",
        "behaviour",
        "training",
        "phases",
        "seconds",
        "alarms",
        "code",
    )
    return CellResult(
        cell=cell,
        curve=_curve(record["curve"]),
        success={_measure(name): tasks for name, tasks in record["success"].items()},
        credit=credit,
        # of a record that is older than they are: not known
        ground=record.get("ground", ""),
        critic=record.get("critic", {}),
        outcomes=record.get("outcomes", {}),
        phase_curves={name: _curve(curve) for name, curve in record.get("phase_curves", {}).items()},
        **{name: record[name] for name in simple},
    )


def _curve(record: Mapping[str, Sequence[float]]) -> Curve:
    return Curve(tuple(record["x"]), tuple(record["y"]))


def _measure(name: str) -> tuple[str, str]:
    split, _, decoding = name.rpartition("_")
    return split, decoding
