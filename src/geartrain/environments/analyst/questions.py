"""The kinds of question: their parameters, length, flaw sites, and true answers.

A task is one or more parts, each an instance of a class here. Truth comes from
the ledger; `facts` is None where the answer would be a tie, empty, or too close
to call, and such parameters are never asked.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any, ClassVar, Protocol

from geartrain.environments.analyst.editions import MONTHS, YEARS
from geartrain.environments.analyst.ledger import Ledger
from geartrain.environments.analyst.verification import Fact

METRICS = ("revenue", "orders", "units")
ORDERS = ("highest", "lowest")
CHANGES = ("diff", "growth", "share")
ORDINALS = ("first", "second", "third", "fourth")
MONTH_NAMES = (
    "january february march april may june july august september october november december".split()
)

MARGIN = 0.03
"""Least relative distance between an answer and what could be taken for it; above the verifier's tolerance."""


class Part(Protocol):
    """One question of a task. `kind` names the class in a task's record."""

    kind: ClassVar[str]
    metric: str

    def sections(self) -> list[str]:
        """Return the report sections to write, in order."""
        ...

    def steps(self) -> int:
        """Return the calls of the scripted solution, `finish` not included."""
        ...

    def facts(self, ledger: Ledger) -> list[Fact] | None:
        """Return the true content of each section, or None if the question has no clear answer."""
        ...

    def flaws(self) -> list[str]:
        """Return the expert's flaws (`flaws.FLAWS`) that this part gives room to."""
        ...

    def redraw(self, rng: random.Random, ledger: Ledger) -> "Part":
        """Return the same form of question about other entities and periods."""
        ...


@dataclass(frozen=True)
class Rank:
    """The k groups of highest or lowest metric in a period, optionally within one country."""

    kind: ClassVar[str] = "rank"
    group: str
    metric: str
    order: str
    k: int
    within: bool = False
    period: str = ""
    country: str = ""

    def sections(self) -> list[str]:
        return list(ORDINALS[: self.k])

    def steps(self) -> int:
        return 1 + self.k

    def facts(self, ledger: Ledger) -> list[Fact] | None:
        where = [("country", self.country)] if self.country else []
        totals = ledger.totals(self.group, self.metric, self.period, *where)
        ranked = sorted(totals.items(), key=lambda item: item[1], reverse=self.order == "highest")[: self.k + 1]
        if len(totals) < self.k + 2 or not all(apart(a[1], b[1]) for a, b in pairwise(ranked)):
            return None
        return [Fact("label", label, value) for label, value in ranked[: self.k]]

    def flaws(self) -> list[str]:
        return _metric_flaws(self.metric) + _order_flaws(self.order)

    def redraw(self, rng: random.Random, ledger: Ledger) -> "Rank":
        # An artist sells too little in a month, a genre too little in a country's month.
        yearly = self.group == "artist" or self.within or rng.random() < 0.3
        period = str(rng.choice(YEARS)) if yearly else rng.choice(MONTHS)
        return replace(self, period=period, country=rng.choice(ledger.labels("country")) if self.within else "")


@dataclass(frozen=True)
class Compare:
    """One metric of one entity in several months of a year, and the change from the first to the last."""

    kind: ClassVar[str] = "compare"
    metric: str
    column: str
    count: int
    change: str = ""
    entity: str = ""
    months: Sequence[str] = ()

    def sections(self) -> list[str]:
        names = [MONTH_NAMES[int(month[5:]) - 1] for month in self.months]
        return [*names, self.change] if self.change else names

    def steps(self) -> int:
        return 2 * self.count + (2 if self.change else 0)

    def facts(self, ledger: Ledger) -> list[Fact] | None:
        values = [ledger.total(self.metric, month, (self.column, self.entity)) for month in self.months]
        if not all(values) or not apart(values[-1], values[-2]) or not apart(values[-1], values[0]):
            return None
        facts = [Fact("value", None, value) for value in values]
        if self.change:
            facts.append(Fact("value", None, change(self.change, values[0], values[-1])))
        return facts

    def flaws(self) -> list[str]:
        return _metric_flaws(self.metric) + (["month_repeated"] if self.change else [])

    def redraw(self, rng: random.Random, ledger: Ledger) -> "Compare":
        year = rng.choice(YEARS)
        months = [f"{year}-{month:02d}" for month in sorted(rng.sample(range(1, 13), self.count))]
        return replace(self, entity=rng.choice(_quotable(ledger.labels(self.column))), months=months)


@dataclass(frozen=True)
class Drill:
    """The best group of a period, then the best sub-group within it, and so on."""

    kind: ClassVar[str] = "drill"
    levels: Sequence[str]
    metric: str
    order: str
    period: str = ""

    def sections(self) -> list[str]:
        return list(self.levels)

    def steps(self) -> int:
        return 2 * len(self.levels)

    def facts(self, ledger: Ledger) -> list[Fact] | None:
        facts: list[Fact] = []
        where: list[tuple[str, str]] = []
        for level in self.levels:
            totals = ledger.totals(level, self.metric, self.period, *where)
            ranked = sorted(totals.items(), key=lambda item: item[1], reverse=self.order == "highest")
            if not ranked or (len(ranked) > 1 and not apart(ranked[0][1], ranked[1][1])) or "'" in ranked[0][0]:
                return None
            facts.append(Fact("label", *ranked[0]))
            where = [(level, ranked[0][0])]
        return facts if self._needs_parent(ledger, facts) else None

    def _needs_parent(self, ledger: Ledger, facts: Sequence[Fact]) -> bool:
        """Whether the second answer is another one when the first is ignored; else the question is no drill-down."""
        everywhere = ledger.totals(self.levels[1], self.metric, self.period)
        pick = max if self.order == "highest" else min
        return pick(everywhere, key=lambda label: everywhere[label]) != facts[1].label

    def flaws(self) -> list[str]:
        return (
            _metric_flaws(self.metric)
            + _order_flaws(self.order)
            + (["parent_forgotten"] if self.levels[1] == "city" else [])
        )

    def redraw(self, rng: random.Random, ledger: Ledger) -> "Drill":
        return replace(self, period=str(rng.choice(YEARS)) if rng.random() < 0.3 else rng.choice(MONTHS))


