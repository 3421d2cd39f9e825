"""What a person should know about a built data set before a model is trained on it: numbers, and what they warn of."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from geartrain.preferences.pairs import SPLITS
from geartrain.preferences.tally import Tally

MOST_SHOWN = 30
"""Tasks, languages and so on that are listed."""
LENGTH_BIAS, POSITION_BIAS = 0.6, 0.55
"""A share beyond which, with its whole interval, a bias is warned of."""
LARGEST_TASK = 0.5
OTHER_SPLIT = 0.5
"""Relative distance of the validation share from what was asked for."""


def told(
    tally: Tally,
    *,
    forms: Mapping[str, Mapping[str, Any]],
    reasons: Mapping[str, int],
    examples: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return all that is known of a data set, JSON-ready and deterministic."""
    report = {
        "files": {name: dict(said) for name, said in forms.items()},
        "options": dict(options),
        "records": tally.records + sum(reasons.values()),
        "kept": tally.records,
        "left_out": dict(sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))),
        "examples": {reason: list(places) for reason, places in sorted(examples.items())},
        "with_preference": tally.pairs,
        "splits": {split: tally.by["split"][split] for split in SPLITS},
        "tasks": _most(tally.by_task),
        "tasks_in_all": len(tally.by_task),
        "answers": dict(sorted(tally.by["answers"].items(), key=lambda entry: int(entry[0]))),
        "languages": _most(tally.by["language"]),
        "flags": _most(tally.by["flags"]),
        "licences": _most(tally.by["licence"]),
        "sources": _most(tally.by["source"]),
        "length_bias": tally.longer.told(),
        "position_bias": tally.listed.told(),
        "length_ratio": tally.ratio_H.tolist(),
        "answer_length": tally.chars_H.tolist(),
        "prompt_length": tally.asked_H.tolist(),
    }
    return {**report, "warnings": warnings(report)}


def warnings(report: Mapping[str, Any]) -> list[str]:
    """Return what one should look at, in words."""
    found = []
    length, position = report["length_bias"], report["position_bias"]
    if length["share"] is not None and (length["low"] > LENGTH_BIAS or length["high"] < 1 - LENGTH_BIAS):
        side = "longer" if length["share"] > 0.5 else "shorter"
        share = max(length["share"], 1 - length["share"])
        found.append(
            f"The better answer is the {side} one in {share:.0%} of the records: a model that knows nothing but length "
            "would be right as often. Add records where the other wins, or match lengths."
        )
    if position["share"] is not None and (position["low"] > POSITION_BIAS or position["high"] < 1 - POSITION_BIAS):
        place = "first" if position["share"] > 0.5 else "last"
        share = max(position["share"], 1 - position["share"])
        found.append(
            f"Of answers shown together the one listed {place} wins in {share:.0%}: the judge may favour a place."
        )
    kept = max(1, report["kept"])
    if len(report["tasks"]) > 1:
        task, count = next(iter(report["tasks"].items()))
        if task and count > LARGEST_TASK * kept:
            found.append(f"{count / kept:.0%} of the records are of one task ({task}).")
    asked = report["options"]["validation_share"]
    share = report["splits"]["validation"] / kept
    if report["kept"] >= 1000 and abs(share - asked) > OTHER_SPLIT * asked:
        found.append(
            f"{share:.1%} of the records are held out, not {asked:.0%}: many prompts are near each other, and those "
            "lie in one split. Prompts made from a template are."
        )
    if report["flags"]:
        listed = ", ".join(f"{count:,} {kind}" for kind, count in report["flags"].items())
        found.append(f"Some records may hold data of persons or secrets ({listed}): see the column flags.")
    if report["licences"].get(""):
        found.append(f"{report['licences']['']:,} records have no licence; give one with --licence.")
    return found


def to_markdown(report: Mapping[str, Any]) -> str:
    """Return the report as a page of Markdown."""
    lines = ["# Preference data", "", "| what | value |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in facts(report)]
    lines += ["", "## Look at", "", *([f"- {line}" for line in report["warnings"]] or ["- nothing stands out"])]
    for title, key in TABLES:
        lines += ["", f"## {title}", "", "| | records |", "| --- | --- |"]
        lines += [f"| {_cell(name) or '(none)'} | {count:,} |" for name, count in report[key].items()] or [
            "| none | 0 |"
        ]
    return "\n".join(lines) + "\n"


TABLES = (
    ("Left out", "left_out"),
    ("Tasks", "tasks"),
    ("Languages", "languages"),
    ("Flags", "flags"),
    ("Sources", "sources"),
    ("Licences", "licences"),
    ("Answers to a prompt", "answers"),
)
"""Title and key of each count by name."""


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers of most interest, as (name, text)."""
    lost = report["records"] - report["kept"]
    forms = sorted({said["form"] for said in report["files"].values() if said["form"]})
    return [
        ("files", f"{len(report['files']):,} ({', '.join(forms)})"),
        ("records read", f"{report['records']:,}"),
        ("kept", f"{report['kept']:,}"),
        ("left out", f"{lost:,} ({lost / max(1, report['records']):.1%})"),
        ("with a preference", f"{report['with_preference']:,}"),
        *((split, f"{count:,}") for split, count in report["splits"].items()),
        ("tasks", f"{report['tasks_in_all']:,}"),
        ("the better answer is the longer", share(report["length_bias"])),
        ("the better answer is listed first, not last", share(report["position_bias"])),
    ]


def share(told: Mapping[str, Any]) -> str:
    """Return a share with its interval, as text."""
    if told["share"] is None:
        return "not known: the files do not say"
    return f"{told['share']:.1%} [{told['low']:.1%}, {told['high']:.1%}], {told['ties']:,} neither"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:120]


def _most(counter: Counter[str]) -> dict[str, int]:
    ranked = sorted(counter.items(), key=lambda entry: (-entry[1], entry[0]))
    rest = sum(count for _, count in ranked[MOST_SHOWN:])
    return {**dict(ranked[:MOST_SHOWN]), **({f"({len(ranked) - MOST_SHOWN:,} others)": rest} if rest else {})}
