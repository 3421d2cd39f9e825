"""What the sections of the report say: facts in, plain values and figures for the template out.

A section whose data is not there says which stage has to run, or why it failed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from geartrain.reporting.facts import Facts
from geartrain.reporting.graph import STAGES, Node, draw
from geartrain.reporting.transcript import choose_pair, printable
from geartrain.wording import duration, p_value, percent, points

Context = dict[str, Any]
SPLITS = ("test", "ood", "paraphrase")
DECODINGS = ("sampled", "greedy")


def missing(facts: Facts, stage: str) -> Context:
    """Return the note of a section that lacks a stage's output."""
    if stage in facts.failures:
        return {"text": f"Stage {stage} failed: {printable(facts.failures[stage], 400)}", "failed": True}
    return {"text": "Not there yet.", "stage": stage, "failed": False}


def source(facts: Facts, stage: str, sample: str) -> Context:
    """Return the line under a figure: seed, sample size, command."""
    return {"seed": facts.parameter(stage, "seed"), "sample": sample, "command": f"geartrain stage {stage}"}


def headline(facts: Facts) -> Context:
    """Return title, tiles and verdict."""
    recipe = facts.parameter("policy", "policy", "recipe")
    context: Context = {"recipe": recipe, "tiles": [], "title": "A run in progress", "verdict": verdict(facts)}
    context["withdrawn"] = withdrawal(facts)
    test = (facts.tables or {}).get("splits", {}).get("test")
    if not test:
        context["note"] = missing(facts, "evaluation")
        return context
    before, after = (percent(test["sampled"][role]["success"]["estimate"]) for role in ("before", "after"))
    gain = test["sampled"]["gain"]
    if gain["low"] > 0:
        context["title"] = f"Test success rose from {before} to {after}"
    elif gain["high"] < 0:
        context["title"] = f"Test success fell from {before} to {after}"
    else:
        context["title"] = f"No gain shown: {before} before, {after} after"
    context["tiles"] = [_tile(decoding, test[decoding], facts) for decoding in DECODINGS]
    return context


def withdrawal(facts: Facts) -> Context | None:
    """Return the note that says what must not be used any more, or None."""
    if not facts.withdrawn:
        return None
    reasons = "; ".join(dict.fromkeys(facts.withdrawn.values()))
    stages = ", ".join(stage for stage in STAGES if stage in facts.withdrawn)
    return {"text": f"Withdrawn: {printable(reasons, 800)}. It reached {stages}: do not use them.", "failed": True}


def verdict(facts: Facts) -> Context | None:
    """Return the gate's decision and every check, or None before it."""
    if facts.decision is None:
        return None
    checks = facts.decision.get("checks", [])
    failed = [check for check in checks if not check["passed"]]
    return {
        "promoted": bool(facts.decision.get("promoted")),
        "signed_by": facts.signed_by,
        "checks": checks,
        "failed": [check["reason"] for check in failed],
        "names": [check["name"].replace("_", " ") for check in failed],
    }


def pipeline(facts: Facts) -> Context:
    """Return the drawing of the stages, their times, and what each used."""
    nodes, rows = {}, []
    longest = max((used.get("seconds", 0.0) for used in facts.resources.values()), default=0.0) or 1.0
    for stage in STAGES:
        used = facts.resources.get(stage, {})
        state = "done" if stage in facts.manifests else "failed" if stage in facts.failures else "missing"
        time = duration(used["seconds"]) if "seconds" in used else {"failed": "failed"}.get(state, "not run")
        time = "done" if state == "done" and "seconds" not in used else time
        nodes[stage] = Node(stage.replace("_", " "), time, _outcome(facts, stage), state)
        rows.append(
            {
                "stage": stage.replace("_", " "),
                "state": state,
                "time": time,
                "share": round(100 * used.get("seconds", 0.0) / longest, 1),
                "cpu": duration(used["cpu_seconds"]) if "cpu_seconds" in used else "",
                "memory": f"{used['peak_memory_bytes'] / 2**30:.2f} GiB" if "peak_memory_bytes" in used else "",
            }
        )
    seconds = sum(used.get("seconds", 0.0) for used in facts.resources.values())
    return {"graph": draw(nodes), "rows": rows, "total": duration(seconds), "failures": dict(facts.failures)}


def episode(facts: Facts) -> Context:
    """Return one task before and after, with the credit of every turn."""
    pair = choose_pair(facts.credit)
    if pair is None:
        return {"note": missing(facts, "policy")}
    return {"pair": pair, "source": source(facts, "policy", "one task, one episode each")}


def lineage(facts: Facts) -> Context:
    """Return every artifact with its digest and inputs, and the parameters of all stages."""
    rows = [
        {
            "stage": stage.replace("_", " "),
            "folder": facts.folders[stage].as_posix(),
            "digest": manifest.digest,
            "inputs": ", ".join(f"{name} {digest[:10]}" for name, digest in sorted(manifest.inputs.items())),
        }
        for stage in STAGES
        if (manifest := facts.manifests.get(stage))
    ]
    codes = sorted({manifest.code for manifest in facts.manifests.values()})
    parameters = {stage: dict(facts.manifests[stage].parameters) for stage in STAGES if stage in facts.manifests}
    return {"rows": rows, "codes": codes, "parameters": yaml.safe_dump(parameters, sort_keys=False)}


def _tile(decoding: str, table: Mapping[str, Any], facts: Facts) -> Context:
    gain = table["gain"]
    settings = (facts.tables or {}).get("settings", {})
    how = f"temperature {settings.get('temperature', 1):g}" if decoding == "sampled" else "likeliest token"
    return {
        "title": f"Test success, {decoding}",
        "how": how,
        "before": percent(table["before"]["success"]["estimate"]),
        "after": percent(table["after"]["success"]["estimate"]),
        "gain": points(gain),
        "p": p_value(gain["p_value"]),
        "tasks": gain["tasks"],
        "state": "good" if gain["low"] > 0 else "bad" if gain["high"] < 0 else "",
    }


def _outcome(facts: Facts, stage: str) -> str:
    """Return a few words on what a stage gave."""
    found = facts.metrics(stage)
    test = (facts.tables or {}).get("splits", {}).get("test", {}).get("sampled")
    texts: Mapping[str, Callable[[], str]] = {
        "tasks": lambda: f"{sum(found['tasks'].values())} tasks",
        "warm_start": lambda: f"loss {found['last_loss']:.2f}",
        "collect": lambda: f"success {percent(found['success'])}",
        "preferences": lambda: f"{sum(found['pairs_by_split'].values())} pairs",
        "reward_model": lambda: f"accuracy {percent(found['validation_accuracy'])}",
        "critic": lambda: f"r = {found['correlation']:.2f}",
        "policy": lambda: f"val {percent(found['val_sampled'])}",
        "evaluation": lambda: f"test {percent(test['after']['success']['estimate'])}" if test else "",
        "promotion": lambda: "promoted" if found["promoted"] else "not promoted",
    }
    try:
        return texts[stage]()
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""
