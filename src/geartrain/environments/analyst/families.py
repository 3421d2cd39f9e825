"""Task families: which parts they are made of, the draft of a task of given difficulty, and its entities.

Six families are trained; two are held out (`ood`) and combine the same tools
and questions in ways that training never shows.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from geartrain.environments.analyst.editions import MONTHS, YEARS
from geartrain.environments.analyst.flaws import mail_flaws
from geartrain.environments.analyst.ledger import Ledger
from geartrain.environments.analyst.questions import (
    CHANGES,
    METRICS,
    ORDERS,
    SERIES_SECTIONS,
    Compare,
    Drill,
    Part,
    Rank,
    Series,
    Share,
    flaw_sites,
    steps,
)

STEPS = range(4, 21)
"""Allowed lengths of the scripted solution."""
BANDS = ((range(4, 6), 0.50), (range(6, 9), 0.30), (range(9, 13), 0.14), (range(13, 21), 0.06))
"""Ranges of length and how often each is wanted."""
_PROPOSALS = 6000


@dataclass(frozen=True)
class Draft:
    """The form of a task, before entities and periods are drawn."""

    parts: tuple[Part, ...]
    mail: str = ""
    """"rep", "employee" or "manager"; empty for no mail."""
    mail_about: str = ""
    """Section whose answer the mail's recipient is found from; empty when a person is named."""

    def steps(self) -> int:
        """Return the calls of the scripted solution."""
        return sum(steps(part) for part in self.parts) + (2 if self.mail else 0) + 1

    def flaws(self) -> list[str]:
        """Return every place where the flawed expert may go wrong."""
        return [flaw for part in self.parts for flaw in flaw_sites(part)] + mail_flaws(self.mail)


def _ranks(rng: random.Random, groups: tuple[str, ...], *, parts: int, most: int) -> tuple[Part, ...]:
    drawn: list[Part] = []
    for _ in range(parts):
        group = rng.choice(groups)
        # Orders of a genre or an artist are no measure a shop keeps: an invoice counts for several of them.
        metrics = ("revenue", "units") if group in ("genre", "artist") else METRICS
        k = rng.randint(2 if parts == 1 else 1, most)
        within = group == "genre" and rng.random() < 0.3
        drawn.append(Rank(group, rng.choice(metrics), rng.choice(ORDERS), k, within))
    return tuple(drawn)


def _ranking(rng: random.Random) -> Draft:
    return Draft(_ranks(rng, ("country", "city"), parts=rng.randint(1, 4), most=4))


def _comparison(rng: random.Random) -> Draft:
    count = rng.randint(2, 8)
    kind = rng.choice(("", *CHANGES))
    return Draft((Compare(rng.choice(METRICS), "country", count, kind),))


_CHAINS = (
    ("country", "city"),
    ("country", "city", "customer"),
    ("country", "city", "genre"),
    ("country", "customer"),
    ("country", "genre"),
    ("city", "genre"),
)


def _drilldown(rng: random.Random) -> Draft:
    parts = [Drill(rng.choice(_CHAINS), rng.choice(METRICS), rng.choice(ORDERS)) for _ in range(rng.randint(1, 3))]
    return Draft(tuple(parts))


def _join(rng: random.Random) -> Draft:
    return Draft(_ranks(rng, ("genre", "artist", "rep"), parts=rng.randint(1, 4), most=3))


def _anomaly(rng: random.Random) -> Draft:
    parts = []
    for _ in range(rng.randint(1, 3)):
        count = rng.randint(1, 3)
        column = rng.choice(("country", "rep"))
        asked = rng.sample(list(SERIES_SECTIONS), count)
        parts.append(Series(rng.choice(METRICS), column, tuple(ask for ask in SERIES_SECTIONS if ask in asked)))
    return Draft(tuple(parts))


def _mail(rng: random.Random) -> Draft:
    to = rng.choice(("rep", "employee", "manager"))
    return Draft(_ranks(rng, ("country", "city", "rep"), parts=rng.randint(1, 3), most=3), to)


def _share(rng: random.Random) -> Draft:
    parts = []
    for _ in range(rng.randint(1, 3)):
        by_genre = rng.random() < 0.5
        metric = rng.choice(("revenue", "units") if by_genre else METRICS)
        parts.append(Share(metric, by_genre))
    return Draft(tuple(parts))


def _staff(rng: random.Random) -> Draft:
    parts = _ranks(rng, ("rep",), parts=rng.randint(1, 3), most=3)
    return Draft(parts, rng.choice(("employee", "manager")), mail_about="last")


TRAINED: Mapping[str, Callable[[random.Random], Draft]] = {
    "ranking": _ranking,
    "comparison": _comparison,
    "drilldown": _drilldown,
    "join": _join,
    "anomaly": _anomaly,
    "mail": _mail,
}
HELD_OUT: Mapping[str, Callable[[random.Random], Draft]] = {"share": _share, "staff": _staff}


def draft(family: str, rng: random.Random, *, flaws: int) -> Draft:
    """Return a draft with exactly `flaws` flaw sites, its length drawn from those of `BANDS` that the family has."""
    pools = _pools(family)
    bands = [(band, weight) for band, weight in BANDS if (band, flaws) in pools]
    band = rng.choices([band for band, _ in bands], [weight for _, weight in bands])[0]
    return rng.choice(pools[band, flaws])


@cache
def _pools(family: str) -> Mapping[tuple[range, int], Sequence[Draft]]:
    """Return many drafts of a family, by band of length and number of flaw sites."""
    rng = random.Random(f"drafts/{family}")  # noqa: S311 - not a secret
    propose = TRAINED.get(family) or HELD_OUT[family]
    pools: dict[tuple[range, int], list[Draft]] = {}
    for _ in range(_PROPOSALS):
        proposal = propose(rng)
        for band, _ in BANDS:
            if proposal.steps() in band:
                pools.setdefault((band, len(proposal.flaws())), []).append(proposal)
    return pools


def redraw(part: Part, rng: random.Random, ledger: Ledger) -> Part:
    """Return the same form of question about entities and periods drawn anew; it may have no clear answer."""

    def entity(column: str) -> str:
        return rng.choice([label for label in ledger.labels(column) if "'" not in label])

    def period(*, yearly: bool = False) -> str:
        return str(rng.choice(YEARS)) if yearly or rng.random() < 0.3 else rng.choice(MONTHS)

    match part:
        case Rank():
            # An artist sells too little in a month, a genre too little in a country's month.
            when = period(yearly=part.group == "artist" or part.within)
            return replace(part, period=when, country=entity("country") if part.within else "")
        case Compare():
            return replace(part, entity=entity(part.column), months=_months(rng, part.count))
        case Drill():
            return replace(part, period=period())
        case Series():
            return replace(part, entity=entity(part.column), year=str(rng.choice(YEARS)))
        case Share():
            genre = entity("genre") if part.by_genre else ""
            return replace(part, period=period(yearly=part.by_genre), country=entity("country"), genre=genre)


def _months(rng: random.Random, count: int) -> Sequence[str]:
    year = rng.choice(YEARS)
    return [f"{year}-{month:02d}" for month in sorted(rng.sample(range(1, 13), count))]
