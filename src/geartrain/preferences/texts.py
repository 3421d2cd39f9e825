"""Texts and messages as people write them, made one: strings, lists of messages, transcripts with speakers' names."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from geartrain.preferences.records import ROLES, DefectError, Message

_SPEAKERS = {
    **{role: role for role in ROLES},
    **dict.fromkeys(("human", "prompter", "question"), "user"),
    **dict.fromkeys(("gpt", "model", "bot", "chatbot"), "assistant"),
    **dict.fromkeys(("function", "observation"), "tool"),
    "developer": "system",
}
_TURN = re.compile(r"\n\n(Human|Assistant):")
_TAGS = {"Human": "user", "Assistant": "assistant"}
TIMES = ("time", "timestamp", "created_at", "tstamp", "date")
"""Keys under which a record may say when it was made."""


def text(value: Any, where: str) -> str:
    """Return a text that says something, without white space around it. Raises DefectError."""
    if type(value) is not str:
        if value is None:
            raise DefectError("missing_key", where)
        nested = isinstance(value, list)
        raise DefectError("nested_list" if nested else "not_text", f"{where} is {type(value).__name__}")
    if "\r" in value:
        value = value.replace("\r\n", "\n")
    said: str = value.strip()
    if not said:
        raise DefectError("empty_text", where)
    return said


def first(record: dict[str, Any], keys: Sequence[str]) -> Any:
    """Return what stands under the first of the keys that is there and not null; None if none is."""
    for key in keys:
        value = record.get(key)
        if value is not None:
            return value
    return None


def number(value: Any, where: str) -> float:
    """Return a finite number, written as one or as a text. Raises DefectError."""
    try:
        found = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError) as error:
        reason = "missing_key" if value is None else "score_not_a_number"
        raise DefectError(reason, f"{where} is {value!r:.60}") from error
    if not math.isfinite(found):
        raise DefectError("score_not_finite", f"{where} is {value!r:.60}")
    return found


def messages(value: Any, where: str, *, speaker: str) -> list[Message]:
    """Return messages: of a text (one, by `speaker`), a transcript, or a list of role and content.

    Raises DefectError: it is none of these, or a message says nothing.
    """
    if type(value) is str:
        return transcript(value, where) if is_transcript(value) else [(speaker, text(value, where))]
    if not isinstance(value, list):
        raise DefectError("missing_key" if value is None else "not_text", f"{where} is {type(value).__name__}")
    if not value:
        raise DefectError("empty_text", where)
    return [_message(entry, where) for entry in value]


def _message(entry: Any, where: str) -> Message:
    if isinstance(entry, list):
        raise DefectError("nested_list", where)
    if not isinstance(entry, dict):
        raise DefectError("not_a_message", f"{where} holds {type(entry).__name__}")
    role = first(entry, ("role", "from", "speaker"))
    content = first(entry, ("content", "value", "text"))
    if isinstance(content, list):  # the parts of multi-modal messages
        if any(isinstance(part, list) for part in content):
            raise DefectError("nested_list", where)
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = "\n".join(part for part in parts if isinstance(part, str)) or None
    known = _SPEAKERS.get(role.strip().lower()) if isinstance(role, str) else None
    if known is None:
        raise DefectError("missing_key" if role is None else "unknown_role", f"{where}: role {role!r:.40}")
    return known, text(content, where)


def is_transcript(value: str) -> bool:
    """Tell whether a text is turns that begin with "Human:" and "Assistant:", after empty lines."""
    return "\n\nHuman:" in value or "\n\nAssistant:" in value or value.startswith(("Human:", "Assistant:"))


def transcript(value: str, where: str, *, open_end: bool = False) -> list[Message]:
    """Return the turns of a transcript; with `open_end` a last "Assistant:" without text is left out.

    Raises DefectError: a turn is empty.
    """
    if "\r" in value:
        value = value.replace("\r\n", "\n")
    if not value.startswith("\n\n"):
        value = "\n\n" + value.lstrip("\n")
    parts = _TURN.split(value)
    turns = [("system", parts[0].strip())] if parts[0].strip() else []
    turns += [(_TAGS[tag], said.strip()) for tag, said in zip(parts[1::2], parts[2::2], strict=True)]
    if open_end and turns and turns[-1] == ("assistant", ""):
        turns.pop()
    if not turns or not all(said for _, said in turns):
        raise DefectError("empty_text", where)
    return turns


def part(first: Sequence[Message], second: Sequence[Message]) -> int:
    """Return how many messages two conversations begin with alike, leaving at least one of each."""
    most = min(len(first), len(second)) - 1
    same = 0
    while same < most and first[same] == second[same]:
        same += 1
    return same


def time_of(record: dict[str, Any]) -> datetime | None:
    """Return when a record says it was made: ISO text, or seconds (or milliseconds) since 1970; None if it does not."""
    value = first(record, TIMES)
    if value is None:
        return None
    try:
        if isinstance(value, datetime):
            found = value
        elif isinstance(value, int | float):
            found = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        else:
            found = datetime.fromisoformat(value)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
