"""Judging the final state of an episode against the truth of its task.

What counts is the report, the outbox and that `finish` was called; how the
agent got there does not. Decisions:
- A section must hold what was asked (a label or a value). Where it also holds
  the other one, as a handle does, that must not contradict the truth.
- Sections that nobody asked for are ignored; a section written twice holds what
  was written last.
- A mail that nobody asked for is a failure: it cannot be taken back.
- The asked mail is exactly one, to the right address, sent when the report was
  complete and right; what is changed after sending does not count for it.
"""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geartrain.environments.analyst.questions import MONTH_NAMES
from geartrain.environments.analyst.rendering import format_number, quote, unquote

TOLERANCE = 0.01
"""Relative and absolute, whichever is wider."""

_MONTH = re.compile(r"(\d{4})-(\d{2})")
_QUOTED_AND_NUMBER = re.compile(r"('(?:[^']|'')+')(?:\s+(\S+))?")
_LABEL_AND_NUMBER = re.compile(r"(.+?)[\s:|,=(]+(\S+?)\)?")


@dataclass(frozen=True)
class Fact:
    """The true content of a section. `asks` is "label" or "value": what the prompt asks for."""

    asks: str
    label: str | None
    value: float

    def to_record(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {"asks": self.asks, "label": self.label, "value": round(self.value, 6)}


@dataclass(frozen=True)
class Entry:
    """What a report section holds, or what a row of a result says."""

    label: str | None
    value: float | None


@dataclass(frozen=True)
class Mail:
    """A sent message with the report as it was at that moment."""

    to: str
    subject: str
    report: Mapping[str, Entry]


def section_key(name: str) -> str:
    """Return a section's name as it is compared: case and spacing do not count."""
    return _fold(name)


def read_literal(text: str | float) -> Entry:
    """Return a literal as an entry: a number, a label, or a label (quoted, as tools show it, or not) and a number."""
    if not isinstance(text, str):
        return Entry(None, float(text))
    shown = _QUOTED_AND_NUMBER.fullmatch(text.strip())
    number = _number(shown.group(2)) if shown and shown.group(2) else None
    if shown and (number is not None or not shown.group(2)):
        return Entry(unquote(shown.group(1)), number)
    value = _number(text)
    return Entry(None, value) if value is not None else Entry(text, None)


def fault(fact: Fact, entry: Entry | None) -> str | None:
    """Return what is wrong with an entry, or None if it is right."""
    if entry is None:
        return "missing"
    if _agrees(fact, entry):
        return None
    both = _LABEL_AND_NUMBER.fullmatch(entry.label) if entry.label and entry.value is None else None
    if both:
        number = _number(both.group(2))
        if number is not None and _agrees(fact, Entry(both.group(1), number)):
            return None
    return f"is {describe(entry)}, not {describe(Entry(fact.label, fact.value))}"


def states(fact: Fact, entry: Entry) -> bool:
    """Return whether a row of a result states the whole fact: its value, and its label where it has one.

    Results are exact, so the value must be too: within `TOLERANCE`, much is equal by chance.
    """
    if entry.value is None or not math.isclose(entry.value, fact.value, rel_tol=1e-6, abs_tol=1e-5):
        return False
    return fact.label is None or (entry.label is not None and _same_label(entry.label, fact.label))


def judge(
    facts: Mapping[str, Fact],
    recipient: str | None,
    report: Mapping[str, Entry],
    outbox: Sequence[Mail],
    finished: bool,
) -> list[str]:
    """Return the reasons why the final state is not a success; none means success."""
    reasons = [f"section '{name}' {why}" for name, fact in facts.items() if (why := fault(fact, report.get(name)))]
    reasons += [f"mail: {why}" for why in mail_faults(facts, recipient, outbox)]
    return reasons if finished else [*reasons, "not finished"]


def mail_faults(facts: Mapping[str, Fact], recipient: str | None, outbox: Sequence[Mail]) -> list[str]:
    """Return what is wrong with the outbox."""
    if recipient is None:
        return ["nobody asked for one"] if outbox else []
    if len(outbox) != 1:
        return [f"{len(outbox)} sent, not 1"]
    faults = []
    if _fold(outbox[0].to) != _fold(recipient):
        faults.append(f"sent to {outbox[0].to}, not {recipient}")
    if any(fault(fact, outbox[0].report.get(name)) for name, fact in facts.items()):
        faults.append("the report was not complete and right when it was sent")
    return faults


def describe(entry: Entry) -> str:
    """Return an entry as text, for people and for tool answers."""
    label = quote(entry.label) if entry.label else ""
    value = "" if entry.value is None else format_number(entry.value)
    return " ".join(part for part in (label, value) if part) or "empty"


def _agrees(fact: Fact, entry: Entry) -> bool:
    label = None if entry.label is None or fact.label is None else _same_label(entry.label, fact.label)
    value = None if entry.value is None else _close(entry.value, fact.value)
    if fact.asks == "label":
        return label is True and value is not False
    return value is True and label is not False


def _same_label(given: str, true: str) -> bool:
    month = _MONTH.fullmatch(true)
    if month:
        name = MONTH_NAMES[int(month.group(2)) - 1]
        return _fold(given) in (true, name, f"{name} {month.group(1)}")
    return _fold(given) == _fold(true)


def _close(given: float, true: float) -> bool:
    return math.isfinite(given) and abs(given - true) <= max(TOLERANCE, TOLERANCE * abs(true)) + 1e-9


def _number(text: str) -> float | None:
    cleaned = text.strip().removeprefix("$").removesuffix("%").strip().replace(",", "")
    if not re.fullmatch(r"[+-]?(\d{1,15}(\.\d{0,15})?|\.\d{1,15})", cleaned):
        return None
    return float(cleaned)


def _fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
