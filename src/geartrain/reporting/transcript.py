"""One task before and after training, turn by turn, with the credit that each turn got.

Everything shown here was written by a model or a tool, so all of it is
untrusted: control and formatting characters are made visible, and the template
escapes the rest.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LIMIT = 900
"""Characters of a message that are shown."""


@dataclass(frozen=True)
class Line:
    """A turn as the page shows it."""

    action: str
    observation: str
    failed: bool
    weight: float | None
    credit: float | None
    """Advantage times weight; None where there is no credit record."""
    strength: float
    """Opacity of the background, in [0, 1]: credit relative to the largest of the two episodes."""

    @property
    def kind(self) -> str:
        """Return "reward", "blame" or "none"."""
        return "none" if not self.credit else "reward" if self.credit > 0 else "blame"


@dataclass(frozen=True)
class Shown:
    """One episode as the page shows it."""

    success: bool
    advantage: float | None
    lines: Sequence[Line]


@dataclass(frozen=True)
class Pair:
    """The same task, before and after."""

    task_id: str
    prompt: str
    before: Shown
    after: Shown


def choose_pair(credit: Mapping[str, Sequence[Mapping[str, Any]]]) -> Pair | None:
    """Return a task that failed before and succeeded after; else any task in both; else None.

    Among several, one whose failure had better siblings and whose success had worse
    ones, then the one whose credit differs most from turn to turn, then the shorter
    pair: that is where there is something to see.
    """
    best: tuple[tuple[bool, bool, bool, float, int, str], Mapping[str, Any], Mapping[str, Any]] | None = None
    for before in credit.get("before", ()):
        for after in credit.get("after", ()):
            if before.get("task_id") != after.get("task_id") or not before.get("turns") or not after.get("turns"):
                continue
            wanted = not before.get("success") and bool(after.get("success"))
            length = len(before["turns"]) + len(after["turns"])
            told_apart = (_number(before.get("advantage")) or 0.0) < 0.0 < (_number(after.get("advantage")) or 0.0)
            spread = round(_spread(before) + _spread(after), 6)
            rank = (wanted, told_apart, length <= 24, spread, -length, str(before["task_id"]))
            if best is None or rank > best[0]:
                best = rank, before, after
    if best is None:
        return None
    _, before, after = best
    top = max(_largest(before), _largest(after)) or 1.0
    task = str(before["task_id"])
    return Pair(task, printable(str(before.get("prompt", ""))), _show(before, top), _show(after, top))


def printable(text: str, limit: int = LIMIT) -> str:
    """Return text with invisible characters spelt out, so that it cannot hide or reorder what follows."""
    shown = []
    for character in text[:limit]:
        plain = character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        shown.append(character if plain else f"\\u{ord(character):04x}")
    more = len(text) - limit
    return "".join(shown) + (f" … {more} more characters" if more > 0 else "")


def pretty_call(action: str) -> str:
    """Return a call as `name(key=value, ...)`; anything else as it is."""
    try:
        value = json.loads(action)
        arguments = ", ".join(
            f"{key}={json.dumps(item, ensure_ascii=False)}" for key, item in value["arguments"].items()
        )
        return f"{value['name']}({arguments})"
    except (ValueError, TypeError, KeyError, AttributeError):
        return action


def _show(record: Mapping[str, Any], top: float) -> Shown:
    advantage = _number(record.get("advantage"))
    lines = []
    for turn in record["turns"]:
        weight = _number(turn.get("weight"))
        credit = None if advantage is None or weight is None else advantage * weight
        lines.append(
            Line(
                action=printable(pretty_call(str(turn.get("action", "")))),
                observation=printable(str(turn.get("observation", ""))),
                failed=bool(turn.get("error")),
                weight=weight,
                credit=credit,
                strength=0.0 if credit is None else round(min(1.0, abs(credit) / top), 3),
            )
        )
    return Shown(bool(record.get("success")), advantage, lines)


def _largest(record: Mapping[str, Any]) -> float:
    return max((abs(c) for c in _credits(record)), default=0.0)


def _spread(record: Mapping[str, Any]) -> float:
    credits = _credits(record)
    return max(credits) - min(credits) if credits else 0.0


def _credits(record: Mapping[str, Any]) -> list[float]:
    advantage = _number(record.get("advantage")) or 0.0
    return [advantage * (_number(turn.get("weight")) or 0.0) for turn in record["turns"]]


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and abs(value) < float("inf")
    return float(value) if usable else None
