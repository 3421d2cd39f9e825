"""SQL that reads, SQL that must not, and the limits."""

import hashlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from geartrain.environments.analyst.query import KEPT_ROWS, SQL_LIMIT, Database, Table
from geartrain.environments.analyst.rendering import format_number, quote, render, unquote
from geartrain.environments.tools import ToolError
from geartrain.errors import UserError


@pytest.fixture
def database(worlds: Path) -> Iterator[Database]:
    database = Database(worlds / "train-0.sqlite", step_limit=2_000_000)
    yield database
    database.close()


def kind(database: Database, sql: str) -> str:
    with pytest.raises(ToolError) as caught:
        database.query(sql)
    return caught.value.kind


def test_reads(database: Database) -> None:
    table = database.query("SELECT COUNT(*) AS n, 'x' AS label, NULL, 1.5 FROM genre;")
    assert table.columns[:2] == ("n", "label")
    assert table.rows == ((25, "x", None, 1.5),)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM invoice",
        "UPDATE invoice SET total = 0",
        "INSERT INTO genre VALUES (99, 'x')",
        "REPLACE INTO genre VALUES (1, 'x')",
        "DROP TABLE invoice",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t AS SELECT 1",
        "CREATE TEMP VIEW v AS SELECT 1",
        "ALTER TABLE genre RENAME TO g",
        "ATTACH '/tmp/geartrain-attack.sqlite' AS other",
        "ATTACH ':memory:' AS other",
        "DETACH main",
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = WAL",
        "PRAGMA table_info(invoice)",
        "SELECT * FROM pragma_table_info('invoice')",
        "VACUUM",
        "VACUUM INTO '/tmp/geartrain-attack.sqlite'",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "SAVEPOINT s",
        "ANALYZE",
        "REINDEX",
        "WITH x AS (SELECT 1) DELETE FROM invoice",
        "EXPLAIN DELETE FROM invoice",
    ],
)
def test_only_reads(database: Database, worlds: Path, sql: str) -> None:
    before = hashlib.sha256((worlds / "train-0.sqlite").read_bytes()).hexdigest()
    assert kind(database, sql) in ("sql_not_read_only", "sql_error")
    assert database.query("SELECT COUNT(*) FROM genre").rows == ((25,),)
    assert hashlib.sha256((worlds / "train-0.sqlite").read_bytes()).hexdigest() == before
    assert not Path("/tmp/geartrain-attack.sqlite").exists()


def test_without_the_authorizer_the_file_is_still_read_only(database: Database) -> None:
    database._connection.set_authorizer(None)
    assert kind(database, "DELETE FROM invoice") == "sql_error"


def test_writes_are_named_as_such(database: Database) -> None:
    assert kind(database, "DELETE FROM invoice") == "sql_not_read_only"
    assert kind(database, "PRAGMA query_only = 0") == "sql_not_read_only"


@pytest.mark.parametrize(
    "call",
    [
        "load_extension('x')",
        "readfile('/etc/passwd')",
        "random()",
        "randomblob(10)",
        "zeroblob(1000000000)",
        "hex('x')",
        "printf('%1000000d', 1)",
        "date('now')",
        "strftime('%s', 'now')",
        "julianday('now')",
        "current_timestamp",
        "current_date",
        "sqlite_version()",
        "last_insert_rowid()",
        "fts3_tokenizer('x')",
    ],
)
def test_functions_that_are_not_on_the_list(database: Database, call: str) -> None:
    """Nothing that reads the clock, draws at random, loads code or makes unbounded text."""
    assert kind(database, f"SELECT {call}") in ("sql_function_denied", "sql_error")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", "sql_error"),
        (" ; ", "sql_error"),
        ("-- nothing", "sql_error"),
        ("SELEC 1", "sql_error"),
        ("SELECT nothing FROM invoice", "sql_error"),
        ("SELECT ?", "sql_error"),
        ("SELECT 1\x00", "sql_error"),
        ("SELECT 1; SELECT 2", "sql_several_statements"),
        ("SELECT 1; DROP TABLE invoice", "sql_several_statements"),
        (f"SELECT '{'x' * SQL_LIMIT}'", "too_long"),
        (f"SELECT {', '.join('1' * 17)}", "too_wide"),
        (f"SELECT {'(' * 200}1{')' * 200}", "sql_error"),
        ("SELECT " + " UNION SELECT ".join("1" for _ in range(50)), "sql_error"),
    ],
)
def test_faults_have_kinds(database: Database, sql: str, expected: str) -> None:
    assert kind(database, sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM line a, line b, line c",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n ORDER BY i DESC",
        "SELECT GROUP_CONCAT(title) FROM track, line",
        "SELECT MAX(INSTR(a.title || b.title, 'zzz')) FROM track a, track b, track c",
    ],
)
def test_a_query_ends(database: Database, sql: str) -> None:
    assert kind(database, sql) in ("sql_too_slow", "sql_error")
    assert database.query("SELECT 1").rows == ((1,),)


