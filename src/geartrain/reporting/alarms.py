"""What the report says about the alarms of a training, see `algorithms.validity`."""

from collections.abc import Mapping, Sequence
from typing import Any

from geartrain.algorithms.validity import ALARMS
from geartrain.reporting.sections import Context


def alarm_rows(history: Sequence[Mapping[str, Any]]) -> list[Context]:
    """Return one row per alarm, the first raised first; empty where there was none.

    Iterations are counted from 1, as they are when an alarm is told while the training runs.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for number, record in enumerate(history, start=1):
        for name, reason in _raised(record):
            found.setdefault(name, []).append((number, reason))
    return [
        {
            "name": name.replace("_", " "),
            "since": told[0][0],
            "times": f"{len(told)} of {len(history)}" + (", the last too" if told[-1][0] == len(history) else ""),
            "reason": told[-1][1],
            "meaning": ALARMS.get(name, ""),
        }
        for name, told in found.items()
    ]


def _raised(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (name, reason) of what one record raises; a record that was damaged raises nothing."""
    texts = record.get("alarms")
    parts = [text.partition(":") for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    return [(name, reason.strip()) for name, _, reason in parts]