@dataclass(frozen=True)
class Series:
    """The months of a year of one country, genre or sales rep: the odd one out, the peak, the low, total and mean."""

    kind: ClassVar[str] = "series"
    metric: str
    column: str
    asks: Sequence[str]
    entity: str = ""
    year: str = ""

    def sections(self) -> list[str]:
        return [SERIES_SECTIONS[ask] for ask in self.asks]

    def steps(self) -> int:
        return 1 + 2 * len(self.asks)

    def facts(self, ledger: Ledger) -> list[Fact] | None:
        totals = ledger.totals("month", self.metric, self.year, (self.column, self.entity))
        if len(totals) < 12:
            return None
        mean = fmean(totals.values())
        by_value = sorted(totals.items(), key=lambda item: item[1])
        by_distance = sorted(totals.items(), key=lambda item: abs(item[1] - mean))
        (odd, second), peak, low = by_distance[:-3:-1], by_value[-1], by_value[0]
        clear = {
            "outlier": apart(abs(odd[1] - mean), abs(second[1] - mean)) and odd[0] != peak[0],
            "top": apart(peak[1], by_value[-2][1]),
            "bottom": apart(low[1], by_value[1][1]),
        }
        answers = {
            "outlier": Fact("label", *odd),
            "top": Fact("label", *peak),
            "bottom": Fact("label", *low),
            "sum": Fact("value", None, sum(totals.values())),
            "mean": Fact("value", None, mean),
        }
        return [answers[ask] for ask in self.asks] if all(clear.get(ask, True) for ask in self.asks) else None

    def flaws(self) -> list[str]:
        return _metric_flaws(self.metric) + (["top_for_outlier"] if "outlier" in self.asks else [])

    def redraw(self, rng: random.Random, ledger: Ledger) -> "Series":
        return replace(self, entity=rng.choice(_quotable(ledger.labels(self.column))), year=str(rng.choice(YEARS)))


@dataclass(frozen=True)
class Share:
    """What part of a metric comes from one genre of a country (`genre` set) or from one country of all."""

    kind: ClassVar[str] = "share"
    metric: str
    by_genre: bool
    period: str = ""
    country: str = ""
    genre: str = ""

    def sections(self) -> list[str]:
        return ["share"]

    def steps(self) -> int:
        return 4

    def facts(self, ledger: Ledger) -> list[Fact] | None:
        country = ("country", self.country)
        if self.by_genre:
            some = ledger.total(self.metric, self.period, country, ("genre", self.genre))
            whole = ledger.total(self.metric, self.period, country)
        else:
            some, whole = ledger.total(self.metric, self.period, country), ledger.total(self.metric, self.period)
        if not some or some > 0.9 * whole:
            return None
        if self.metric == "orders":
            revenue = ledger.total("revenue", self.period, country) / ledger.total("revenue", self.period)
            if not apart(revenue, some / whole):  # counting money instead must not give the same share
                return None
        return [Fact("value", None, 100.0 * some / whole)]

    def flaws(self) -> list[str]:
        return _metric_flaws(self.metric)

    def redraw(self, rng: random.Random, ledger: Ledger) -> "Share":
        return replace(
            self,
            period=str(rng.choice(YEARS)) if self.by_genre or rng.random() < 0.3 else rng.choice(MONTHS),
            country=rng.choice(ledger.labels("country")),
            genre=rng.choice(_quotable(ledger.labels("genre"))) if self.by_genre else "",
        )


SERIES_SECTIONS = {"outlier": "odd", "top": "peak", "bottom": "low", "sum": "total", "mean": "mean"}
"""Section by operation, for `Series`."""

KINDS: dict[str, type[Part]] = {part.kind: part for part in (Rank, Compare, Drill, Series, Share)}  # type: ignore[type-abstract]


def to_record(part: Part) -> dict[str, Any]:
    """Return a part as JSON-ready parameters; `from_record` restores it."""
    record = asdict(part)  # type: ignore[call-overload]
    return {"kind": part.kind, **{k: list(v) if isinstance(v, tuple | list) else v for k, v in record.items()}}


def from_record(record: Mapping[str, Any]) -> Part:
    """Rebuild a part from its parameters."""
    fields = {key: value for key, value in record.items() if key != "kind"}
    return KINDS[record["kind"]](**fields)


def change(kind: str, first: float, last: float) -> float:
    """Return last - first, the growth in percent, or the first in percent of the last."""
    return {"diff": last - first, "growth": 100 * (last - first) / first, "share": 100 * first / last}[kind]


def apart(a: float, b: float) -> bool:
    """Return whether two values are too far from each other to be taken for one another."""
    return abs(a - b) > max(0.02, MARGIN * max(abs(a), abs(b)))


def _metric_flaws(metric: str) -> list[str]:
    return ["orders_as_revenue"] if metric == "orders" else []


def _order_flaws(order: str) -> list[str]:
    return ["worst_as_best"] if order == "lowest" else []


def _quotable(labels: Sequence[str]) -> list[str]:
    return [label for label in labels if "'" not in label]
