"""What a person should know about a set of preference pairs before a model is trained on it."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from geartrain.preferences.pairs import SIBLINGS, SPLITS, Pair
from geartrain.preferences.siblings import Built


def quality_report(built: Built) -> dict[str, Any]:
    """Return counts, margins, balance, length bias and losses; JSON-ready and deterministic.

    Forged pairs are counted apart; everything else speaks of siblings.
    """
    pairs = [pair for pair in built.pairs if pair.origin == SIBLINGS]
    forged = [pair for pair in built.pairs if pair.origin != SIBLINGS]
    per_task = Counter(pair.task_id for pair in pairs)
    reasons = Counter(entry["reason"] for entry in built.quarantined)
    return {
        "records": built.records,
        "quarantined": dict(sorted(reasons.items())),
        "dropped_pairs": dict(sorted((name, count) for name, count in built.dropped.items() if count)),
        "pairs": len(pairs),
        "pairs_by_split": {split: sum(pair.split == split for pair in pairs) for split in SPLITS},
        "pairs_by_family": dict(sorted(Counter(pair.family for pair in pairs).items())),
        "forged_by_split": {
            split: dict(sorted(Counter(pair.origin for pair in forged if pair.split == split).items()))
            for split in SPLITS
        },
        "tasks": len(per_task),
        "pairs_per_task": {str(count): tasks for count, tasks in sorted(Counter(per_task.values()).items())},
        "margin": _spread([pair.margin for pair in pairs]),
        "length": length_bias(pairs),
        "prompts_in_both_splits": len(_prompts(pairs, "train") & _prompts(pairs, "validation")),
    }


def length_bias(pairs: Sequence[Pair]) -> dict[str, float | None]:
    """Return how far length alone tells the chosen from the rejected.

    `chosen_longer`: share of pairs (a tie counts one half); 0.5 is no bias.
    `margin_correlation`: Pearson correlation of the length difference in
    characters with the margin. None where it is undefined.
    """
    differences = [float(len(pair.chosen) - len(pair.rejected)) for pair in pairs]
    if not differences:
        return {"chosen_longer": None, "mean_difference": None, "margin_correlation": None}
    longer = fmean([float(d > 0) + 0.5 * float(d == 0) for d in differences])
    return {
        "chosen_longer": round(longer, 4),
        "mean_difference": round(fmean(differences), 2),
        "margin_correlation": _correlation(differences, [pair.margin for pair in pairs]),
    }


def to_markdown(report: dict[str, Any]) -> str:
    """Return the report as a page of Markdown."""
    lines = ["# Preference pairs", "", "| what | value |", "| --- | --- |"]
    counts = ("records", "pairs", "tasks", "prompts_in_both_splits")
    lines += [f"| {name.replace('_', ' ')} | {report[name]} |" for name in counts]
    lines += [f"| pairs, {split} | {count} |" for split, count in report["pairs_by_split"].items()]
    lines += [f"| forged pairs, {split} | {sum(c.values())} |" for split, c in report["forged_by_split"].items()]
    lines += [f"| margin, {name} | {value} |" for name, value in report["margin"].items()]
    lines += [f"| length: {name.replace('_', ' ')} | {value} |" for name, value in report["length"].items()]
    for title, key in (
        ("Pairs by family", "pairs_by_family"),
        ("Tasks by number of pairs", "pairs_per_task"),
        ("Quarantined records", "quarantined"),
        ("Pairs not made", "dropped_pairs"),
    ):
        lines += ["", f"## {title}", "", "| | count |", "| --- | --- |"]
        lines += [f"| {name} | {count} |" for name, count in report[key].items()] or ["| none | 0 |"]
    return "\n".join(lines) + "\n"


def _prompts(pairs: Sequence[Pair], split: str) -> set[str]:
    return {pair.prompt for pair in pairs if pair.split == split}


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"min": None, "median": None, "max": None}
    return {"min": round(min(values), 4), "median": round(median(values), 4), "max": round(max(values), 4)}


def _correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    mean_1, mean_2 = fmean(first), fmean(second)
    scale = sum((x - mean_1) ** 2 for x in first) * sum((y - mean_2) ** 2 for y in second)
    if scale == 0:
        return None
    shared = sum((x - mean_1) * (y - mean_2) for x, y in zip(first, second, strict=True))
    return round(shared / math.sqrt(scale), 4)
