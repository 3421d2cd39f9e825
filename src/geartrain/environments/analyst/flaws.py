"""What the scripted expert gets wrong on purpose, and how often.

A demonstrator that is right everywhere leaves reinforcement learning nothing to
do; one that is wrong at random teaches noise. This one is wrong *systematically*,
where the prompt shows that the flaw applies, so that a policy cloned from it is
wrong by argmax and right about a third of the time by sampling. A flaw's action
is right nowhere else: what unlearns it need not unlearn anything that is sound.
"""

from collections.abc import Mapping
from dataclasses import dataclass

FLAWS: Mapping[str, str] = {
    "lowest_skipped": "skips the first row where the lowest are asked, as if it were none",
    "mean_for_orders": "takes the mean of the money where orders are to be counted",
    "month_repeated": "asks for the last month of a comparison with the filter of the month before",
    "parent_forgotten": "drops the parent's filter when drilling down to a city",
    "change_for_outlier": "takes the change over the year where the month that deviates most is asked",
    "office_for_rep": "mails the sales office instead of looking up the sales rep",
    "mail_forgotten": "finishes without the mail where a colleague is named",
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
    return {"rep": ["office_for_rep"], "employee": ["mail_forgotten"]}.get(to, [])
