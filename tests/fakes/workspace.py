"""A finished workspace of made-up numbers: what the report is built from, without training anything."""

import json
import math

import numpy as np

from geartrain import artifacts
from geartrain.lineage import events
from geartrain.lineage.events import Data
from geartrain.metrics import flatten

FOLDERS = {
    "tasks": "data/tasks",
    "warm_start": "models/warm_start",
    "collect": "data/rollouts",
    "preferences": "data/preferences",
    "reward_model": "models/reward_model",
    "critic": "models/critic",
    "policy": "models/policy",
    "evaluation": "reports/evaluation",
    "promotion": "models/promoted",
}
INPUTS = {
    "tasks": (),
    "warm_start": ("tasks",),
    "collect": ("tasks", "warm_start"),
    "preferences": ("tasks", "collect"),
    "reward_model": ("preferences",),
    "critic": ("warm_start", "collect", "preferences"),
    "policy": ("tasks", "warm_start", "preferences", "reward_model", "critic"),
    "evaluation": ("tasks", "warm_start", "policy"),
    "promotion": ("policy", "evaluation"),
}
SECONDS = dict(zip(FOLDERS, (4.1, 92.4, 41.7, 1.9, 24.6, 11.3, 236.8, 63.2, 0.4), strict=True))
FAMILIES = ("comparison", "drill_down", "ranking", "series", "share", "two_reports")
METRICS = {
    "tasks": {"tasks": {"train": 480, "val": 60, "test": 120, "ood": 48, "paraphrase": 120}},
    "warm_start": {"demonstrations": 2400, "expert_success": 0.6121, "parameters": 918_784, "last_loss": 0.2114},
    "collect": {"trajectories": 576, "success": 0.3125, "mixed_groups": 58, "groups": 96, "invalid_calls": 0.0712},
    "preferences": {"records": 576, "pairs_by_split": {"train": 224, "validation": 57}, "tasks": 71},
    "reward_model": {"validation_accuracy": 0.8246, "length_baseline_accuracy": 0.5614, "trusted": True},
    "critic": {"correlation": 0.4127, "correlation_contrast": 0.3344, "correlation_shuffled": 0.0121},
    "policy": {"best_iteration": 25, "val_sampled": 0.58, "val_greedy": 0.62},
    "evaluation": {},
    "promotion": {"promoted": 1},
}


def build(root, *, stages=tuple(FOLDERS), promoted=True, actions=(), failed=None):
    """Write a workspace with the given stages finished; `actions` replace the first texts written by the model."""
    digests = {}
    for stage in stages:
        folder = root / FOLDERS[stage]
        folder.mkdir(parents=True)
        write_contents(stage, folder, promoted, actions)
        parameters = {"seed": 7, "threads": 2, **PARAMETERS.get(stage, {})}
        inputs = {name: digests[name] for name in INPUTS[stage] if name in digests}
        metrics = {**METRICS[stage], **({} if promoted or stage != "promotion" else {"promoted": 0})}
        manifest = artifacts.write_manifest(folder, stage=stage, parameters=parameters, inputs=inputs, metrics=metrics)
        digests[stage] = manifest.digest
        tell(root, stage, manifest)
    if failed:
        log(root, "FAIL", failed, facets={"error": {"type": "UserError", "message": "the loss is <not> finite"}})
    return root


def tell(root, stage, manifest):
    """Record the run that made an artifact, as a stage does."""
    inputs = [data(name, digest) for name, digest in manifest.inputs.items()]
    if stage == "tasks":
        inputs.append(
            Data("environment.source", "5" * 64, "source", "data/raw/x.json", "Freely & <so>", "pkg:pypi/x@1")
        )
    facets = {"parameters": manifest.parameters, "stage": {"name": stage, "key": "7" * 64, "attempt": 1}}
    run_id = events.new_run_id()
    log(root, "START", stage, run_id, inputs, facets=facets)
    facets |= {**resources(stage), "metrics": {"values": flatten(manifest.metrics)}}
    told = artifacts.manifest_sha256(root / FOLDERS[stage])
    log(root, "COMPLETE", stage, run_id, inputs, [data(stage, manifest.digest, told)], facets)


def data(stage, digest, manifest=""):
    kind = {"data": "dataset", "models": "model", "reports": "report"}[FOLDERS[stage].partition("/")[0]]
    return Data(stage, digest, kind, FOLDERS[stage], manifest=manifest)


