"""The model card: a README.md in Hugging Face form, generated from manifests and measurements alone.

Nothing in it is written by hand or by a model, so the card cannot claim what
was not recorded.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from geartrain.artifacts import Manifest, origins
from geartrain.config import PromotionSection
from geartrain.wording import percent, points, rate, table

DECODINGS = ("greedy", "sampled")
DATASETS = ("environment.source", "tasks", "collect", "preferences")
"""What of the ancestors is data; the others are models."""
Row = tuple[str, ...]


def render_card(
    *,
    policy: Manifest,
    evaluation: Manifest,
    tables: Mapping[str, Any],
    checks: Sequence[Mapping[str, Any]],
    section: PromotionSection,
) -> str:
    """Return the card's Markdown.

    Args:
        policy: manifest of the promoted model.
        evaluation: manifest of the evaluation that promoted it.
        tables: the evaluation's `tables.json`.
        checks: the gate's checks, as in `decision.json`.
        section: name and licence.
    """
    environment = _environment(policy)
    parts = [
        "---",
        yaml.safe_dump(_header(policy, tables, section), sort_keys=True, allow_unicode=True).rstrip(),
        "---",
        f"# {model_name(policy, section)} `{policy.digest[:12]}`",
        f"A tool-using agent for the environment `{environment}`: {_beginning(policy)}, supervised start, then "
        f"reinforcement learning with the recipe `{policy.parameters.get('policy', {}).get('recipe', 'unknown')}`. "
        "This card is generated.",
        "## Results",
        _results_note(tables),
        table(("split", "decoding", "tasks", "before", "after", "gain", "p"), _result_rows(tables)),
        "Before: the warm start. After: this model. Intervals resample tasks, not episodes; the gain is paired by "
        "task and seed; p is two-sided, of a permutation test that swaps the two models within a task. "
        "`val` chose the checkpoint and is not part of it.",
        "## Why it was promoted",
        table(("check", "value", "threshold"), [_check_row(check) for check in checks]),
        "## What made it",
        table(("artifact", "sha256"), _origin_rows(policy, evaluation)),
        "A name with a dot is the setting that names a file from outside. `geartrain lineage` ties these digests to "
        "the runs that made them; `provenance.json` beside this folder names them too, and `geartrain model verify` "
        "checks it.",
        "## Training parameters",
        "```yaml\n" + yaml.safe_dump(dict(policy.parameters), sort_keys=True).rstrip() + "\n```",
        "## Limits",
        _limits(environment, tables),
        "## How to load it",
        _LOADING,
    ]
    return "\n\n".join(parts[:1]) + "\n" + parts[1] + "\n" + "\n\n".join(parts[2:]) + "\n"


def model_name(policy: Manifest, section: PromotionSection) -> str:
    """Return what the model is called, in its card and in registries."""
    return section.model_name or f"geartrain-{_environment(policy)}"


def _environment(policy: Manifest) -> str:
    return str(policy.parameters.get("environment", {}).get("name", "unknown"))


def _base_model(policy: Manifest) -> str | None:
    """Name of the pretrained model that training began with; None: its own, from random weights."""
    path = policy.parameters.get("model", {}).get("path")
    return None if path is None else PurePath(path).stem


def _beginning(policy: Manifest) -> str:
    base = _base_model(policy)
    return "trained from random weights" if base is None else f"from the pretrained model `{base}`"


def _datasets(policy: Manifest) -> list[str]:
    """Data that the training read, each with the digest of its version."""
    names = {name: digest for digest, name in origins(policy).items()}
    return [f"{name}@sha256:{names[name]}" for name in DATASETS if name in names]


def _header(policy: Manifest, tables: Mapping[str, Any], section: PromotionSection) -> dict[str, Any]:
    environment, base = _environment(policy), _base_model(policy)
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
        "license": section.license,
        **({} if base is None else {"base_model": base}),
        "datasets": _datasets(policy),
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["geartrain", "tool-use", "agent", "reinforcement-learning", "grpo"],
        "metrics": ["success"],
        "model-index": [{"name": model_name(policy, section), "results": results}],
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
            str(decided["after"]["tasks"]),
            rate(decided["before"]["success"]),
            rate(decided["after"]["success"]),
            points(decided["gain"]),
            f"{decided['gain']['p_value']:.4f}",
        )
        for split, decodings in tables["splits"].items()
        for decoding, decided in decodings.items()
    ]


def _check_row(check: Mapping[str, Any]) -> Row:
    value = "n/a" if check["value"] is None else f"{check['value']:.4f}"
    return check["name"], value, f"{check['comparison']} {check['threshold']:g}"


def _origin_rows(policy: Manifest, evaluation: Manifest) -> list[Row]:
    rows = [("this model (policy)", f"`{policy.digest}`"), ("evaluation", f"`{evaluation.digest}`")]
    known = sorted((name, digest) for digest, name in origins(policy).items())
    rows += [(name if name in policy.inputs else f"{name}, further back", f"`{digest}`") for name, digest in known]
    return [*rows, ("code of its training", f"`{policy.code}`")]


def _limits(environment: str, tables: Mapping[str, Any]) -> str:
    test = tables["splits"]["test"]["sampled"]
    success = test["after"]["success"]["estimate"]
    lines = [
        f"- Fails about {percent(1 - success, 1)} of held-out tasks; check the final state, not what it reports.",
        f"- Knows the tools and the data of `{environment}` only; no general conversation, no other language.",
        f"- The comparison rests on {test['after']['tasks']} test tasks: a gain below "
        f"{percent(test['gain']['minimum_detectable_effect'], 1)} would probably not have been seen.",
    ]
    if "ood" in tables["splits"]:
        ood = rate(tables["splits"]["ood"]["sampled"]["after"]["success"])
        lines.append(f"- On task families that training never saw: {ood} (sampled).")
    return "\n".join(lines)


_LOADING = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("models/promoted/model")
model = AutoModelForCausalLM.from_pretrained("models/promoted/model")
```

The chat template is in the tokenizer. To measure it again: `geartrain eval models/promoted/model`."""
