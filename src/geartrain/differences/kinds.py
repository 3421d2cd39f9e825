"""What a row is, in each kind of data set: which columns name it, which judge it, which group it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from geartrain.artifacts import read_manifest
from geartrain.differences.rows import list_tables
from geartrain.errors import UserError


@dataclass(frozen=True)
class Kind:
    """How to compare rows of one kind."""

    name: str
    files: tuple[str, ...]
    """Patterns of the files that hold rows."""
    key: tuple[str, ...]
    """Columns that together name a row."""
    unordered: tuple[str, ...] = ()
    """Columns that belong to the key as a set: two rows that swap them are one row."""
    label: str = ""
    """Column that judges a row; where it changed, the label flipped."""
    group: str = ""
    """Column that rows are grouped by, such as the task."""
    measure: str = ""
    """Numeric column whose mean per group is compared."""
    stratum: str = ""
    """Column of few values whose counts are compared."""


KINDS: Mapping[str, Kind] = {
    "tasks": Kind("tasks", ("*.jsonl",), ("task_id",), stratum="family"),
    "collect": Kind(
        "rollouts", ("trajectories.parquet",), ("task_id", "sibling", "seed"),
        label="success", group="task_id", measure="success", stratum="family",
    ),
    "preferences": Kind(
        "preferences", ("pairs.parquet",), ("task_id", "origin"), unordered=("chosen_id", "rejected_id"),
        label="chosen_id", group="task_id", measure="margin", stratum="family",
    ),
}  # fmt: skip
"""By the stage that writes them."""


def choose_kind(a: Path, b: Path, *, file: str = "", **columns: str) -> Kind:
    """Return how to compare two folders or files.

    Args:
        a, b: artifacts, or Parquet or JSON-lines files.
        file: name of the file within both, of a folder that is none of `KINDS`.
        **columns: `key` (comma-separated), `label`, `group`, `measure` or `stratum`, over what the kind says.

    Raises:
        UserError: the kinds differ, or it is not clear which columns name a row.
    """
    found = [_of_artifact(place) for place in (a, b)]
    if None not in found and found[0] != found[1]:
        raise UserError(f"{a} holds {found[0]}, {b} holds {found[1]}: compare two versions of one data set")
    kind = KINDS.get(found[0] or found[1] or "", Kind("rows", (), ()))
    if file or not kind.files:
        kind = Kind("rows", (file or _only_table(a, b),), ())
    given: dict[str, Any] = {name: value for name, value in columns.items() if value}
    if "key" in given:
        given |= {"key": tuple(given["key"].split(",")), "unordered": ()}
    kind = replace(kind, **given)
    if not kind.key:
        raise UserError(f"{a}: which columns name a row? Say so: --id COLUMN, or --id FIRST,SECOND")
    return kind


def _of_artifact(place: Path) -> str | None:
    """Return the stage that wrote a place; of a file, the one whose artifact it would be the rows of."""
    if place.is_dir():
        try:
            return read_manifest(place).stage
        except UserError:
            return None
    return next((stage for stage, kind in KINDS.items() if place.name in kind.files), None)


def _only_table(a: Path, b: Path) -> str:
    if a.is_file() or b.is_file():
        return "*"
    tables = [name for name in list_tables(a) if name in set(list_tables(b))]
    if len(tables) != 1:
        listed = f": {', '.join(tables)}" if tables else ""
        raise UserError(f"{a} and {b} have {len(tables)} files of rows in common{listed}. Name one: --file NAME")
    return tables[0]
