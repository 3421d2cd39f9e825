"""Truth from the ledger, checked against SQL that neither the ledger nor the expert uses."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from geartrain.environments.analyst.ledger import Ledger
from geartrain.environments.analyst.questions import Compare, Drill, Rank, Series, Share
from geartrain.environments.analyst.truth import apart, facts
from geartrain.errors import UserError

VIEW = """
CREATE TEMP VIEW sale AS SELECT i.invoice_id AS number, i.month AS month, i.country AS country, i.city AS city,
  c.customer AS customer, e.employee AS rep, g.genre AS genre, ar.artist AS artist,
  CAST(ROUND(l.price * 100) AS INTEGER) * l.quantity AS cents, l.quantity AS units
FROM line AS l JOIN invoice AS i ON i.invoice_id = l.invoice_id JOIN customer AS c ON c.customer_id = i.customer_id
  JOIN employee AS e ON e.employee_id = c.rep_id JOIN track AS t ON t.track_id = l.track_id
  JOIN genre AS g ON g.genre_id = t.genre_id JOIN album AS al ON al.album_id = t.album_id
  JOIN artist AS ar ON ar.artist_id = al.artist_id
"""
AMOUNTS = {"revenue": "SUM(cents) / 100.0", "orders": "COUNT(DISTINCT number)", "units": "SUM(units)"}


@pytest.fixture(scope="module")
def ledger(worlds: Path) -> Ledger:
    return Ledger(worlds / "val-0.sqlite")


@pytest.fixture(scope="module")
def books(worlds: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(worlds / "val-0.sqlite")
    connection.execute(VIEW)
    yield connection
    connection.close()


@pytest.mark.parametrize("metric", list(AMOUNTS))
@pytest.mark.parametrize("group", ["country", "city", "customer", "rep", "genre", "artist", "month"])
@pytest.mark.parametrize(
    "where", [(), (("country", "Canada"),), (("genre", "Rock"),), (("city", "Paris"), ("genre", "Latin"))]
)
def test_totals(
    ledger: Ledger, books: sqlite3.Connection, metric: str, group: str, where: tuple[tuple[str, str], ...]
) -> None:
    for period in ("2009", "2011-05"):
        filters = "".join(f" AND {column} = '{value}'" for column, value in where)
        sql = f"SELECT {group}, {AMOUNTS[metric]} FROM sale WHERE month LIKE '{period}%'{filters} GROUP BY {group}"
        assert ledger.totals(group, metric, period, *where) == pytest.approx(dict(books.execute(sql).fetchall()))


def test_rank(ledger: Ledger) -> None:
    part = Rank("country", "revenue", "lowest", 2, period="2010")
    totals = sorted(ledger.totals("country", "revenue", "2010").items(), key=lambda item: item[1])
    found = facts(part, ledger)
    if all(apart(a[1], b[1]) for a, b in ((totals[0], totals[1]), (totals[1], totals[2]))):
        assert found is not None
        assert [(fact.label, fact.value) for fact in found] == totals[:2]
    else:
        assert found is None


class Books:
    """A ledger with totals written by hand: {(group, period, filters): {label: value}}."""

    def __init__(self, totals: dict[tuple[object, ...], dict[str, float]]):
        self._totals = totals

    def totals(self, group: str, metric: str, period: str, *where: tuple[str, str]) -> dict[str, float]:
        return self._totals[(group, period, *where)]

    def total(self, metric: str, period: str, *where: tuple[str, str]) -> float:
        return self._totals[("", period, *where)].get("", 0.0)


def labels(part: object, books: Books) -> list[object] | None:
    found = facts(part, books)  # type: ignore[arg-type]
    return None if found is None else [fact.label or fact.value for fact in found]


def test_rank_refuses_ties_and_short_lists() -> None:
    part = Rank("country", "revenue", "highest", 2, period="2010")

    def ask(**totals: float) -> list[object] | None:
        return labels(part, Books({("country", "2010"): totals}))

    assert ask(a=9, b=7, c=5, d=1) == ["a", "b"]
    assert ask(a=9, b=9, c=5, d=1) is None
    assert ask(a=9, b=7, c=6.95, d=1) is None  # the last place is contested
    assert ask(a=9, b=7, c=5, d=5) == ["a", "b"]  # a tie below the answer is none
    assert ask(a=9, b=7, c=5) is None


def test_compare_needs_sales_and_a_change() -> None:
    def ask(*values: float) -> list[object] | None:
        months = [f"2010-0{number}" for number in range(1, len(values) + 1)]
        totals = {("", month, ("city", "Rome")): {"": value} for month, value in zip(months, values, strict=True)}
        part = Compare("revenue", "city", len(values), "growth", entity="Rome", months=months)
        return labels(part, Books(totals))

    assert ask(10, 20, 15) == [10, 20, 15, 50.0]
    assert ask(10, 20, 20) is None
    assert ask(10, 20, 10) is None
    assert ask(10, 0, 15) is None


def test_drill_needs_the_parent() -> None:
    part = Drill(("country", "city"), "revenue", "highest", period="2010")

    def ask(cities: dict[str, float]) -> list[object] | None:
        totals = {
            ("country", "2010"): {"Italy": 50, "Spain": 40},
            ("city", "2010", ("country", "Italy")): {"Rome": 30, "Milan": 20},
            ("city", "2010"): cities,
        }
        return labels(part, Books(totals))

    assert ask({"Madrid": 40, "Rome": 30, "Milan": 20}) == ["Italy", "Rome"]
    assert ask({"Rome": 30, "Milan": 20, "Madrid": 15}) is None


def test_series_the_odd_month_is_not_the_peak() -> None:
    def ask(asks: tuple[str, ...], **changes: float) -> list[object] | None:
        totals = {f"2010-{month:02d}": 100.0 + month % 2 for month in range(1, 13)}
        totals |= {f"2010-{name[1:]}": value for name, value in changes.items()}
        return labels(
            Series("units", "genre", asks, "Rock", "2010"), Books({("month", "2010", ("genre", "Rock")): totals})
        )

    assert ask(("outlier", "sum"), m04=10.0, m09=140.0) == ["2010-04", 1155.0]
    assert ask(("top", "bottom"), m04=10.0, m09=140.0) == ["2010-09", "2010-04"]
    assert ask(("outlier",), m09=200.0) is None
    assert ask(("mean",)) == [100.5]
    assert ask(("bottom",)) is None


def test_share_in_percent() -> None:
    country, genre = ("country", "Italy"), ("genre", "Rock")
    totals = {("", "2010", country): {"": 80.0}, ("", "2010", country, genre): {"": 20.0}, ("", "2010"): {"": 400.0}}
    assert labels(Share("units", True, "2010", "Italy", "Rock"), Books(totals)) == [25.0]
    assert labels(Share("units", False, "2010", "Italy"), Books(totals)) == [20.0]
    assert labels(Share("orders", False, "2010", "Italy"), Books(totals)) is None  # as much of the money


def test_people(ledger: Ledger, books: sqlite3.Connection) -> None:
    rows = books.execute(
        "SELECT a.employee, a.email, b.employee FROM employee a LEFT JOIN employee b ON b.employee_id = a.manager_id"
    )
    for name, email, manager in rows:
        assert (ledger.email_of(name), ledger.manager_of(name)) == (email, manager)
    for customer, rep in books.execute("SELECT customer, employee FROM customer JOIN employee ON employee_id = rep_id"):
        assert ledger.rep_of[customer] == rep


def test_a_missing_world_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such world"):
        Ledger(tmp_path / "x.sqlite")
