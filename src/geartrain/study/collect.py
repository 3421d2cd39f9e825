"""Read finished cells: learning curve, success task by task, how the agent worked, and what the cell cost."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geartrain.artifacts import fingerprint, read_manifest
from geartrain.config_file import load_config
from geartrain.datasets.task_sets import read_tasks
from geartrain.errors import UserError
from geartrain.lineage.events import read_events, stage_of
from geartrain.rollouts.comparison import outcome_table
from geartrain.rollouts.suite import DECODINGS
from geartrain.stages.evaluation import EVALUATED
from geartrain.stages.stage import FOLDERS, event_log
from geartrain.study.curves import Curve, learning_curve
from geartrain.study.exact import CreditMoment, read_phases, score_moments
from geartrain.study.outcomes import MOMENTS, Numbers, read_credit, score_outcomes
from geartrain.study.run import OWN, is_finished
from geartrain.study.schema import Cell, Plan
from geartrain.training.watch import alarms
from geartrain.trajectory import read_trajectories
from geartrain.workspace import PARAMS

Measure = tuple[str, str]
"""(split, decoding)."""
BEHAVIOUR = ("steps", "invalid_calls", "redundant_calls", "key_steps", "zero_tool_successes", "truncated")
"""Of the sampled test episodes, as `rollouts.quality` defines them."""
TRAINING = (
    *("entropy_early", "entropy_middle", "entropy_late", "entropy", "kl", "credit_later"),
    *("weight_spread", "weight_p05", "weight_p95", "weight_advantage", "weight_reward"),
    *("weight_ratio_better", "weight_ratio_worse", "teacher_ratio", "teacher_ratio_spread"),
)
"""Of the history; the mean of the iterations that have it."""
PHASES = ("plan_success", "do_success")
"""Of the history, as curves."""
CRITIC = ("correlation", "correlation_contrast", "correlation_outcome", "correlation_shuffled")
"""Metrics of the stage `critic`, as `training.critic.judge_critic` defines them; the last of a critic that was trained
on shuffled labels."""


@dataclass(frozen=True)
class CellResult:
    """What one finished cell measured."""

    cell: Cell
    curve: Curve
    environment_steps: int
    """Agent turns played in training, to the end."""
    episodes: int
    kept_iteration: int
    """Iteration whose weights were best on `val` and are the result; 0 is the warm start."""
    success: Mapping[Measure, Mapping[str, float]]
    """Task id -> share of successes, of the kept weights."""
    behaviour: Mapping[str, float | None]
    training: Mapping[str, float | None]
    credit: Mapping[str, CreditMoment]
    """"before" and "after" -> how the method's credit agrees with exact advantages; `twophase` alone."""
    phases: Mapping[str, float]
    """Success and entropy of planning and of doing in the sampled test episodes; `twophase` alone."""
    seconds: float
    """Wall time of the stages that are the cell's own."""
    alarms: Sequence[str]
    """Names of the alarms that were raised at any time of the training, see `training.watch.alarms`."""
    code: str
    """Digest of the code that made it."""
    ground: str = ""
    """Digest of the artifacts that the variants of a seed share. This and what follows is empty of a cell that was
    recorded before it was measured."""
    critic: Numbers = field(default_factory=dict)
    """How the sibling critic that all variants share does on held-out tasks."""
    outcomes: Mapping[str, Mapping[str, Numbers]] = field(default_factory=dict)
    """"before" and "after" -> "success" and "failure" -> how turns were credited, see `outcomes.score_outcomes`."""
    phase_curves: Mapping[str, Curve] = field(default_factory=dict)
    """Success by phase over the training; only of environments with phases."""


def collect(plan: Plan) -> list[CellResult]:
    """Return the finished cells, in the order in which they run."""
    return [read_cell(plan.folder(cell), cell, plan.study.curve) for cell in plan.cells() if is_finished(plan, cell)]


def read_cell(folder: Path, cell: Cell, curve_name: str) -> CellResult:
    """Read one finished cell. Raises UserError: its history lacks what a study needs."""
    path = folder / FOLDERS["policy"] / "history.jsonl"
    history = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    curve = learning_curve(history, curve_name)
    if curve is None:
        raise UserError(f"{path}: never measured {curve_name!r}. Lower policy.validate_every, or choose another curve.")
    made = read_manifest(folder / FOLDERS["policy"])
    tables = json.loads((folder / FOLDERS["evaluation"] / "tables.json").read_text("utf-8"))
    exact, config = cell.environment == "twophase", load_config(folder / PARAMS)
    after = tables["splits"].get("test", {}).get("sampled", {}).get("after", {})
    return CellResult(
        cell=cell,
        curve=curve,
        environment_steps=sum(record["environment_steps"] for record in history),
        episodes=sum(record["episodes"] for record in history),
        kept_iteration=int(made.metrics["best_iteration"]),
        success=_success(folder),
        behaviour={name: after.get(name) for name in BEHAVIOUR},
        training={name: _mean([record.get(name) for record in history]) for name in TRAINING},
        credit=score_moments(folder, config) if exact else {},
        phases=read_phases(folder, config) if exact else {},
        seconds=_seconds(folder),
        alarms=_alarms(history),
        code=made.code,
        ground=fingerprint(made.inputs),
        critic=_critic(folder),
        outcomes={moment: score_outcomes(read_credit(folder, moment)) for moment in MOMENTS},
        phase_curves={name: curve for name in PHASES if (curve := learning_curve(history, name)) is not None},
    )


def _critic(folder: Path) -> dict[str, float | None]:
    metrics = read_manifest(folder / FOLDERS["critic"]).metrics
    return {name: metrics[name] for name in CRITIC if name in metrics}


def _alarms(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ask anew of every iteration: what was written down then may be of fewer rules."""
    raised = (alarm for end in range(len(history)) for alarm in alarms(history[: end + 1]))
    return sorted({alarm.partition(":")[0] for alarm in raised})


def _success(folder: Path) -> dict[Measure, dict[str, float]]:
    found: dict[Measure, dict[str, float]] = {}
    for split in EVALUATED:
        tasks = read_tasks(folder / FOLDERS["tasks"], split)
        for decoding in DECODINGS:
            path = folder / FOLDERS["evaluation"] / "episodes" / f"after_{split}_{decoding}.parquet"
            if tasks and path.is_file():
                means = outcome_table(list(read_trajectories(path)), tasks).mean(axis=1)
                found[split, decoding] = {t.task_id: float(m) for t, m in zip(tasks, means, strict=True)}
    return found


def _seconds(folder: Path) -> float:
    """Return the wall time of the runs that finished; what a kill threw away is not in it."""
    last: dict[str, float] = {}
    for event in read_events(folder / event_log()):
        used = event["run"]["facets"].get("geartrain_resources")  # what was mended after a crash has none
        if event["eventType"] == "COMPLETE" and stage_of(event) in OWN and used:
            last[stage_of(event)] = used["seconds"]
    return round(sum(last.values()), 1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
