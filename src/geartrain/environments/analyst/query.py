"""Read-only SQL over one edition: an allow-list, counted steps, capped results.

What stops a query is a count of virtual-machine steps, so that the same query
stops at the same place on every machine; the clock is only a backstop. Not a
sandbox for hostile SQLite builds: it relies on SQLite's own authorizer.
"""

import sqlite3
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from geartrain.environments.tools import ToolError, clip
from geartrain.errors import UserError

Cell = str | int | float | None

SQL_LIMIT = 2_000
"""Longest query in characters."""
KEPT_ROWS = 1_000
"""Rows of a result that a handle keeps; a longer result is marked partial."""
KEPT_CELL = 200
"""Characters of a text cell that a handle keeps."""
COLUMN_LIMIT = 16
WALL_SECONDS = 10.0
"""Backstop for a step that SQLite does not count; a query that ends here is not cached."""
_STEPS_PER_TICK = 1_000
_CACHED = 4_096

_FUNCTIONS = frozenset(
    {
        *("abs", "avg", "coalesce", "count", "cume_dist", "dense_rank", "first_value", "glob", "group_concat"),
        *("ifnull", "iif", "instr", "lag", "last_value", "lead", "length", "like", "lower", "ltrim", "max", "min"),
        *("nth_value", "ntile", "nullif", "percent_rank", "rank", "replace", "round", "row_number", "rtrim", "sign"),
        *("substr", "substring", "sum", "total", "trim", "typeof", "unicode", "upper"),
    }
)
"""What a query may call: nothing that reads the clock, draws at random, or makes text of unbounded size."""
_CONNECTION_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 20_000,  # of a text, so that no single step takes long
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 4 * SQL_LIMIT,  # bytes
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 10,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


@dataclass(frozen=True)
class Table:
    """A result: column names, rows, and whether rows were left out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    partial: bool = False


class Database:
    """One edition, opened once and shared by every episode on it; safe to use from several threads."""

    def __init__(self, path: Path, *, step_limit: int):
        if not path.is_file():
            raise UserError(f"{path}: no such world; build the worlds first (the `tasks` stage does)")
        self._step_limit = step_limit
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, Table | ToolError] = OrderedDict()
        self._denied: tuple[str, str] | None = None
        self._ticks, self._deadline = 0, 0.0
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        for limit, value in _CONNECTION_LIMITS.items():
            self._connection.setlimit(limit, value)
        self._connection.set_progress_handler(self._tick, _STEPS_PER_TICK)
        self._connection.set_authorizer(self._authorize)

    def query(self, sql: str) -> Table:
        """Run one SELECT. Raises ToolError; the same text gives the same answer."""
        with self._lock:
            known = self._cache.get(sql)
            if known is None:
                known = self._run(sql)
                if not (isinstance(known, ToolError) and time.monotonic() >= self._deadline):
                    self._cache[sql] = known
                    if len(self._cache) > _CACHED:
                        self._cache.popitem(last=False)
            else:
                self._cache.move_to_end(sql)
        if isinstance(known, ToolError):
            raise ToolError(known.kind, known.message)
        return known

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _run(self, sql: str) -> Table | ToolError:
        self._denied, self._ticks, self._deadline = None, 0, time.monotonic() + WALL_SECONDS
        if len(sql) > SQL_LIMIT:
            return ToolError("too_long", f"a query may have {SQL_LIMIT} characters")
        if "\x00" in sql:
            return ToolError("sql_error", "null character in the query")
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql)
            if cursor.description is None:  # nothing but comments and blanks
                return ToolError("sql_error", "write one SELECT")
            columns = tuple(clip(str(column[0])) for column in cursor.description)
            if len(columns) > COLUMN_LIMIT:
                return ToolError("too_wide", f"a result may have {COLUMN_LIMIT} columns, this one has {len(columns)}")
            rows = cursor.fetchmany(KEPT_ROWS + 1)
        except sqlite3.Error as error:
            return self._explain(error)
        finally:
            cursor.close()
        kept = tuple(tuple(map(_cell, row)) for row in rows[:KEPT_ROWS])
        return Table(columns, kept, partial=len(rows) > KEPT_ROWS)

    def _explain(self, error: sqlite3.Error) -> ToolError:
        if self._denied is not None:
            return ToolError(*self._denied)
        text = str(error)
        if text == "interrupted":
            return ToolError("sql_too_slow", f"the query took more than {self._step_limit} steps")
        if "one statement at a time" in text:
            return ToolError("sql_several_statements", "write one SELECT")
        return ToolError("sql_error", clip(text, 120))

    def _tick(self) -> int:
        self._ticks += 1
        return int(self._ticks * _STEPS_PER_TICK > self._step_limit or time.monotonic() > self._deadline)

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            if (second or "").lower() in _FUNCTIONS:
                return sqlite3.SQLITE_OK
            self._denied = ("sql_function_denied", f"function {clip(second or '', 30)} is not available")
        else:
            self._denied = ("sql_not_read_only", "only SELECT is allowed")
        return sqlite3.SQLITE_DENY


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, int | float):
        return value
    return clip(value, KEPT_CELL) if isinstance(value, str) else "<blob>"
