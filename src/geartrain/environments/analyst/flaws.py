"""What the scripted expert gets wrong on purpose, and how often.

A demonstrator that is right everywhere leaves reinforcement learning nothing to
do; one that is wrong at random teaches noise. This one is wrong *systematically*,
where the prompt shows that the flaw applies, so that a policy cloned from it is
wrong by argmax and right about a third of the time by sampling.
"""

from collections.abc import Mapping
from dataclasses import dataclass

FLAWS: Mapping[str, str] = {
    "worst_as_best": "sorts DESC where the lowest are asked",
    "orders_as_revenue": "adds up money where orders are to be counted",
    "month_repeated": "asks for the last month of a comparison with the filter of the month before",
    "parent_forgotten": "drops the parent's filter when drilling down to a city",
    "top_for_outlier": "takes the peak where the month that deviates most is asked",
    "manager_for_rep": "mails the manager instead of the sales rep",
    "mail_forgotten": "finishes without the mail to the manager",
}
"""Name -> what it does. Where each applies: `Part.flaws`, `mail_flaws`."""


@dataclass(frozen=True)
class Habits:
    """How often the flawed expert does what, as probabilities."""

    flaw: float = 0.65
    """Per flaw and part where it applies."""
    broken_call: float = 0.03
    """Per call: a malformed one first, repaired after seeing the error."""
    look_around: float = 0.25
    """Per episode: a redundant look at the tables first."""


FLAWLESS = Habits(flaw=0.0, broken_call=0.0, look_around=0.0)


def mail_flaws(to: str) -> list[str]:
    """Return the flaws that a mail to this kind of recipient gives room to."""
    return {"rep": ["manager_for_rep"], "manager": ["mail_forgotten"]}.get(to, [])
