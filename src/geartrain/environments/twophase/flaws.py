"""What the scripted expert gets wrong on purpose, and how often.

Each flaw is a lure that the agent can see: an option of the plan with a lure
word among its facts is always wrong, and so is the lure's verb at a stop. So a
policy cloned from the expert is wrong by argmax where a lure is, and what
unlearns it unlearns nothing that is sound.
"""

from collections.abc import Mapping
from dataclasses import dataclass

PLAN_LURES: Mapping[str, tuple[str, str]] = {
    "shortcut_taken": ("route", "shortcut"),
    "cheap_taken": ("cart", "cheap"),
    "popular_taken": ("recipe", "popular"),
    "near_first": ("first", "near"),
}
"""Flaw -> (decision in which it applies, fact of the option that lures)."""
DO_LURES: Mapping[str, tuple[str, str]] = {
    "lock_forced": ("locked", "force"),
    "weight_dragged": ("heavy", "drag"),
}
"""Flaw -> (state of the stop where it applies, verb that the expert uses there)."""
FLAWS: Mapping[str, str] = {
    "shortcut_taken": "plans the route that is a shortcut, though it does not hold the load",
    "cheap_taken": "plans the cart that is cheap, though it is of the wrong kind",
    "popular_taken": "plans the recipe that is popular, though it has what is to be avoided",
    "near_first": "plans the near station first, though another must come before it",
    "lock_forced": "forces what is locked and fragile, which breaks it",
    "weight_dragged": "drags what is heavy and fragile, which breaks it",
}
"""Name -> what it does."""


@dataclass(frozen=True)
class Habits:
    """How often the flawed expert does what, as probabilities."""

    flaw: float = 0.65
    """Per lure."""
    slip: float = 0.05
    """Per stop that is not fragile: a wrong verb first, then `repair` and the right one."""
    dawdle: float = 0.25
    """Per episode: one harmless `wait` at the first stop."""
    broken_call: float = 0.03
    """Per call: a malformed one first, mended after seeing the error."""


FLAWLESS = Habits(flaw=0.0, slip=0.0, dawdle=0.0, broken_call=0.0)
