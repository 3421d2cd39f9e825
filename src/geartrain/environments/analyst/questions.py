"""The kinds of question that tasks are made of: parameters, length, and where the expert may go wrong.

A task is one or more parts, each an instance of a class here. Their true answers
are in `truth`; what is written to a prompt is in `wording`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

METRICS = ("revenue", "orders", "units")
ORDERS = ("highest", "lowest")
CHANGES = ("diff", "growth", "share")
ORDINALS = ("first", "second", "third", "fourth")
MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
SERIES_SECTIONS = {"outlier": "odd", "top": "peak", "bottom": "low", "sum": "total", "mean": "mean"}
"""Report section by what is asked of a `Series`."""


@dataclass(frozen=True)
class Rank:
    """The k groups of highest or lowest metric in a period, optionally within one country."""

    kind: ClassVar[str] = "rank"
    group: str
    """ "country", "city", "genre", "artist" or "rep"."""
    metric: str
    order: str
    k: int
    within: bool = False
    period: str = ""
    """ "2010" or "2010-03"."""
    country: str = ""


@dataclass(frozen=True)
class Compare:
    """One metric of one entity in several months of a year, and the change from the first to the last."""

    kind: ClassVar[str] = "compare"
    metric: str
    column: str
    """ "country" or "city"."""
    count: int
    change: str = ""
    entity: str = ""
    months: Sequence[str] = ()


@dataclass(frozen=True)
class Drill:
    """The best group of a period, then the best sub-group within it, and so on."""

    kind: ClassVar[str] = "drill"
    levels: Sequence[str]
    metric: str
    order: str
    period: str = ""


@dataclass(frozen=True)
class Series:
    """The months of a year of one country, genre or sales rep: the odd one out, the peak, the low, total and mean."""

    kind: ClassVar[str] = "series"
    metric: str
    column: str
    asks: Sequence[str]
    entity: str = ""
    year: str = ""


@dataclass(frozen=True)
class Share:
    """What part of a metric comes from one genre of a country, or from one country of all."""

    kind: ClassVar[str] = "share"
    metric: str
    by_genre: bool
    period: str = ""
    country: str = ""
    genre: str = ""


Part = Rank | Compare | Drill | Series | Share
KINDS: Mapping[str, type[Part]] = {kind.kind: kind for kind in (Rank, Compare, Drill, Series, Share)}


def sections(part: Part) -> list[str]:
    """Return the report sections that a part asks for, in order."""
    match part:
        case Rank():
            return list(ORDINALS[: part.k])
        case Compare():
            return [*part.months, part.change] if part.change else list(part.months)
        case Drill():
            return list(part.levels)
        case Series():
            return [SERIES_SECTIONS[ask] for ask in part.asks]
        case Share():
            return ["share"]


def steps(part: Part) -> int:
    """Return the calls of a part's scripted solution; queries, analyses and one report per section."""
    match part:
        case Rank():
            return 1 + part.k
        case Compare():
            return 2 * part.count + (2 if part.change else 0)
        case Drill():
            return 2 * len(part.levels)
        case Series():
            return 1 + 2 * len(part.asks)
        case Share():
            return 4


def flaw_sites(part: Part) -> list[str]:
    """Return the expert's flaws (`flaws.FLAWS`) that a part gives room to."""
    found = ["mean_for_orders"] if part.metric == "orders" else []
    match part:
        case Rank() | Drill() if part.order == "lowest":
            found.append("lowest_skipped")
        case Compare() if part.change:
            found.append("month_repeated")
        case Series() if "outlier" in part.asks:
            found.append("change_for_outlier")
    if isinstance(part, Drill) and part.levels[1] == "city":
        found.append("parent_forgotten")
    return found


def to_record(part: Part) -> dict[str, Any]:
    """Return a part as JSON-ready parameters; `from_record` restores it."""
    values = {name: list(value) if isinstance(value, tuple | list) else value for name, value in asdict(part).items()}
    return {"kind": part.kind, **values}


def from_record(record: Mapping[str, Any]) -> Part:
    """Rebuild a part from its parameters."""
    return KINDS[record["kind"]](**{name: value for name, value in record.items() if name != "kind"})
