"""The model card: a README.md in Hugging Face form, generated from manifests and measurements alone.

Nothing in it is written by hand or by a model, so the card cannot claim what
was not recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from geartrain.artifacts import Manifest

DECODINGS = {"greedy": "greedy", "sampled": "sampled"}
Row = tuple[str, ...]


def render_card(
    *, policy: Manifest, evaluation: Manifest, tables: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]
) -> str:
    """Return the card's Markdown.

    Args:
        policy: manifest of the promoted model.
        evaluation: manifest of the evaluation that promoted it.
        tables: the evaluation's `tables.json`.
        checks: the gate's checks, as in `decision.json`.
    """
    environment = policy.parameters.get("environment", {}).get("name", "unknown")
    parts = [
        "---",
        yaml.safe_dump(_header(environment, tables), sort_keys=True, allow_unicode=True).rstrip(),
        "---",
        f"# geartrain policy `{policy.digest[:12]}`",
        f"A tool-using agent for the environment `{environment}`: supervised start, then reinforcement learning with "
        f"the recipe `{policy.parameters.get('policy', {}).get('recipe', 'unknown')}`. This card is generated.",
        "## Results",
        _results_note(tables),
        _table(("split", "decoding", "tasks", "before", "after", "gain", "p"), _result_rows(tables)),
        "Before: the warm start. After: this model. Intervals resample tasks, not episodes; the gain is paired by "
        "task and seed; p is two-sided, of a permutation test that swaps the two models within a task. "
        "`val` chose the checkpoint and is not part of it.",
        "## Why it was promoted",
        _table(("check", "value", "threshold"), [_check_row(check) for check in checks]),
        "## What made it",
        _table(("artifact", "sha256"), _origin_rows(policy, evaluation)),
        "The run's hash-chained events (`events.ndjson`) tie these digests to the runs and data that made them.",
        "## Training parameters",
        "```yaml\n" + yaml.safe_dump(dict(policy.parameters), sort_keys=True).rstrip() + "\n```",
        "## Limits",
        _limits(environment, tables),
        "## How to load it",
        _LOADING,
    ]
    return "\n\n".join(parts[:1]) + "\n" + parts[1] + "\n" + "\n\n".join(parts[2:]) + "\n"


def percent(value: float) -> str:
    """Return a share as a percentage with one digit."""
    return f"{100 * value:.1f} %"


def interval(record: Mapping[str, float], *, signed: bool = False) -> str:
    """Return "estimate [low, high]" in percent, or in signed points."""
    sign = "+" if signed else ""
    shown = [f"{100 * record[key]:{sign}.1f}" for key in ("estimate", "low", "high")]
    return f"{shown[0]}{' points' if signed else ' %'} [{shown[1]}, {shown[2]}]"


def _header(environment: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    results = [
        {
            "task": {"type": "reinforcement-learning", "name": "tool use"},
            "dataset": {"type": f"geartrain-{environment}", "name": f"{environment} ({split})", "split": split},
            "metrics": [
                {
                    "type": "success",
                    "name": f"success, {decoding}",
                    "value": table[decoding]["after"]["success"]["estimate"],
                }
                for decoding in DECODINGS
            ],
        }
        for split, table in tables["splits"].items()
    ]
    return {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["geartrain", "tool-use", "agent", "reinforcement-learning", "grpo"],
        "metrics": ["success"],
        "model-index": [{"name": f"geartrain-{environment}", "results": results}],
    }


def _results_note(tables: Mapping[str, Any]) -> str:
    settings = tables["settings"]
    return (
        f"Success is judged by the environment's verifier on the final state. {settings['samples']} sampled episodes "
        f"per task at temperature {settings['temperature']:g}, one greedy. Intervals at {settings['confidence']:.0%}."
    )


def _result_rows(tables: Mapping[str, Any]) -> list[Row]:
    return [
        (
            split,
            decoding,
            str(table["after"]["tasks"]),
            interval(table["before"]["success"]),
            interval(table["after"]["success"]),
            interval(table["gain"], signed=True),
            f"{table['gain']['p_value']:.4f}",
        )
        for split, decodings in tables["splits"].items()
        for decoding, table in decodings.items()
    ]


def _check_row(check: Mapping[str, Any]) -> Row:
    value = "n/a" if check["value"] is None else f"{check['value']:.4f}"
    return check["name"], value, f"{check['comparison']} {check['threshold']:g}"


def _origin_rows(policy: Manifest, evaluation: Manifest) -> list[Row]:
    rows = [("this model (policy)", f"`{policy.digest}`"), ("evaluation", f"`{evaluation.digest}`")]
    rows += [(f"input of its training: {name}", f"`{digest}`") for name, digest in sorted(policy.inputs.items())]
    return [*rows, ("code of its training", f"`{policy.code}`")]


def _limits(environment: str, tables: Mapping[str, Any]) -> str:
    test = tables["splits"]["test"]["sampled"]
    success = test["after"]["success"]["estimate"]
    lines = [
        f"- Fails about {percent(1 - success)} of held-out tasks; check the final state, not what the model reports.",
        f"- Knows the tools and the data of `{environment}` only; no general conversation, no other language.",
        f"- The comparison rests on {test['after']['tasks']} test tasks: a gain below "
        f"{percent(test['gain']['minimum_detectable_effect'])} would probably not have been seen.",
    ]
    if "ood" in tables["splits"]:
        ood = interval(tables["splits"]["ood"]["sampled"]["after"]["success"])
        lines.append(f"- On task families that training never saw: {ood} (sampled).")
    return "\n".join(lines)


def _table(head: Row, rows: Sequence[Row]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


_LOADING = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("models/promoted/model")
model = AutoModelForCausalLM.from_pretrained("models/promoted/model")
```

The chat template is in the tokenizer. To measure it again: `geartrain eval models/promoted/model`."""
