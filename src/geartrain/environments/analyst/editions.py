"""Database editions: seeded bootstrap resamples of the shipped invoices, one SQLite file each.

Chinook ships 412 invoices of one line pattern, too regular to ask questions of.
An edition resamples them to `INVOICES`, with weights per customer and per
(country, month), quantities per genre, and sales reps drawn anew, so that the
same question has another answer in every edition. Customers, tracks, albums,
artists, genres and employees are as shipped. The same source and seed give the
same bytes (for one SQLite version, whose number is in the file's header).
"""

import json
import os
import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from geartrain.errors import UserError

EDITIONS = ("train-0", "train-1", "train-2", "val-0", "test-0", "test-1", "ood-0")
INVOICES = 2_400
YEARS = (2007, 2008, 2009, 2010, 2011)
MONTHS = tuple(f"{year}-{month:02d}" for year in YEARS for month in range(1, 13))

SCHEMA: Mapping[str, tuple[str, ...]] = {
    "invoice": ("invoice_id", "customer_id", "date", "month", "country", "city", "total", "units"),
    "line": ("line_id", "invoice_id", "track_id", "price", "quantity", "amount"),
    "customer": ("customer_id", "customer", "company", "rep_id"),
    "employee": ("employee_id", "employee", "manager_id", "email"),
    "track": ("track_id", "title", "album_id", "genre_id"),
    "album": ("album_id", "album", "artist_id"),
    "artist": ("artist_id", "artist"),
    "genre": ("genre_id", "genre"),
}
"""Columns by table. Two tables share a column name only where it is a key of one, so natural joins are right."""

_TYPES = {"price": "REAL", "amount": "REAL", "total": "REAL", "units": "INTEGER", "quantity": "INTEGER"}
_INDEXES = ("invoice(month)", "invoice(customer_id)", "line(invoice_id)")
_QUANTITIES = (1, 2, 3, 4)
_SIZES = (2, 4, 6, 9)
"""Lines of an invoice: the shipped sizes but for 1 and 14, whose spread would drown every month in noise."""

Fixture = Mapping[str, Mapping[int, Mapping[str, Any]]]
Row = tuple[object, ...]


def build_worlds(source: Path, out_dir: Path, *, seed: int) -> list[Path]:
    """Write `<edition>.sqlite` for every edition into `out_dir`; return the paths.

    Raises UserError when `source` is not the Chinook fixture.
    """
    fixture = read_fixture(source)
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = []
    for edition in EDITIONS:
        rows = resample(fixture, random.Random(f"{seed}/{edition}"))  # noqa: S311 - data, not secrets
        path = out_dir / f"{edition}.sqlite"
        _write(path, rows)
        paths.append(path)
    return paths


def read_fixture(source: Path) -> Fixture:
    """Read the Django fixture into {model: {key: fields}}. Raises UserError."""
    hint = "run `python data/fetch.py` to get it again"
    try:
        records = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{source}: cannot be read ({error.strerror}); {hint}") from error
    except ValueError as error:
        raise UserError(f"{source}: not JSON ({error}); {hint}") from error
    fixture: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    try:
        for record in records:
            fixture[record["model"].removeprefix("chinook.")][record["pk"]] = {
                # Some shipped names end in a blank, which no one would type into a query.
                name: value.strip() if isinstance(value, str) else value
                for name, value in record["fields"].items()
            }
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{source}: not a Django fixture ({error!r}); {hint}") from error
    needed = ("invoice", "invoiceline", "customer", "employee", "track", "album", "artist", "genre")
    missing = [model for model in needed if not fixture.get(model)]
    if missing:
        raise UserError(f"{source}: no records of {', '.join(missing)}; {hint}")
    return fixture


def resample(fixture: Fixture, rng: random.Random) -> dict[str, list[Row]]:
    """Draw one edition: rows by table, columns as in `SCHEMA`."""
    employees = _staff(fixture, rng)
    reps = [row[0] for row in employees if row[0] not in {other[2] for other in employees}]
    customers = sorted(fixture["customer"].items())
    seats = [reps[i % len(reps)] for i in range(len(customers))]
    rng.shuffle(seats)
    invoices, lines = _sales(fixture, rng)
    return {
        "invoice": invoices,
        "line": lines,
        "customer": [
            (key, _name(fields), fields["company"], rep) for (key, fields), rep in zip(customers, seats, strict=True)
        ],
        "employee": employees,
        "track": [(k, f["name"], f["album"], f["genre"]) for k, f in sorted(fixture["track"].items())],
        "album": [(k, f["title"], f["artist"]) for k, f in sorted(fixture["album"].items())],
        "artist": [(k, f["name"]) for k, f in sorted(fixture["artist"].items())],
        "genre": [(k, f["name"]) for k, f in sorted(fixture["genre"].items())],
    }


def _name(fields: Mapping[str, Any]) -> str:
    return f"{fields['firstname']} {fields['lastname']}"


