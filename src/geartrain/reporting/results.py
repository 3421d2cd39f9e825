"""What the report says about the evaluation: both models on every split, by family, and how they worked."""

from collections.abc import Mapping
from typing import Any

from geartrain.reporting.facts import Facts
from geartrain.reporting.figures import both_widths, comparison_figure, families_figure
from geartrain.reporting.sections import DECODINGS, SPLITS, Context, missing, source
from geartrain.wording import p_value, percent, points, rate

SPLIT_NAMES = {
    "test": "Test: held-out tasks",
    "ood": "Out of distribution: families never trained on",
    "paraphrase": "Paraphrase: test tasks in other words",
}


QUALITY = (
    ("Sub-goals reached", "progress", True),
    ("Sub-goals reached at first attempt", "key_steps", True),
    ("Steps per episode", "steps", False),
    ("Steps per success", "steps_of_successes", False),
    ("Necessary / taken steps of successes", "necessary_steps", True),
    ("Invalid calls", "invalid_calls", True),
    ("Redundant calls", "redundant_calls", True),
    ("Successes that used no tool", "zero_tool_successes", True),
    ("Episodes cut by a limit", "truncated", True),
)


def results(facts: Facts) -> Context:
    """Return the comparison on all splits, the families and the quality table."""
    splits = (facts.tables or {}).get("splits")
    if not splits:
        return {"note": missing(facts, "evaluation")}
    pairs = [(split, decoding) for split in SPLITS if split in splits for decoding in DECODINGS]
    rows = [
        (f"{split}, {decoding}", table["before"]["success"], table["after"]["success"], table["gain"])
        for split, decoding in pairs
        for table in [splits[split][decoding]]
    ]
    context: Context = {
        "figure": both_widths(
            lambda width, name: comparison_figure(
                rows, width=width, name=f"comparison-{name}", label="Success before and after, all splits"
            )
        ),
        "table": [_result_row(split, decoding, splits[split][decoding]) for split, decoding in pairs],
        "quality": _quality(splits),
        "source": source(facts, "evaluation", _sizes(facts, splits)),
        "settings": (facts.tables or {}).get("settings", {}),
        "probes": (facts.tables or {}).get("probes", {}),
    }
    families = splits.get("test", {}).get("sampled", {}).get("families")
    if families:
        context["families"] = both_widths(
            lambda width, name: families_figure(
                families, width=width, name=f"families-{name}", label="Test success by task family"
            )
        )
        test = splits["test"]["sampled"]["after"]
        context["families_source"] = source(facts, "evaluation", f"{test['tasks']} tasks, {test['episodes']} episodes")
    return context


def _result_row(split: str, decoding: str, table: Mapping[str, Any]) -> Context:
    gain = table["gain"]
    k = max(map(int, table["after"]["pass_at_k"]))
    return {
        "group": SPLIT_NAMES[split] if decoding == DECODINGS[0] else None,
        "decoding": decoding,
        "tasks": table["after"]["tasks"],
        "before": rate(table["before"]["success"]),
        "after": rate(table["after"]["success"]),
        "gain": points(gain),
        "p": p_value(gain["p_value"]),
        "pass_at": f"{percent(table['after']['pass_at_k'][str(k)])} / {percent(table['after']['pass_hat_k'][str(k)])}"
        if k > 1
        else "",
        "k": k,
        "detectable": f"{100 * gain['minimum_detectable_effect']:.1f}",
    }


def _quality(splits: Mapping[str, Any]) -> list[Context]:
    test = splits.get("test")
    if not test:
        return []
    rows = []
    for label, key, share in QUALITY:
        cells = [test[decoding][role].get(key) for decoding in DECODINGS for role in ("before", "after")]
        shown = ["n/a" if cell is None else percent(cell, 1) if share else f"{cell:.2f}" for cell in cells]
        rows.append({"label": label, "cells": shown})
    return rows


def _sizes(facts: Facts, splits: Mapping[str, Any]) -> str:
    samples = (facts.tables or {}).get("settings", {}).get("samples", "?")
    sizes = ", ".join(f"{splits[s]['sampled']['after']['tasks']} {s}" for s in SPLITS if s in splits)
    return f"{sizes} tasks; 1 greedy and {samples} sampled episodes per task and model"
