"""A file of preference data as drafts: its form told, defects set aside, rows put together where a form wants it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geartrain.errors import UserError
from geartrain.preferences.forms import TRAJECTORIES, Form, detect, form_named
from geartrain.preferences.opening import kind_of
from geartrain.preferences.reading import read_rows
from geartrain.preferences.records import Broken, DefectError, Draft, Rows

MOST_TOGETHER = 256
"""Rows that one record may be made of."""


@dataclass(frozen=True)
class SourceFile:
    """A file that is built from."""

    path: Path
    form: str | None = None
    """One of `forms.FORMS`; None tells it by the first records."""
    licence: str | None = None
    encoding: str | None = None
    """Of a text file that is not UTF-8 and does not say so."""
    prompts: Mapping[str, str] | None = None
    """Prompt of each task, by id, that trajectories belong to."""


Item = tuple[int, Draft] | Broken
"""A draft and its place, or a place that gives none."""


def read_items(source: SourceFile) -> Iterator[tuple[str, list[Item]]]:
    """Yield (name of the form, drafts and defects in order), block by block.

    Raises:
        UserError: there is no such file, or its form is not known.
    """
    form = None if source.form is None else form_named(source.form)
    waiting: list[tuple[int, Any]] = []
    for rows in read_rows(source.path, kind_of(source.path), encoding=source.encoding):
        if form is None and rows.values:
            form = detect(rows.values, str(source.path))
        if form is not None and form.name == TRAJECTORIES:
            _ask(rows, source)
        items: list[Item] = list(rows.broken)
        if form is not None:
            items += _drafts(form, rows) if form.key is None else _grouped(form, rows, waiting)
        yield form.name if form else "", items
    if form is not None and waiting:
        yield form.name, _together(form, waiting)


def _ask(rows: Rows, source: SourceFile) -> None:
    """Put the prompts of their tasks into records of trajectories, which have none."""
    if source.prompts is None:
        raise UserError(f"{source.path}: trajectories do not hold their prompts; give --tasks data/tasks")
    for value in rows.values:
        if isinstance(value, dict):
            value["prompt"] = source.prompts.get(str(value.get("task_id")))


def name_sources(sources: Sequence[SourceFile]) -> list[str]:
    """Return a name per file: its own, with as many folders before it as tell it from the others.

    Raises:
        UserError: a file is named twice.
    """
    if len({source.path.resolve() for source in sources}) < len(sources):
        raise UserError("the same file is given twice; give each once")
    depth = 1
    while True:
        names = ["/".join(source.path.resolve().parts[-depth:]) for source in sources]
        if len(set(names)) == len(names):
            return names
        depth += 1


def _drafts(form: Form, rows: Rows) -> list[Item]:
    items: list[Item] = []
    read = form.read
    for place, value in zip(rows.places, rows.values, strict=True):
        if not isinstance(value, dict):
            items.append(_no_object(place, value))
            continue
        try:
            items.append((place, read((value,))))
        except DefectError as defect:
            items.append(Broken(place, defect.reason, defect.detail))
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
            items.append(Broken(place, "malformed", f"{type(error).__name__}: {error!s:.120}"))
    return items


def _grouped(form: Form, rows: Rows, waiting: list[tuple[int, Any]]) -> list[Item]:
    assert form.key is not None
    items: list[Item] = []
    for place, value in zip(rows.places, rows.values, strict=True):
        if not isinstance(value, dict):
            items.append(_no_object(place, value))
            continue
        if waiting and (form.key(waiting[-1][1]) != form.key(value) or len(waiting) == MOST_TOGETHER):
            items += _together(form, waiting)
            waiting.clear()
        waiting.append((place, value))
    return items


def _together(form: Form, group: list[tuple[int, Any]]) -> list[Item]:
    """Return the record of a group; rows that cannot be read are left out of it."""
    usable, items = [], list[Item]()
    for place, value in group:
        try:
            form.read((value, value))
            usable.append((place, value))
        except DefectError as defect:
            items.append(Broken(place, defect.reason, defect.detail))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            items.append(Broken(place, "malformed", f"{type(error).__name__}: {error!s:.120}"))
    if usable:
        try:
            items.append((usable[0][0], form.read([value for _, value in usable])))
        except DefectError as defect:
            items.append(Broken(usable[0][0], defect.reason, defect.detail))
    return items


def _no_object(place: int, value: Any) -> Broken:
    return Broken(place, "nested_list" if isinstance(value, list) else "not_an_object", type(value).__name__)
