"""From cells to findings: each variant against the control on the same tasks and seeds, and what was too small to see.

Two questions, two units. Over tasks: do these trained models differ? Every
(seed, task) is a pair. Over seeds: would a new run differ? Every seed is a pair,
and five of them cannot give a p-value below 2/32. Holm's correction is over the
variants of one environment, split and decoding.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from statistics import fmean, stdev
from typing import Any

import numpy as np

from geartrain.algorithms import statistics
from geartrain.rollouts.suite import DECODINGS
from geartrain.study.collect import BEHAVIOUR, CRITIC, PHASES, TRAINING, CellResult, Measure
from geartrain.study.curves import Band, Curve, area, band, median_steps, steps_to, value_at
from geartrain.study.floors import warnings
from geartrain.study.outcomes import OUTCOMES, Numbers
from geartrain.study.schema import Plan

Table = dict[str, Any]
CONFIDENCE, RESAMPLES, SEED = 0.95, 10_000, 0
TASK_COUNTS = (20, 168, 417)
"""Sizes of the test sets of the papers; what they could have seen is printed beside ours."""
_TIE = 1e-6
"""Heights of mean curves are rounded to this."""
UNITS = ("over_tasks", "over_seeds")


def results(plan: Plan, found: Sequence[CellResult], missing: Mapping[str, str]) -> Table:
    """Return everything that is known, JSON-ready: no path of this machine, no time of day.

    Args:
        plan: the study.
        found: its finished cells.
        missing: name of every other cell -> why it has no result.
    """
    study = plan.study
    summary = {}
    for environment in study.environments:
        here = [result for result in found if result.cell.environment == environment]
        end = min((result.curve.end for result in here), default=0.0)
        by_variant = {name: [r for r in here if r.cell.variant == name] for name in study.variants}
        controls = by_variant[study.control]
        summary[environment] = {
            "common_environment_steps": end,
            "variants": {name: _variant(cells, controls, end, study.reach) for name, cells in by_variant.items()},
            "warnings": warnings(here, study.control),
            "critic": _critic(here),
            "comparisons": _comparisons(here, study.control, list(study.variants), end),
        }
    return {
        "study": study.model_dump(mode="json", exclude={"output", "jobs"}),
        "code": sorted({result.code for result in found}),
        "cells": [_cell(result) for result in found],
        "missing": dict(missing),
        "environments": summary,
        "detectable": {
            str(tasks): round(statistics.minimum_detectable_effect(tasks, confidence=CONFIDENCE), 4)
            for tasks in TASK_COUNTS
        },
    }


def _cell(result: CellResult) -> Table:
    return {
        "environment": result.cell.environment,
        "seed": result.cell.seed,
        "variant": result.cell.variant,
        "curve": _curve(result.curve),
        "environment_steps": result.environment_steps,
        "episodes": result.episodes,
        "kept_iteration": result.kept_iteration,
        "success": {"_".join(measure): round(_level(result, measure), 6) for measure in result.success},
        "behaviour": _round(dict(result.behaviour)),
        "training": _round(dict(result.training)),
        "credit": {
            moment: {
                "scores": {phase: _round(asdict(score)) for phase, score in found.scores.items()},
                "weight": _round(found.weight),
                "credited": round(found.credited, 6),
                "granularity": _round(dict(found.granularity)),
                "coarser": _round(found.coarser),
            }
            for moment, found in result.credit.items()
        },
        "phases": _round(dict(result.phases)),
        "phase_curves": {name: _curve(curve) for name, curve in result.phase_curves.items()},
        "outcomes": _round(result.outcomes),
        "critic": _round(result.critic),
        "seconds": result.seconds,
        "alarms": list(result.alarms),
    }


def _curve(curve: Curve) -> Table:
    return {"environment_steps": list(curve.x), "success": _round(list(curve.y))}


def _variant(cells: Sequence[CellResult], controls: Sequence[CellResult], end: float, reach: Sequence[float]) -> Table:
    """Describe one variant over its seeds, beside the control's cells of the same seeds."""
    if not cells:
        return {"seeds": []}
    curves = [cell.curve for cell in cells]
    reached = {level: [steps_to(curve, level) for curve in curves] for level in reach}
    measures = sorted({measure for cell in cells for measure in cell.success})
    return {
        "seeds": [cell.cell.seed for cell in cells],
        "band": asdict(band(curves)),
        "area": _over_seeds([area(curve, end) for curve in curves]),
        "environment_steps": _over_seeds([cell.environment_steps for cell in cells]),
        "reach": {
            f"{level:g}": {"median": median_steps(steps), "seeds_reached": sum(s is not None for s in steps)}
            for level, steps in reached.items()
        },
        "beside_control": _beside(cells, controls, end),
        "success": {
            "_".join(m): _over_seeds([_level(cell, m) for cell in cells if m in cell.success]) for m in measures
        },
        "behaviour": {name: _known_mean([cell.behaviour[name] for cell in cells]) for name in BEHAVIOUR},
        "training": {name: _known_mean([cell.training.get(name) for cell in cells]) for name in TRAINING},
        "credit": _credit(cells),
        "phases": {
            name: _known_mean([cell.phases.get(name) for cell in cells])
            for name in sorted({name for cell in cells for name in cell.phases})
        },
        "phase_bands": {
            name: asdict(band(known))
            for name in PHASES
            if (known := [cell.phase_curves[name] for cell in cells if name in cell.phase_curves])
        },
        "outcomes": _outcomes(cells),
        "paraphrase_drop": {decoding: _drop(cells, decoding) for decoding in DECODINGS},
        "alarms": dict(sorted(Counter(name for cell in cells for name in cell.alarms).items())),
        "seconds": round(fmean(cell.seconds for cell in cells), 1),
    }


