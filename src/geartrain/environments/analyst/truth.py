"""True answers, from the ledger; None where a question has no clear one, and then it is never asked."""

from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean

from geartrain.environments.analyst.ledger import Ledger
from geartrain.environments.analyst.questions import Compare, Drill, Part, Rank, Series, Share
from geartrain.environments.analyst.verification import Fact

MARGIN = 0.03
"""Least relative distance between an answer and what could be taken for it; above the verifier's tolerance."""


def facts(part: Part, ledger: Ledger) -> list[Fact] | None:
    """Return the true content of each of a part's sections, or None on a tie, an empty or a too close result."""
    match part:
        case Rank():
            return _rank(part, ledger)
        case Compare():
            return _compare(part, ledger)
        case Drill():
            return _drill(part, ledger)
        case Series():
            return _series(part, ledger)
        case Share():
            return _share(part, ledger)


def apart(a: float, b: float) -> bool:
    """Return whether two values are too far from each other to be taken for one another."""
    return abs(a - b) > max(0.02, MARGIN * max(abs(a), abs(b)))


def _ranked(totals: Mapping[str, float], order: str) -> list[tuple[str, float]]:
    return sorted(totals.items(), key=lambda item: item[1], reverse=order == "highest")


def _rank(part: Rank, ledger: Ledger) -> list[Fact] | None:
    where = [("country", part.country)] if part.country else []
    ranked = _ranked(ledger.totals(part.group, part.metric, part.period, *where), part.order)
    # Two groups more than asked: the best and the worst are then different ones, and the last place is contested.
    if len(ranked) < part.k + 2 or not all(apart(a[1], b[1]) for a, b in pairwise(ranked[: part.k + 1])):
        return None
    return [Fact("label", label, value) for label, value in ranked[: part.k]]


def _compare(part: Compare, ledger: Ledger) -> list[Fact] | None:
    values = [ledger.total(part.metric, month, (part.column, part.entity)) for month in part.months]
    first, last = values[0], values[-1]
    # The month before the last must differ from it: it is what a careless agent asks for twice.
    if not all(values) or not apart(last, values[-2]) or not apart(last, first):
        return None
    found = [Fact("value", None, value) for value in values]
    if part.change:
        changes = {"diff": last - first, "growth": 100 * (last - first) / first, "share": 100 * first / last}
        found.append(Fact("value", None, changes[part.change]))
    return found


def _drill(part: Drill, ledger: Ledger) -> list[Fact] | None:
    found: list[Fact] = []
    where: list[tuple[str, str]] = []
    for level in part.levels:
        ranked = _ranked(ledger.totals(level, part.metric, part.period, *where), part.order)
        label, value = ranked[0]
        if (len(ranked) > 1 and not apart(value, ranked[1][1])) or "'" in label:
            return None
        found.append(Fact("label", label, value))
        where = [(level, label)]
    # If the second answer is also the best everywhere, or ties with it, the question is no drill-down.
    everywhere = ledger.totals(part.levels[1], part.metric, part.period)
    best = _ranked(everywhere, part.order)[0][1]
    return found if apart(best, everywhere[str(found[1].label)]) else None


def _series(part: Series, ledger: Ledger) -> list[Fact] | None:
    totals = ledger.totals("month", part.metric, part.year, (part.column, part.entity))
    if len(totals) < 12:
        return None
    mean = fmean(totals.values())
    low, second_low, *_, second_peak, peak = _ranked(totals, "lowest")
    odd, second_odd = sorted(totals.items(), key=lambda item: -abs(item[1] - mean))[:2]
    clear = {
        # The odd month must not be the best one, or the two questions are the same.
        "outlier": apart(abs(odd[1] - mean), abs(second_odd[1] - mean)) and odd[0] != peak[0],
        "top": apart(peak[1], second_peak[1]),
        "bottom": apart(low[1], second_low[1]),
    }
    answers = {
        "outlier": Fact("label", *odd),
        "top": Fact("label", *peak),
        "bottom": Fact("label", *low),
        "sum": Fact("value", None, sum(totals.values())),
        "mean": Fact("value", None, mean),
    }
    return [answers[ask] for ask in part.asks] if all(clear.get(ask, True) for ask in part.asks) else None


def _share(part: Share, ledger: Ledger) -> list[Fact] | None:
    country = ("country", part.country)
    some_of = [country, ("genre", part.genre)] if part.by_genre else [country]
    whole_of = [country] if part.by_genre else []

    def portion(metric: str) -> float:
        whole = ledger.total(metric, part.period, *whole_of)
        return 100.0 * ledger.total(metric, part.period, *some_of) / whole if whole else 0.0

    share = portion(part.metric)
    if not 0.5 < share < 90.0:
        return None
    # Adding up money instead must not give the same share.
    if part.metric == "orders" and not apart(share, portion("revenue")):
        return None
    return [Fact("value", None, share)]
