"""The books that answers are checked against: an edition read once, added up in Python.

Independent of the SQL that agents and the scripted expert write: money is in
whole cents, a filter is a comparison in Python.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from geartrain.errors import UserError


class Sale(NamedTuple):
    """An invoice, or one line of it (then genre and artist are set and cents and units are the line's)."""

    invoice: int
    month: str
    country: str
    city: str
    customer: str
    rep: str
    cents: int
    units: int
    genre: str = ""
    artist: str = ""


class Employee(NamedTuple):
    """A person of the shop; `manager` is a name, or None for who heads it."""

    name: str
    email: str
    manager: str | None


class Ledger:
    """The sales and the people of one edition."""

    def __init__(self, path: Path):
        if not path.is_file():
            raise UserError(f"{path}: no such world; build the worlds first (the `tasks` stage does)")
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            self._read(connection)
        finally:
            connection.close()
        self.totals = lru_cache(maxsize=65_536)(self._totals)
        """See `_totals`."""
        self._labels: dict[str, list[str]] = {}

    def _read(self, connection: sqlite3.Connection) -> None:
        people = {key: (name, boss, email) for key, name, boss, email in connection.execute("SELECT * FROM employee")}
        self.employees = [
            Employee(name, email, people[boss][0] if boss is not None else None)
            for name, boss, email in people.values()
        ]
        customers = {
            key: (name, people[rep][0])
            for key, name, rep in connection.execute("SELECT customer_id, customer, rep_id FROM customer")
        }
        self.rep_of: Mapping[str, str] = dict(customers.values())
        self._invoices: dict[str, list[Sale]] = defaultdict(list)
        self._lines: dict[str, list[Sale]] = defaultdict(list)
        by_number: dict[int, Sale] = {}
        for number, customer, month, country, city, total, units in connection.execute(
            "SELECT invoice_id, customer_id, month, country, city, total, units FROM invoice ORDER BY invoice_id"
        ):
            sale = Sale(number, month, country, city, *customers[customer], round(100 * total), units)
            by_number[number] = sale
            self._invoices[month].append(sale)
        artists = dict(connection.execute("SELECT album_id, artist FROM album JOIN artist USING (artist_id)"))
        genres = dict(connection.execute("SELECT genre_id, genre FROM genre"))
        tracks = {
            k: (genres[g], artists[a])
            for k, g, a in connection.execute("SELECT track_id, genre_id, album_id FROM track")
        }
        for number, track, quantity, amount in connection.execute(
            "SELECT invoice_id, track_id, quantity, amount FROM line ORDER BY line_id"
        ):
            sale, (genre, artist) = by_number[number], tracks[track]
            line = sale._replace(cents=round(100 * amount), units=quantity, genre=genre, artist=artist)
            self._lines[sale.month].append(line)

    def labels(self, column: str) -> list[str]:
        """Return the distinct values of a column of `Sale`, sorted."""
        if column not in self._labels:
            distinct = {getattr(sale, column) for sales in self._lines.values() for sale in sales}
            self._labels[column] = sorted(distinct)
        return self._labels[column]

    def manager_of(self, employee: str) -> str | None:
        """Return the name of an employee's manager."""
        return next(person.manager for person in self.employees if person.name == employee)

    def email_of(self, employee: str) -> str:
        """Return an employee's address."""
        return next(person.email for person in self.employees if person.name == employee)

    def total(self, metric: str, period: str, *where: tuple[str, str]) -> float:
        """Return one metric over a period ("2010" or "2010-03") under equality filters; 0 if nothing was sold."""
        return self.totals("", metric, period, *where).get("", 0.0)

    def _totals(self, group: str, metric: str, period: str, *where: tuple[str, str]) -> Mapping[str, float]:
        """Return {label: value} of a metric by `group` (a column of `Sale`, or "" for all), without empty groups.

        Revenue is in currency units, orders counts invoices, units counts tracks.
        """
        cents: dict[str, int] = defaultdict(int)
        units: dict[str, int] = defaultdict(int)
        orders: dict[str, set[int]] = defaultdict(set)
        by_line = {group, *(column for column, _ in where)} & {"genre", "artist"}
        for sale in self._sales(self._lines if by_line else self._invoices, period):
            if all(getattr(sale, column) == value for column, value in where):
                label = getattr(sale, group) if group else ""
                cents[label] += sale.cents
                units[label] += sale.units
                orders[label].add(sale.invoice)
        if metric == "revenue":
            return {label: value / 100 for label, value in cents.items()}
        if metric == "units":
            return {label: float(value) for label, value in units.items()}
        return {label: float(len(numbers)) for label, numbers in orders.items()}

    @staticmethod
    def _sales(books: Mapping[str, list[Sale]], period: str) -> Iterator[Sale]:
        for month, sales in books.items():
            if month.startswith(period):
                yield from sales
