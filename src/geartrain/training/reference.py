"""The credit reference of SGCD-P: what can be learned from a task's siblings, in words, for the teacher alone.

Five fields, as the paper asks for: state checks of successes, reusable good
branches, failed branches and why, likely points of deviation, what was masked.
This is the built-in summariser, made of rules; it needs both outcomes, or there
is nothing to contrast. Literals are masked before anything is written: a
teacher that reads the answer would credit the tokens that copy it.

Source: SGCD, arXiv:2606.12634; the rules: ours.
"""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from geartrain.models.spans import Decoder, covering, token_ends
from geartrain.trajectory import Trajectory, Turn

MASK = "<...>"
SUCCESSES, FAILURES = 2, 2
"""Siblings that are summarised of each outcome: the shortest successes, the longest failures."""
_LITERAL = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|[\w.+-]+@[\w.-]+|\b\d+(?:[.:-]\d+)*\b")
_SPOKEN = re.compile(r"'(?:[^']|'')*'|\\\".*?\\\"|[\w.+-]+@[\w.-]+|\b\d+(?:[.:-]\d+)*\b")
"""Literals in a message: a call is JSON, where a double quote within a value is escaped."""
_KEPT = 160
"""Characters of one call."""


def summarise(siblings: Sequence[Trajectory]) -> str | None:
    """Return the reference of one group, or None when its outcomes are all alike."""
    chosen = choose(siblings)
    successes, failures = [t for t in chosen if t.success], [t for t in chosen if not t.success]
    if not successes or not failures:
        return None
    best = successes[0]
    lines = [
        "Checks that successful attempts met: " + "; ".join(sanitise(goal) for goal in _goals(best)),
        "A good way: " + " > ".join(clause(turn) for turn in best.turns),
    ]
    for failure in failures:
        where = _deviation(best, failure)
        lines.append(f"A failed way left it at step {where + 1}: {_reason(best, failure, where)}")
    places = sorted({_deviation(best, failure) + 1 for failure in failures})
    lines.append("Attempts part at step " + ", ".join(map(str, places)))
    lines.append(f"Values are masked as {MASK}")
    return "\n".join(lines)


def choose(siblings: Sequence[Trajectory]) -> list[Trajectory]:
    """Return what is summarised: the shortest successes, then the longest failures (the paper's rule for overflow)."""
    successes = sorted((t for t in siblings if t.success), key=lambda t: len(t.turns))[:SUCCESSES]
    failures = sorted((t for t in siblings if not t.success), key=lambda t: -len(t.turns))[:FAILURES]
    return successes + failures


def sanitise(text: str) -> str:
    """Return text with every literal masked: quoted strings, numbers, dates, addresses."""
    return _LITERAL.sub(MASK, text)


def literal_tokens(trajectory: Trajectory, decoder: Decoder) -> Tensor:
    """Return which sampled tokens write a value that the reference masks, bool [T].

    The teacher reads a mask there, so it would write anything: no credit hangs on these tokens.
    """
    found_T = torch.zeros(len(trajectory.token_ids()), dtype=torch.bool)
    for turn, (first, _) in zip(trajectory.turns, trajectory.action_spans(), strict=True):
        spans = [match.span() for match in _SPOKEN.finditer(turn.action_text)]
        ends = token_ends(turn.action_ids, turn.action_text, decoder) if spans else None
        for start, stop in spans if ends is not None else ():
            assert ends is not None
            found_T[first + covering(ends, start) : first + covering(ends, stop - 1) + 1] = True
    return found_T


def _goals(trajectory: Trajectory) -> list[str]:
    return [goal for turn in trajectory.turns for goal in turn.subgoals]


def clause(turn: Turn) -> str:
    """Return one turn's call with its values masked."""
    if turn.call is None:
        return "no call"
    arguments = ", ".join(sanitise(str(value))[:_KEPT] for value in turn.call.arguments.values())
    return f"{turn.call.name}({arguments})"


def _deviation(success: Trajectory, failure: Trajectory) -> int:
    """Return the first turn at which the two did not say the same."""
    pairs = zip(success.turns, failure.turns, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a.action_text != b.action_text), None)
    return min(len(success.turns), len(failure.turns)) - 1 if same is None else same


def _reason(success: Trajectory, failure: Trajectory, where: int) -> str:
    turn = failure.turns[where]
    what = f"it did {clause(turn)} instead of {clause(success.turns[where])}"
    errors = [later.result.error for later in failure.turns[where:] if later.result.error]
    if errors:
        return f"{what}, and met {errors[0].replace('_', ' ')}"
    return f"{what}, and " + ("was cut" if failure.truncated else "ended without success")
