"""Two runs side by side: the settings in which they differ, and what the evaluation says of each."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from geartrain.config_file import read_record
from geartrain.errors import UserError
from geartrain.reporting.facts import Facts
from geartrain.reporting.sections import DECODINGS, SPLITS
from geartrain.viewer.state import Watched
from geartrain.workspace import PARAMS

Record = dict[str, Any]


def settings_of(watched: Watched, facts: Facts | None) -> Record:
    """Return the settings of a run by section: what its stages ran with; what none has read yet, as the file says."""
    try:
        found = read_record(watched.folder / PARAMS)
    except UserError:
        found = {}
    for manifest in facts.manifests.values() if facts else ():
        found |= manifest.parameters
    return found | watched.parameters()


def different(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Record]:
    """Return the settings that differ, by dotted name, with both values; None where one has no such setting."""
    one, other = dict(_flat(first)), dict(_flat(second))
    names = dict.fromkeys([*one, *other])
    return [
        {"name": name, "first": one.get(name), "second": other.get(name)}
        for name in names
        if one.get(name) != other.get(name)
    ]


def evaluation(facts: Facts | None) -> list[Record]:
    """Return success before and after by split and decoding, with the paired gain; empty before the evaluation."""
    splits = (facts.tables or {}).get("splits", {}) if facts else {}
    rows = []
    for split in SPLITS:
        for decoding in DECODINGS if split in splits else ():
            table = splits[split][decoding]
            sides = {role: table[role]["success"] for role in ("before", "after")}
            rows.append(
                {"split": split, "decoding": decoding, "tasks": table["gain"]["tasks"], "gain": table["gain"], **sides}
            )
    return rows


def same_tasks(first: Facts | None, second: Facts | None) -> bool | None:
    """Tell whether both were measured on the same task set; None: one was not measured."""
    digests = [
        facts.manifests["evaluation"].inputs.get("tasks") if facts and "evaluation" in facts.manifests else None
        for facts in (first, second)
    ]
    return None if None in digests else digests[0] == digests[1]


def _flat(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _flat(inner, f"{before}{name}.")
        else:
            yield f"{before}{name}", inner


def folder_name(name: str, folder: Path) -> str:
    """Return what people call a workspace: its path from the folder that is shown, or that folder's own name."""
    return folder.resolve().name if name == "." else name
