"""A trajectory as short text for a reward model: what was done, then what came of it.

    transcript = steps "\\n" answer

`steps` has one clause per turn that looked something up or failed: the call,
squeezed, or its error. `answer` is what the episode delivers, as the first line
of the tools' answers confirms it: report, mail, end. Texts are folded to one
line, so the one line feed is ours and no agent can forge it. Whoever cuts to
length cuts `steps` from the left: the task sentence and the answer stay whole
(rl-faults D16).

Only what the agent wrote and was shown is rendered. Verdict, sub-goals and
progress are not: a reward model would learn to read them.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from geartrain.trajectory import Trajectory, Turn

DELIVERING = frozenset({"generate_report", "send_email"})
"""Tools whose answers are the deliverable. Where none was used the answer says only how the episode ended."""
VALUE_CHARACTERS = 160
"""Longest argument value; a longer one keeps its end, where SQL says how to sort."""
RESULT_CHARACTERS = 48
"""Longest part of the answer."""
SEPARATOR = "\n"

_SQL_FILLER = re.compile(r"\b(?:SELECT|FROM|WHERE|AS v|BY v|AND|GROUP|ORDER|NATURAL)\b|['\"%;]", re.IGNORECASE)


def render(trajectory: Trajectory) -> str:
    """Return the transcript of a trajectory; the same turns give the same text."""
    turns = [turn for turn in trajectory.turns if turn.call is None or turn.call.name != "finish"]
    runs = groupby(_step(turn) for turn in turns if not _delivers(turn))
    steps = "; ".join(_repeated(clause, len(list(same))) for clause, same in runs)
    return steps + SEPARATOR + "; ".join([*_delivered(turns), _fold(trajectory.end).replace("_", " ")])


def split(transcript: str) -> tuple[str, str]:
    """Return (steps, answer) of a transcript. Raises ValueError if it was not made by `render`."""
    steps, separator, answer = transcript.partition(SEPARATOR)
    if not separator or SEPARATOR in answer:
        raise ValueError("a transcript is two lines: steps, then answer")
    return steps, answer


def _delivers(turn: Turn) -> bool:
    return turn.call is not None and turn.call.name in DELIVERING and turn.result.error is None


def _repeated(clause: str, times: int) -> str:
    return clause if times == 1 else f"{clause} x{times}"


def _delivered(turns: Sequence[Turn]) -> list[str]:
    """Return what was delivered, in order; a section written again holds what was written last."""
    parts: dict[str, str] = {}
    for index, turn in enumerate(turns):
        if turn.call is not None and _delivers(turn):
            key = str(turn.call.arguments.get("section", index))
            parts.pop(key, None)
            parts[key] = _head(turn.result.content.partition("\n")[0], RESULT_CHARACTERS)
    return list(parts.values())


def _step(turn: Turn) -> str:
    if turn.result.error is not None:
        return f"error {turn.result.error.replace('_', ' ')}"
    return "no call" if turn.call is None else _call(turn.call.name, turn.call.arguments)


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the tool's first word and its argument values; SQL loses the words that every query has."""
    values = [_SQL_FILLER.sub(" ", str(v)) if key == "sql" else str(v) for key, v in arguments.items()]
    return " ".join([name.partition("_")[0], *(_tail(value, VALUE_CHARACTERS) for value in values)])


def _fold(text: str) -> str:
    return " ".join(text.split())


def _head(text: str, limit: int) -> str:
    flat = _fold(text)
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def _tail(text: str, limit: int) -> str:
    flat = _fold(text)
    return flat if len(flat) <= limit else "…" + flat[-(limit - 1) :].lstrip()