def _beside(cells: Sequence[CellResult], controls: Sequence[CellResult], end: float) -> Table | None:
    """Compare the mean curves of a variant and the control over the seeds that both have; None without one.

    `level` is where the control's mean curve stands after `end` environment steps, `steps` and `control_steps` are the
    first crossings of it. Of mean curves: a seed's own first crossing is early by luck wherever its curve is rough.
    """
    both = {cell.cell.seed for cell in cells} & {cell.cell.seed for cell in controls}
    if not both:
        return None
    mine, theirs = ([cell.curve for cell in side if cell.cell.seed in both] for side in (cells, controls))
    shown = band(theirs)
    control = _mean_curve(shown)
    level = value_at(control, end)
    return {
        "seeds": sorted(both),
        "level": _round(level),
        "steps": _round(steps_to(_mean_curve(band(mine)), level - _TIE)),
        "control_steps": _round(steps_to(control, level - _TIE)),
        "band": asdict(shown),
    }


def _drop(cells: Sequence[CellResult], decoding: str) -> Table | None:
    """Return what asking in other words costs: `paraphrase` minus the `test` task that it rewords, over (seed, task).

    A reworded task keeps the number in its id; None where no cell has both.
    """
    test, paraphrase = [], []
    for cell in cells:
        asked = {_number(name): share for name, share in cell.success.get(("test", decoding), {}).items()}
        for name, share in cell.success.get(("paraphrase", decoding), {}).items():
            if _number(name) in asked:
                test.append(asked[_number(name)])
                paraphrase.append(share)
    return _gain(test, paraphrase) if test else None


def _number(task_id: str) -> str:
    return task_id.partition("-")[2].partition("-")[0]


def _critic(cells: Sequence[CellResult]) -> Table:
    """Return the sibling critic's correlations over seeds; all variants of a seed share one."""
    by_seed = {cell.cell.seed: cell.critic for cell in cells if cell.critic}
    known = {name: [value for one in by_seed.values() if (value := one.get(name)) is not None] for name in CRITIC}
    return {name: _over_seeds(values) for name, values in known.items() if values}


def _outcomes(cells: Sequence[CellResult]) -> Table:
    """Average how successes and failures are credited over the seeds: moment -> outcome -> numbers."""
    found: Table = {}
    for moment in sorted({moment for cell in cells for moment in cell.outcomes}):
        seen: dict[str, list[Numbers]] = {name: [] for name in OUTCOMES}
        for cell in cells:
            for name, numbers in cell.outcomes.get(moment, {}).items():
                seen[name].append(numbers)
        found[moment] = {
            outcome: {name: _known_mean([one[name] for one in many]) for name in sorted(many[0])}
            for outcome, many in seen.items()
            if many
        }
    return found


