"""Whether a choice fits: read from the facts that the board shows, and from what the prompt asks."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def misfits(facts: Sequence[str], parameters: Mapping[str, Any], decision: str, chosen: Collection[str]) -> list[str]:
    """Return why an option does not fit, for people; nothing when it does.

    `chosen` are the names of the options planned before it.
    """
    reasons = []
    for fact in facts:
        word, _, rest = fact.partition(" ")
        if word == "holds" and int(rest) < parameters["load"]:
            reasons.append(f"{fact}, the load is {parameters['load']}")
        if word == "after" and rest not in chosen:
            reasons.append(f"must come {fact}")
        if fact == parameters.get("avoid"):
            reasons.append(f"has {fact}")
    if decision == "cart" and parameters["need"] not in facts:
        reasons.append(f"is not {parameters['need']}")
    return reasons