def test_steps_are_counted_not_timed(worlds: Path) -> None:
    """The same query passes or fails at the same limit, every time."""
    sql = "SELECT SUM(amount) FROM line"
    answers = []
    for limit in (20_000, 1_000_000):
        for _ in range(3):
            database = Database(worlds / "train-0.sqlite", step_limit=limit)
            try:
                answers.append(len(database.query(sql).rows))
            except ToolError as error:
                answers.append(error.kind)
            finally:
                database.close()
    assert answers == ["sql_too_slow"] * 3 + [1] * 3


def test_long_results_are_cut_and_say_so(database: Database) -> None:
    table = database.query("SELECT line_id FROM line")
    assert (len(table.rows), table.partial) == (KEPT_ROWS, True)
    text = render("q1", table, 3)
    assert text.split("\n") == ["q1: 1000+ rows", "line_id", "1", "2", "3", "(997+ more)"]


def test_cells_are_short() -> None:
    table = Table(("a", "b", "c", "d"), (("x" * 300, None, 2.0, 1e300), ("y\nz", -0.001, 38.6100001, 7)))
    lines = render("q2", table, 12).split("\n")
    assert lines[:2] == ["q2: 2 rows", "a|b|c|d"]
    assert lines[2] == "'" + "x" * 37 + "...'|NULL|2|1e+300"
    assert lines[3] == "'y z'|0|38.61|7"
    assert render("q3", Table(("a",), ()), 12) == "q3: 0 rows"
    assert format_number(float("inf")) == "inf"


def test_blobs_and_long_text_are_replaced(database: Database) -> None:
    assert database.query("SELECT x'00ff' AS b").rows == (("<blob>",),)
    long = database.query("SELECT GROUP_CONCAT(genre) AS g FROM genre").rows[0][0]
    assert isinstance(long, str)
    assert len(long) == 200


def test_threads_share_a_database(database: Database) -> None:
    """One connection, one step counter: concurrent queries must not add up."""
    faults: list[BaseException] = []

    def ask(number: int) -> None:
        try:
            for month in range(1, 13):
                database.query(
                    f"SELECT SUM(amount) + {number} FROM line NATURAL JOIN invoice WHERE month = '2010-{month:02d}'"
                )
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_a_missing_world_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.sqlite: no such world"):
        Database(tmp_path / "nowhere.sqlite", step_limit=1)


def test_the_cache_gives_equal_answers(database: Database) -> None:
    sql = "SELECT genre FROM genre ORDER BY genre"
    assert database.query(sql) is database.query(sql)
    assert kind(database, "SELECT x") == kind(database, "SELECT x") == "sql_error"


def test_the_sqlite_of_this_python_is_recent() -> None:
    assert sqlite3.sqlite_version_info >= (3, 37)


@pytest.mark.parametrize("text", ["USA", "Côte d'Ivoire", "''", "a|b", ""])
def test_a_shown_text_can_be_asked_for_as_it_stands(database: Database, text: str) -> None:
    assert unquote(quote(text)) == text
    assert database.query(f"SELECT {quote(text)} AS v").rows == ((text,),)


def test_only_a_whole_literal_is_unquoted() -> None:
    assert [unquote(text) for text in ("USA", "'", "12", "'a")] == ["USA", "'", "12", "'a"]
