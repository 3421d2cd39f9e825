"""Names that an agent quotes and never read: `WHERE country = 'Brasil'` when only "Brazil" was shown.

A small model's typical fault is a name that is almost copied. The query runs,
so no error points at it; the answer is silently wrong. The rule is ours and is
narrow on purpose: only SQL string literals of letters count (a date may be
written in another form than it was read), and any occurrence in what the agent
was shown before grounds them, whatever the case.
"""

import re

UNGROUNDED_REWARD = -0.5
"""Token reward of the tokens of an ungrounded literal: below a fault that a tool reported, which is certain."""

_LITERAL = re.compile(r"'((?:[^'\"\\]|'')+)'")
_NAME = re.compile(r"[^\W\d_](?:[^\d_]*[^\W\d_])?")
_SHORTEST = 3


def ungrounded(message: str, seen: str) -> list[tuple[int, int]]:
    """Return the [start, stop) characters of quoted names in `message` that do not occur in `seen`.

    `seen` is everything that the agent was shown before the message, casefolded.
    """
    spans = []
    for match in _LITERAL.finditer(message):
        name = match.group(1).replace("''", "'").strip("%").strip()
        if len(name) >= _SHORTEST and _NAME.fullmatch(name) and name.casefold() not in seen:
            spans.append(match.span(1))
    return spans
