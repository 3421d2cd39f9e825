"""Stage `promotion`: the gate. A model that fails is recorded, not promoted, and the stage still succeeds.

`models/promoted` always holds `decision.json`. On pass it also holds `model/`
(the Hugging Face files and a model card) and what is said of it (signature,
provenance, SBOM: `geartrain.supply.attestation`), on failure `candidate.json`,
and the candidate stays where it is. `promoted` (1 or 0) is the metric to watch: "no" is
an answer, not an error, so a schedule does not retry it.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from geartrain import logs
from geartrain.artifacts import Manifest, read_manifest, write_atomically, write_json
from geartrain.config import PromotionSection
from geartrain.errors import UserError
from geartrain.lineage.model_card import model_name, render_card
from geartrain.progress import Advance, bar
from geartrain.stages.stage import Job, Metrics, homes, stage
from geartrain.supply.attestation import attest
from geartrain.supply.registration import LATER, register

RECORDS = {"manifest.json", "README.md"}
MODEL_SUFFIXES = {".json", ".safetensors", ".jinja", ".txt", ".model"}
"""Files of a Hugging Face folder; histories and credit records (JSON lines, Parquet) stay behind."""

Check = dict[str, Any]


def conclude(folder: Path, run: str) -> None:
    """Sign the sealed artifact and enter it in the configured registries; nothing is published if that fails.

    In a run of Kubeflow a step of its own registers.
    """
    told = [attest(folder, run)]
    if not os.environ.get(LATER):
        told += map(str, register(folder, homes=homes()))
    for line in told:
        logs.say(f"promotion: {line}")


@stage(inputs=("policy", "evaluation"), sections=("promotion",), sealed=conclude)
def run(job: Job) -> Metrics:
    """Write `decision.json`, and `model/` or `candidate.json`.

    Raises:
        UserError: the evaluation is of another policy, or lacks the sampled test episodes.
    """
    policy_folder = job.inputs["policy"]
    policy, evaluation = read_manifest(policy_folder), read_manifest(job.inputs["evaluation"])
    if evaluation.inputs.get("policy") != policy.digest:
        raise UserError(
            f"{job.inputs['evaluation']}: measures the policy {evaluation.inputs.get('policy')!r:.20}, not "
            f"{policy.digest[:12]} in {policy_folder}. Run the stage `evaluation` again."
        )
    with bar("promotion", total=2) as advance:  # judged, written
        return _decide(job, policy, evaluation, advance)


def _decide(job: Job, policy: Manifest, evaluation: Manifest, advance: Advance) -> Metrics:
    output, policy_folder = job.outputs["promotion"], job.inputs["policy"]
    tables = json.loads((job.inputs["evaluation"] / "tables.json").read_text(encoding="utf-8"))
    section = job.config.promotion
    checks = judge(tables, section)
    promoted = all(check["passed"] for check in checks)
    advance(1)
    _clear(output)
    identity = {"name": model_name(policy, section), "candidate": policy.digest, "evaluation": evaluation.digest}
    write_json(output / "decision.json", {**identity, "promoted": promoted, "checks": checks})
    if promoted:
        _copy_model(policy_folder, output / "model")
        card = render_card(policy=policy, evaluation=evaluation, tables=tables, checks=checks, section=section)
        write_atomically(output / "model" / "README.md", card)
    else:
        reasons = [check["reason"] for check in checks if not check["passed"]]
        write_json(output / "candidate.json", {**identity, "reasons": reasons})
    advance(1)
    passed = {f"check_{check['name']}": int(check["passed"]) for check in checks}
    return {"promoted": int(promoted), **passed}


def judge(tables: dict[str, Any], section: PromotionSection) -> list[Check]:
    """Return every check of the gate, passed or not.

    Each holds `name`, `value` (None: nothing to measure, which fails), `comparison`,
    `threshold`, `passed` and `reason`.
    """
    test = tables["splits"].get("test", {})
    if not {"greedy", "sampled"} <= test.keys():
        raise UserError("the evaluation holds no test episodes. Raise `tasks.test`, run from `tasks` again.")
    after = [test[decoding]["after"] for decoding in ("greedy", "sampled")]
    return [
        _check(
            "gain_low",
            "lower end of the interval of the sampled test gain",
            test["sampled"]["gain"]["low"],
            ">",
            section.min_gain,
        ),
        _check(
            "invalid_calls",
            "share of invalid calls in test episodes",
            _worst(after, "invalid_calls"),
            "<=",
            section.max_invalid_calls,
        ),
        _check(
            "zero_tool_share",
            "share of test successes that used no tool",
            _worst(after, "zero_tool_successes"),
            "<=",
            section.max_zero_tool_share,
        ),
        _check(
            "probe_successes",
            "tasks that a do-nothing policy passes",
            sum(probe["successes"] for probe in tables["probes"].values()),
            "<=",
            0,
        ),
    ]


def _worst(tables: list[dict[str, Any]], key: str) -> float | None:
    """Return the larger of the greedy and the sampled share; one that cannot be measured is left out."""
    values = [table[key] for table in tables if table[key] is not None]
    return max(values) if values else None


def _check(name: str, meaning: str, value: float | None, comparison: str, threshold: float) -> Check:
    if value is None:
        passed, reason = False, f"{meaning}: nothing to measure"
    else:
        passed = value > threshold if comparison == ">" else value <= threshold
        relation = "is" if passed else "is not"
        reason = f"{meaning}: {value:.4g} {relation} {comparison} {threshold:g}"
    return {
        "name": name,
        "value": value,
        "comparison": comparison,
        "threshold": threshold,
        "passed": passed,
        "reason": reason,
    }


def _clear(folder: Path) -> None:
    """Remove what a killed run left: a half-copied model must not be sealed."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _copy_model(source: Path, target: Path) -> None:
    target.mkdir()
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix in MODEL_SUFFIXES and path.name not in RECORDS:
            shutil.copyfile(path, target / path.name)