def _mean_curve(shown: Band) -> Curve:
    return Curve(shown.x, shown.mean)


def _credit(cells: Sequence[CellResult]) -> Table:
    """Average the credit scores over seeds: moment -> phase -> score."""
    found: Table = {}
    for moment in sorted({moment for cell in cells for moment in cell.credit}):
        moments = [cell.credit[moment] for cell in cells]
        phases = sorted({phase for one in moments for phase in one.scores})
        found[moment] = {
            phase: {
                name: _known_mean([getattr(one.scores[phase], name) for one in moments if phase in one.scores])
                for name in ("steps", "rank_correlation", "sign_agreement", "key_recall")
            }
            | {
                "weight": _known_mean([one.weight.get(phase) for one in moments]),
                "credited": _known_mean([one.credited for one in moments]),
                "granularity": _known_mean([one.granularity.get(phase) for one in moments]),
                "coarser": _known_mean([one.coarser for one in moments]) if phase == "all" else None,
            }
            for phase in phases
        }
    return found


def _comparisons(cells: Sequence[CellResult], control: str, variants: Sequence[str], end: float) -> Table:
    """Return measure -> variant -> unit -> gain, with Holm's correction over the variants."""
    by = {(cell.cell.variant, cell.cell.seed): cell for cell in cells}
    measures = sorted({measure for cell in cells for measure in cell.success})
    found: Table = {}
    for measure in measures:
        found["_".join(measure)] = _against(by, control, variants, partial(_of_measure, measure))
    found["area"] = _against(by, control, variants, lambda cell: {"area": area(cell.curve, end)})
    for rows in found.values():
        for unit in UNITS:
            tested = [name for name in rows if rows[name].get(unit)]
            adjusted = statistics.holm([rows[name][unit]["p_value"] for name in tested])
            for name, p_value in zip(tested, adjusted, strict=True):
                rows[name][unit]["p_holm"] = round(p_value, 6)
    return found


def _of_measure(measure: Measure, cell: CellResult) -> Mapping[str, float]:
    return cell.success.get(measure, {})


def _against(
    cells: Mapping[tuple[str, int], CellResult],
    control: str,
    variants: Sequence[str],
    read: Callable[[CellResult], Mapping[str, float]],
) -> Table:
    """Return variant -> unit -> paired gain over the control, on the seeds that both have finished."""
    rows: Table = {}
    for name in variants:
        seeds = [seed for v, seed in cells if v == name and (control, seed) in cells]
        tables = [(read(cells[control, seed]), read(cells[name, seed])) for seed in seeds]
        tables = [(before, after) for before, after in tables if before and before.keys() == after.keys()]
        if name == control or not tables:
            continue
        before = [list(table.values()) for table, _ in tables]
        after = [[other[key] for key in table] for table, other in tables]
        rows[name] = {"seeds": len(tables), "over_seeds": _gain([fmean(b) for b in before], [fmean(a) for a in after])}
        if len(before[0]) > 1:
            rows[name]["over_tasks"] = _gain([*chain(*before)], [*chain(*after)])
    return rows


def _gain(before: Sequence[float], after: Sequence[float]) -> Table:
    """Return the paired gain, and the smallest one that so many pairs would probably have shown."""
    gain = statistics.paired_gain(before, after, confidence=CONFIDENCE, resamples=RESAMPLES, seed=SEED)
    deviation = float(np.std(np.subtract(after, before), ddof=1)) if len(before) > 1 else None
    # where no pair differs there is no deviation to go by
    detectable = statistics.minimum_detectable_effect(len(before), deviation=deviation) if deviation else None
    record = asdict(gain)
    record["pairs"] = record.pop("tasks")
    table: Table = _round({**record, "minimum_detectable_effect": detectable})
    return table


def _level(result: CellResult, measure: Measure) -> float:
    return fmean(result.success[measure].values())


def _over_seeds(values: Sequence[float]) -> Table:
    spread = stdev(values) if len(values) > 1 else None
    table: Table = _round({"mean": fmean(values), "low": min(values), "high": max(values), "deviation": spread})
    return table


def _known_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fmean(known), 6) if known else None


def _round(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _round(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_round(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value
