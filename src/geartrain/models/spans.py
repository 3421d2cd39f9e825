"""Which sampled tokens cover which characters of a message.

Found by decoding prefixes of the ids as they were sampled, never by tokenising
the text again (rl-faults B1, D9).
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol


class Decoder(Protocol):
    """What is asked of a tokenizer."""

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        """Return the text of ids."""
        ...


def token_ends(ids: Sequence[int], text: str, decoder: Decoder) -> list[int] | None:
    """Return for each sampled id how many characters of `text` are complete once it is read.

    A character spread over several tokens is complete with the last of them.
    None when `text` is not what the ids say.
    """
    whole = decoder.decode(list(ids), skip_special_tokens=False)
    offset = whole.find(text)
    if offset < 0:
        return None
    ends = []
    done = 0
    for index in range(len(ids)):
        decoded = decoder.decode(list(ids[: index + 1]), skip_special_tokens=False)
        while done < min(len(decoded), len(whole)) and decoded[done] == whole[done]:
            done += 1
        ends.append(min(max(done - offset, 0), len(text)))
    return ends


def covering(ends: Sequence[int], position: int) -> int:
    """Return the token in which character `position` is complete; the last one for a position past the end."""
    return min(bisect_right(ends, position), len(ends) - 1)