def resources(stage):
    seconds = SECONDS[stage]
    used = {"seconds": seconds, "cpu_seconds": round(seconds * 1.7, 1), "peak_memory_bytes": int(1.2 * 2**30)}
    return {"resources": used}


def log(root, kind, stage, run_id=None, inputs=(), outputs=(), facets=None):
    told = {"run_id": run_id or events.new_run_id(), "job": stage, "inputs": inputs, "outputs": outputs}
    events.emit(root / ".geartrain" / "lineage", kind, **told, facets=facets)


def write_contents(stage, folder, promoted, actions):
    (folder / "content.txt").write_text(stage)
    if stage == "evaluation":
        artifacts.write_json(folder / "tables.json", tables(0.27 if promoted else 0.01))
    elif stage == "promotion":
        artifacts.write_json(folder / "decision.json", decision(promoted))
    elif stage == "warm_start":
        write_lines(folder / "history.jsonl", warm_history())
    elif stage == "policy":
        write_lines(folder / "history.jsonl", policy_history())
        for role in ("before", "after"):
            write_lines(folder / f"credit_{role}.jsonl", credit(role, actions))


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


PARAMETERS = {
    "policy": {"policy": {"recipe": "gear_a_sgcd", "tasks_per_iteration": 16, "siblings": 8}},
    "evaluation": {"evaluation": {"samples": 2}},
}


def warm_history():
    noise = np.random.default_rng(0).normal(0, 0.06, 260)
    return [{"step": i, "loss": 0.2 + 5.5 * math.exp(-i / 28) + float(noise[i]) * 0.4} for i in range(260)]


def policy_history():
    random = np.random.default_rng(1)
    history = []
    for i in range(30):
        rise = 1 - math.exp(-i / 11)
        noise = random.normal(0, 1, 8)
        record = {
            "iteration": i,
            "success": 0.31 + 0.28 * rise + 0.025 * noise[0],
            "reward": 0.38 + 0.3 * rise + 0.03 * noise[1],
            "kl": 0.002 + 0.045 * rise + 0.002 * abs(noise[2]),
            "entropy": 0.21 - 0.09 * rise + 0.006 * noise[3],
            "clip_fraction": 0.012 + 0.004 * abs(noise[4]),
            "gradient_norm": 0.42 + 0.12 * abs(noise[5]),
            "invalid_calls": 0.071 - 0.05 * rise + 0.004 * abs(noise[6]),
            "turns": 8.9 - 1.1 * rise + 0.1 * noise[7],
            "weight_spread": 0.05 + 0.16 * rise,
            "grain_global": 1 / 3 - 0.1 * rise,
            "grain_step": 1 / 3 + 0.18 * rise,
            "grain_token": 1 / 3 - 0.08 * rise,
        }
        if (i + 1) % 5 == 0:
            record |= {"val_sampled": 0.33 + 0.26 * rise, "val_greedy": 0.37 + 0.27 * rise}
        if i == 0:
            record |= {"start_val_sampled": 0.32, "start_val_greedy": 0.35}
        history.append({k: float(v) if k != "iteration" else v for k, v in record.items()})
    return history


def interval(estimate, width=0.075):
    return {"estimate": estimate, "low": max(-1.0, estimate - width), "high": min(1.0, estimate + width)}


def side(success, tasks, samples, better):
    at = {str(k): min(1.0, success + 0.07 * (k - 1)) for k in range(1, samples + 1)}
    hat = {str(k): max(0.0, success - 0.08 * (k - 1)) for k in range(1, samples + 1)}
    quality = {
        "progress": 0.58 + better * 0.2,
        "key_steps": 0.49 + better * 0.22,
        "steps": 9.1 - better,
        "steps_of_successes": 7.4 - 0.6 * better,
        "necessary_steps": 0.86 + 0.07 * better,
        "invalid_calls": 0.071 - 0.045 * better,
        "redundant_calls": 0.06 - 0.03 * better,
        "zero_tool_successes": 0.0,
        "truncated": 0.03 - 0.02 * better,
    }
    counts = {"tasks": tasks, "episodes": tasks * samples}
    return {**counts, "success": interval(success), "pass_at_k": at, "pass_hat_k": hat, **quality}


