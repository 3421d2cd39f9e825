"""Findings as people read them: one Markdown file, and the same numbers as CSV, a row per environment and variant."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from geartrain.rollouts.suite import DECODINGS
from geartrain.study.credit_tables import exact_credit, outcomes, phases, weights
from geartrain.study.markdown import Table, interval, number, points, spread
from geartrain.wording import table

MAIN = "test_sampled"
OTHERS = ("test_greedy", "paraphrase_sampled", "paraphrase_greedy", "ood_sampled", "ood_greedy")
BEHAVIOUR = {
    "steps": "turns per episode",
    "invalid_calls": "invalid calls",
    "redundant_calls": "repeated calls",
    "key_steps": "sub-goals at the first attempt",
    "truncated": "cut short",
    "zero_tool_successes": "successes without a tool",
}
TRAINING = {
    "entropy_early": "entropy early",
    "entropy_middle": "entropy middle",
    "entropy_late": "entropy late",
}
NOTES = """\
- Success is that of the weights that were best on `val`; area and steps are those of the learning curve.
- Over tasks: every (seed, task) is a pair; it says whether these trained models differ. Over seeds: every seed is a
  pair; it says whether a new run would. The smallest p-value that n seeds can give is 2 / 2^n: 0.06 of five.
- Intervals: 95 %, bootstrap of paired differences. p: permutation within pairs, Holm's correction over the variants.
- "could see": the gain that so many pairs would show with power 0.8, at the spread that they have.
- Steps are agent turns played in training. The median is over seeds; seeds that never got there count as above all
  others (censored), and where they are the median, all that is known is that it takes more than was played.
- Steps to the control's end: where the mean curve over seeds first reaches the height at which the control's ends, and
  that as a share of the steps after which the control's own first does.
- Alarms: in how many seeds each was raised during training: held_out (success on `val` halved, by ten points or more),
  tools (calls that no tool takes), zero_tool (successes without one), turns and tokens (length), entropy; mixture
  (weights of grains stay even), granularity (the same for all turns).
- Paraphrase against test: points that the same tasks lose when asked in other words, over (seed, task).
- Weights in training: quantiles of W over tokens; Spearman over turns of W with the trajectory's advantage, the turn's
  own reward and the ratio policy / teacher (where the advantage is above 0, and below), and of A x W with later reward.
- Credit of successes and failures: of siblings that differ in reward. Largest: mean over episodes of the largest weight
  of a turn; where siblings part: mean weight of turns in which they stood in the same state and did different things.