def _staff(fixture: Fixture, rng: random.Random) -> list[Row]:
    """Return employees; managers of the staff and addresses are dealt anew, so that neither can be learnt by heart."""
    shipped = sorted(fixture["employee"].items())
    managers = sorted({fields["reports_to"] for _, fields in shipped if fields["reports_to"] is not None})
    staff = [key for key, _ in shipped if key not in managers]
    seats = [managers[i % len(managers)] for i in range(len(staff))]
    rng.shuffle(seats)
    dealt = dict(zip(staff, seats, strict=True))
    rows: list[Row] = []
    for key, fields in shipped:
        address = fields["email"].replace("@", f"{rng.randint(1, 9)}@")
        rows.append((key, _name(fields), dealt.get(key, fields["reports_to"]), address))
    return rows


def _sales(fixture: Fixture, rng: random.Random) -> tuple[list[Row], list[Row]]:
    """Return invoices and lines: a bootstrap of customers, then of months, genres, and the shipped lines of a genre."""
    customers = fixture["customer"]
    countries = sorted({fields["country"] for fields in customers.values()})
    drawn = sorted(_orders(customers, {country: _seasons(rng) for country in countries}, rng))
    shipped = [fields for _, fields in sorted(fixture["invoiceline"].items())]
    sizes = [size for size in Counter(fields["invoice"] for fields in shipped).values() if size in _SIZES]
    by_genre: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for fields in shipped:
        genre = fixture["track"][fields["track"]]["genre"]
        by_genre[genre].append((fields["track"], round(100 * fields["unit_price"])))
    genres = sorted(by_genre)
    # The root of a genre's share, so that the largest is not always the answer.
    taste = {c: [rng.lognormvariate(0.0, 0.6) * len(by_genre[genre]) ** 0.5 for genre in genres] for c in countries}
    seasons = [_seasons(rng) for _ in genres]
    appetite = {genre: rng.uniform(0.2, 0.8) for genre in genres}
    invoices: list[Row] = []
    lines: list[Row] = []
    for number, (date, customer) in enumerate(drawn, start=1):
        place, month = customers[customer], date[:7]
        cents = units = 0
        weights = [liking * season[month] for liking, season in zip(taste[place["country"]], seasons, strict=True)]
        for genre in rng.choices(genres, weights, k=rng.choice(sizes)):
            track, price = rng.choice(by_genre[genre])
            share = appetite[genre]
            quantity = rng.choices(_QUANTITIES, [(1 - share) ** 2, 1 - share, share, share**2])[0]
            lines.append((len(lines) + 1, number, track, price / 100, quantity, price * quantity / 100))
            cents += price * quantity
            units += quantity
        invoices.append((number, customer, date, month, place["country"], place["city"], cents / 100, units))
    return invoices, lines


def _orders(
    customers: Mapping[int, Mapping[str, Any]], seasons: Mapping[str, Mapping[str, float]], rng: random.Random
) -> list[tuple[str, int]]:
    """Return (date, customer) of every invoice, in the order drawn."""
    counts = Counter(fields["country"] for fields in customers.values())
    # A country's weight grows with the root of its customers, so that the largest is not always the answer.
    sizes = {country: rng.lognormvariate(0.0, 0.8) * count**0.5 for country, count in sorted(counts.items())}
    loyalty = {key: rng.lognormvariate(0.0, 0.5) for key in sorted(customers)}
    loyal: dict[str, float] = defaultdict(float)
    for key, value in loyalty.items():
        loyal[customers[key]["country"]] += value
    weights = [sizes[customers[k]["country"]] * value / loyal[customers[k]["country"]] for k, value in loyalty.items()]
    orders = []
    for customer in rng.choices(list(loyalty), weights, k=INVOICES):
        by_month = seasons[customers[customer]["country"]]
        month = rng.choices(MONTHS, [by_month[month] for month in MONTHS])[0]
        orders.append((f"{month}-{rng.randint(1, 28):02d}", customer))
    return orders


def _seasons(rng: random.Random) -> dict[str, float]:
    """Return a factor per month, near 1 but for slumps and peaks: without slumps the odd month is always the best."""
    return {
        month: rng.lognormvariate(0.0, 0.1) * rng.choices((1.0, 0.1, 1.8), (0.88, 0.10, 0.02))[0] for month in MONTHS
    }


def _write(path: Path, rows: Mapping[str, Iterable[Row]]) -> None:
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    staging.unlink(missing_ok=True)
    connection = sqlite3.connect(staging, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA page_size = 4096")
        connection.execute("BEGIN")
        for table, columns in SCHEMA.items():
            connection.execute(f"CREATE TABLE {table} ({', '.join(_column(table, name) for name in columns)})")
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows[table])  # noqa: S608 - our names
        for index in _INDEXES:
            connection.execute(f"CREATE INDEX by_{index.replace('(', '_').rstrip(')')} ON {index}")
        connection.execute("COMMIT")
        connection.execute("ANALYZE")  # without it the planner scans every line for a question about one month
        connection.execute("VACUUM")
    finally:
        connection.close()
    with staging.open("rb") as file:
        os.fsync(file.fileno())
    staging.replace(path)


def _column(table: str, name: str) -> str:
    if name == SCHEMA[table][0]:
        return f"{name} INTEGER PRIMARY KEY"
    kind = "INTEGER" if name.endswith("_id") else _TYPES.get(name, "TEXT")
    # NOCASE lets SQLite answer `month LIKE '2010-%'` from the index.
    return f"{name} {kind} COLLATE NOCASE" if name == "month" else f"{name} {kind}"