def tables(gain):
    splits = {}
    for split, tasks, start, kept in (
        ("test", 120, 0.31, 1.0), ("ood", 48, 0.22, 0.45), ("paraphrase", 120, 0.29, 0.9),
    ):  # fmt: skip
        splits[split] = {
            decoding: {
                "before": side(start + extra, tasks, samples, 0),
                "after": side(start + extra + gain * kept, tasks, samples, 1),
                "gain": {
                    **interval(gain * kept, 0.07),
                    "p_value": 0.0004 if gain * kept > 0.1 else 0.31,
                    "tasks": tasks,
                    "deviation": 0.4,
                    "minimum_detectable_effect": 0.082,
                },
                "families": families(tasks, gain * kept),
            }
            for decoding, samples, extra in (("greedy", 1, 0.04), ("sampled", 2, 0.0))
        }
    probes = {name: {"episodes": 168, "successes": 0, "passed_tasks": []} for name in ("silent", "blank", "spam")}
    settings = {"seed": 7, "confidence": 0.95, "resamples": 10_000, "samples": 2, "temperature": 1.0}
    return {"splits": splits, "probes": probes, "settings": settings, "models": {"before": "a" * 64, "after": "b" * 64}}


def families(tasks, gain):
    return [
        {
            "family": family,
            "tasks": tasks // len(FAMILIES),
            "before": clipped(0.18 + 0.05 * i, 0.14),
            "after": clipped(0.18 + 0.05 * i + gain * (0.6 + 0.15 * i), 0.14),
        }
        for i, family in enumerate(FAMILIES)
    ]


def clipped(estimate, width):
    return {"estimate": estimate, "low": max(0.0, estimate - width), "high": min(1.0, estimate + width)}


def decision(promoted):
    value = 0.2 if promoted else -0.06
    reason = f"lower end of the interval of the sampled test gain: {value:.4f} {'is' if promoted else 'is not'} > 0"
    checks = [
        {"name": "gain_low", "value": value, "comparison": ">", "threshold": 0.0, "passed": promoted, "reason": reason},
        {
            "name": "invalid_calls", "value": 0.026, "comparison": "<=", "threshold": 0.2, "passed": True,
            "reason": "share of invalid calls in test episodes: 0.0260 is <= 0.2",
        },
    ]  # fmt: skip
    return {"promoted": promoted, "candidate": "b" * 64, "evaluation": "c" * 64, "checks": checks}


def credit(role, actions):
    """Two tasks: one that failed and then succeeds, one that never does."""
    good = role == "after"
    sql = "SELECT country, SUM(total) AS v FROM invoice WHERE month BETWEEN '2010-01' AND '2010-06' GROUP BY country"
    turns = [
        turn("list_tables", {}, "invoice, customer, employee, track", 0.7),
        turn(
            "query_database", {"sql": f"{sql} ORDER BY v DESC LIMIT 3"}, "q1: USA|148.2; Canada|91.0; Chile|55.3", 1.4
        ),
    ]
    if good:
        turns += [
            turn("generate_report", {"section": "top", "value": "q1[0]"}, "section top written", 1.2),
            turn("send_email", {"to": "jane@shop.example", "subject": "Top country"}, "sent", 1.0),
            turn("finish", {}, "done", 0.7),
        ]
    else:
        turns += [
            turn("analyze_data", {"data": "q2", "op": "top", "column": "v"}, "error unknown_result: no q2", 1.8, True),
            turn("generate_report", {"section": "top", "value": "Canada"}, "section top written", 1.6),
            turn("finish", {}, "done", 0.5),
        ]
    for place, text in zip(turns, actions, strict=False):
        place["action"] = text
    prompt = (
        "Find the country with the highest revenue from January to June 2010, report it and mail it to Jane Peacock."
    )
    base = {"prompt": prompt, "sibling": 0, "success": good, "advantage": 0.84 if good else -1.12, "turns": turns}
    never = {**base, "task_id": "val-0002", "success": False, "advantage": 0.0}
    return [never, {**base, "task_id": "val-0007"}]


def turn(name, arguments, observation, weight, failed=False):
    return {
        "action": json.dumps({"name": name, "arguments": arguments}),
        "observation": observation,
        "error": "unknown_result" if failed else None,
        "weight": weight,
        "critic": 0.1,
        "grains": {"global": 0.2, "step": 0.5, "token": 0.3},
    }
