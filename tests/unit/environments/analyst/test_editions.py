import hashlib
import json
import sqlite3
from pathlib import Path

import pytest

from geartrain.environments.analyst import editions
from geartrain.environments.analyst.editions import EDITIONS, INVOICES, SCHEMA, build_worlds
from geartrain.environments.analyst.ledger import Ledger
from geartrain.errors import UserError


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_the_same_seed_gives_the_same_bytes(
    source: Path, worlds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(digests(worlds)) == sorted(f"{edition}.sqlite" for edition in EDITIONS)
    assert len(set(digests(worlds).values())) == len(EDITIONS)
    monkeypatch.setattr(editions, "EDITIONS", ("train-0", "ood-0"))
    build_worlds(source, tmp_path, seed=0)
    assert digests(tmp_path).items() <= digests(worlds).items()
    build_worlds(source, tmp_path, seed=1)
    assert not set(digests(tmp_path).values()) & set(digests(worlds).values())


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_books_balance(worlds: Path, edition: str) -> None:
    connection = sqlite3.connect(worlds / f"{edition}.sqlite")
    try:
        rows = connection.execute(
            "SELECT total, units, SUM(ROUND(100 * amount)), SUM(quantity), SUM(ROUND(100 * price) * quantity), "
            "MIN(month = SUBSTR(date, 1, 7)) FROM invoice NATURAL JOIN line GROUP BY invoice_id"
        ).fetchall()
        sizes = {table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in SCHEMA}
    finally:
        connection.close()
    assert len(rows) == sizes["invoice"] == INVOICES
    for total, units, cents, quantity, again, month_fits in rows:
        assert (round(100 * total), units, month_fits) == (cents, quantity, 1)
        assert cents == again
    assert sizes["line"] > 10_000
    assert (sizes["customer"], sizes["employee"], sizes["track"]) == (59, 8, 3503)


def test_natural_joins_are_right(worlds: Path) -> None:
    """Two tables share a column name only where it is the key of one of them."""
    for table, columns in SCHEMA.items():
        for other, others in SCHEMA.items():
            if table < other:
                assert set(columns) & set(others) <= {columns[0], others[0]}


def test_editions_have_other_truths_and_other_staff(worlds: Path) -> None:
    ledgers = [Ledger(worlds / f"{edition}.sqlite") for edition in EDITIONS]
    best = [max(totals, key=totals.__getitem__) for x in ledgers if (totals := x.totals("city", "revenue", "2010"))]
    assert len(set(best)) >= 4
    assert len({tuple(x.rep_of.values()) for x in ledgers}) == len(ledgers)
    assert len({person.email for x in ledgers for person in x.employees}) > 40
    for ledger in ledgers:
        reps = set(ledger.rep_of.values())
        assert len(reps) == 5
        assert len({ledger.manager_of(rep) for rep in reps}) >= 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        ("[1]", "not a Django fixture"),
        ('[{"model": "chinook.genre", "pk": 1, "fields": {"name": "Rock"}}]', "no records of invoice, invoiceline"),
    ],
)
def test_a_wrong_source_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "raw.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        build_worlds(path, tmp_path / "worlds", seed=0)
    assert str(path) in str(caught.value)
    assert "data/fetch.py" in str(caught.value)


def test_names_have_no_stray_blanks(source: Path, worlds: Path) -> None:
    shipped = json.loads(source.read_text())
    assert any(record["fields"].get("city", "") != str(record["fields"].get("city", "")).strip() for record in shipped)
    ledger = Ledger(worlds / "train-0.sqlite")
    for column in ("country", "city", "customer", "rep", "genre", "artist"):
        assert all(label == label.strip() != "" for label in ledger.labels(column))