- Planning coarser: the probability that a planning turn has a higher granularity than a doing turn; 0.5 is chance.
- Area: mean height of the learning curve over the environment steps that every cell has played."""


def markdown(results: Table) -> str:
    """Return the whole table file."""
    study = results["study"]
    parts = [
        "# Study",
        f"Curve: `{study['curve']}`. Control: `{study['control']}`. Seeds: {_listed(study['seeds'])}. "
        f"Profile: `{study['profile']}`.",
    ]
    if len(results["code"]) > 1:
        versions = _listed([f"`{code[:12]}`" for code in results["code"]])
        parts.append(f"Cells were made by {len(results['code'])} versions of the code: {versions}.")
    for name, environment in results["environments"].items():
        parts += _environment(name, environment, study)
    if results["missing"]:
        parts += [
            "## Not finished",
            "\n".join(f"- `{cell}`: {' '.join(why.split())}" for cell, why in results["missing"].items()),
        ]
    sizes = ", ".join(f"{tasks} tasks {points(value)}" for tasks, value in results["detectable"].items())
    detectable = (
        f"- A paired comparison of one run each, with one task in four changing its outcome, could see: {sizes} points."
    )
    return "\n\n".join([*parts, "## How to read it", f"{NOTES}\n{detectable}"]) + "\n"


def csv_text(results: Table) -> str:
    """Return one row per environment and variant; what is not known is empty."""
    rows = [
        {"environment": environment, "variant": variant, **_flat(table, variant, results)}
        for environment, table in results["environments"].items()
        for variant in table["variants"]
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _environment(name: str, environment: Table, study: Table) -> Iterator[str]:
    variants = {v: row for v, row in environment["variants"].items() if row["seeds"]}
    yield f"## {name}"
    if not variants:
        yield "Nothing is finished."
        return
    if environment["warnings"]:
        yield "\n".join(f"- **Cannot tell**: {warning}" for warning in environment["warnings"])
    control, compared = study["control"], environment["comparisons"]
    levels = [f"{level:g}" for level in study["reach"]]
    yield "### Success on `test`, sampled, and the way there"
    head = ["variant", "seeds", "success", f"over {control}, by tasks", "by seeds", "area", "gain in area, by seeds"]
    head += [*(f"steps to {100 * float(level):g} %" for level in levels), f"steps to {control}'s end"]
    head += ["turns played", "s per cell"]
    rows = [
        [
            f"`{v}`",
            str(len(row["seeds"])),
            spread(row["success"].get(MAIN)),
            _gain(compared.get(MAIN, {}).get(v), "over_tasks"),
            _gain(compared.get(MAIN, {}).get(v), "over_seeds"),
            spread(row["area"]),
            _gain(compared["area"].get(v), "over_seeds"),
            *(_steps(row, level, environment, control) for level in levels),
            _steps_to_control(row, environment, control),
            f"{row['environment_steps']['mean']:,.0f}",
            f"{row['seconds']:.0f}",
        ]
        for v, row in variants.items()
    ]
    yield table(head, rows)
    yield "### Other splits: success, and points over the control by tasks"
    measures = [m for m in OTHERS if any(m in row["success"] for row in variants.values())]
    rows = [
        [
            f"`{v}`",
            *(_level_and_gain(row, compared.get(m, {}).get(v), m) for m in measures),
            *(interval(row["paraphrase_drop"][decoding]) for decoding in DECODINGS),
        ]
        for v, row in variants.items()
    ]
    dropped = [f"paraphrase against test, {decoding}" for decoding in DECODINGS]
    yield table(["variant", *(m.replace("_", ", ") for m in measures), *dropped], rows)
    yield "### How the agent works"
    head = ["variant", *BEHAVIOUR.values(), *TRAINING.values(), "alarms"]
    rows = [
        [
            f"`{v}`",
            *(number(row["behaviour"][k]) for k in BEHAVIOUR),
            *(number(row["training"][k]) for k in TRAINING),
            ", ".join(f"{name} {count}/{len(row['seeds'])}" for name, count in row["alarms"].items()),
        ]
        for v, row in variants.items()
    ]
    yield table(head, rows)
    yield from weights(variants)
    yield from phases(variants)
    yield from outcomes(variants, environment.get("critic", {}))
    yield from exact_credit(variants)


def _flat(table: Table, variant: str, results: Table) -> dict[str, Any]:
    row = table["variants"][variant]
    if not row["seeds"]:
        return {"seeds": 0}
    flat: dict[str, Any] = {"seeds": len(row["seeds"]), "seconds": row["seconds"]}
    flat["environment_steps"] = row["environment_steps"]["mean"]
    flat["area"] = row["area"]["mean"]
    flat["steps_to_control_level"] = (row["beside_control"] or {}).get("steps")
    for level, found in row["reach"].items():
        flat[f"steps_to_{level}"] = found["median"]
        flat[f"seeds_to_{level}"] = found["seeds_reached"]
    for measure, value in row["success"].items():
        flat[f"{measure}_success"] = value["mean"]
    for measure, compared in table["comparisons"].items():
        for unit, gain in compared.get(variant, {}).items():
            if isinstance(gain, Mapping):
                keys = ("estimate", "low", "high", "p_value", "p_holm", "minimum_detectable_effect")
                flat.update({f"{measure}_{unit}_{key}": gain[key] for key in keys})
    flat.update({name: row["behaviour"][name] for name in BEHAVIOUR})
    flat.update({f"training_{name}": value for name, value in row["training"].items()})
    flat |= {f"alarms_{name}": count for name, count in row["alarms"].items()}
    flat.update(row["phases"])
    for name, found in row["phase_bands"].items():
        flat |= {f"training_{name}_first": found["mean"][0], f"training_{name}_last": found["mean"][-1]}
    for decoding, drop in row["paraphrase_drop"].items():
        flat |= {f"paraphrase_drop_{decoding}_{key}": drop[key] for key in ("estimate", "low", "high") if drop}
    flat |= {f"critic_{name}": found["mean"] for name, found in table["critic"].items()}
    for moment, by_outcome in row["outcomes"].items():
        for outcome, numbers in by_outcome.items():
            flat |= {f"{outcome}_{moment}_{key}": value for key, value in numbers.items()}
    for moment, by_phase in row["credit"].items():
        for phase, score in by_phase.items():
            flat.update({f"credit_{moment}_{phase}_{key}": value for key, value in score.items()})
    return {name: "" if value is None else value for name, value in flat.items()}


def _steps(row: Table, level: str, environment: Table, control: str) -> str:
    found, seeds = row["reach"][level], len(row["seeds"])
    many = "" if found["seeds_reached"] == seeds else f" ({found['seeds_reached']} of {seeds} seeds)"
    if found["median"] is None:
        return f"> {row['band']['x'][-1]:,.0f}{many}"
    base = environment["variants"][control].get("reach", {}).get(level, {}).get("median")
    ratio = "" if not base or row is environment["variants"][control] else f", {found['median'] / base:.2f} x control"
    return f"{found['median']:,.0f}{ratio}{many}"


def _steps_to_control(row: Table, environment: Table, control: str) -> str:
    beside = row["beside_control"]
    if beside is None:
        return ""
    steps, base = beside["steps"], beside["control_steps"]
    if steps is None:
        return f"> {row['band']['x'][-1]:,.0f}"
    return f"{steps:,.0f}" + ("" if row is environment["variants"][control] or not base else f", {steps / base:.2f} x")


def _gain(row: Table | None, unit: str) -> str:
    gain = (row or {}).get(unit)
    if not gain:
        return ""
    seen = gain["minimum_detectable_effect"]
    could = "" if seen is None else f", could see {points(seen)}"
    return f"{interval(gain)}, p {gain['p_holm']:.3f}{could}"


def _level_and_gain(row: Table, compared: Table | None, measure: str) -> str:
    level = row["success"].get(measure)
    if level is None:
        return ""
    gain = interval((compared or {}).get("over_tasks"))
    return f"{100 * level['mean']:.1f} %" + (f", {gain}" if gain else "")


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
