"""One attempt at one task: handles, report and outbox in memory, the edition shared and read-only."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from geartrain.environments.analyst.analysis import OPERATIONS, analyze, row_point
from geartrain.environments.analyst.editions import SCHEMA
from geartrain.environments.analyst.query import Database, Table
from geartrain.environments.analyst.rendering import render
from geartrain.environments.analyst.verification import (
    Entry,
    Fact,
    Mail,
    describe,
    fault,
    judge,
    mail_faults,
    read_literal,
    section_key,
    states,
)
from geartrain.environments.environment import Step, Task, ToolSpec, Verdict
from geartrain.environments.tools import Tool, ToolError, clip, dispatch
from geartrain.trajectory import ToolResult

SECTION_LIMIT = 40
"""Characters of a section's name."""
VALUE_LIMIT = 200
"""Characters of a literal value, an address, a subject."""
_REFERENCE = re.compile(r"([qa]\d{1,4})(?:\[(\d{1,4})\])?(?:\.(\w+))?")


def _spec(name: str, description: str, **properties: Mapping[str, Any]) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return ToolSpec(name, description, schema)


_STRING = {"type": "string"}
SPECS = (
    _spec("list_tables", "List the tables."),
    _spec("describe_table", "List the columns of a table.", table=_STRING),
    _spec("query_database", "Run one SELECT; the result gets a handle q1, q2, ...", sql=_STRING),
    _spec(
        "analyze_data",
        "Reduce a column of results to one number, with handle a1, a2, ... `data` is a handle or several with commas; "
        "diff is last - first, growth (last - first) in percent of first, share first in percent of last.",
        data=_STRING,
        op={"type": "string", "enum": list(OPERATIONS)},
        column=_STRING,
    ),
    _spec(
        "generate_report",
        "Write a section. `value` is a literal, a row as q1[0] (its first text and last number), or an analysis as a1. "
        "The answer names the next section that was asked for and is not written.",
        section=_STRING,
        value={"type": ["string", "number"]},
    ),
    _spec(
        "send_email",
        "Send a mail with the report, as it is now, attached. `to` is an address, or a row that holds one, as q1[0].",
        to=_STRING,
        subject=_STRING,
    ),
    _spec("finish", "End the task."),
)


class AnalystEpisode:
    """The state of one attempt."""

    def __init__(self, task: Task, database: Database, *, system: str, row_limit: int):
        self.task = task
        self._database = database
        self._system = system
        self._row_limit = row_limit
        self._facts = {section_key(name): Fact(**fact) for name, fact in task.spec["facts"].items()}
        self._recipient: str | None = task.spec["recipient"]
        self._tables: dict[str, Table] = {}
        self._analyses: dict[str, Entry] = {}
        self._report: dict[str, Entry] = {}
        self._outbox: list[Mail] = []
        self._finished = False
        self._reached: dict[str, None] = {}
        functions: tuple[Callable[..., str], ...] = (
            self._list_tables,
            self._describe_table,
            self._query_database,
            self._analyze_data,
            self._generate_report,
            self._send_email,
            self._finish,
        )
        self._tools = {spec.name: Tool(spec, run) for spec, run in zip(SPECS, functions, strict=True)}

    def opening(self) -> list[dict[str, str]]:
        """Return the system prompt and the task."""
        return [{"role": "system", "content": self._system}, {"role": "user", "content": self.task.prompt}]

    def step(self, message: str) -> Step:
        """Apply one assistant message; an error is a result."""
        if self._finished:
            over = ToolResult("error episode_over: the task is finished", "episode_over")
            return Step(None, over, (), True)
        before = set(self._reached)
        call, result = dispatch(message, self._tools)
        return Step(call, result, tuple(name for name in self._reached if name not in before), self._finished)

    def verdict(self) -> Verdict:
        """Judge the state as it is now."""
        reasons = judge(self._facts, self._recipient, self._report, self._outbox, self._finished)
        subgoals: dict[str, bool] = {}
        for name, fact in self._facts.items():
            right = fault(fact, self._report.get(name)) is None
            subgoals[f"found:{name}"] = right or f"found:{name}" in self._reached
            subgoals[f"reported:{name}"] = right
        if self._recipient is not None:
            subgoals["found:address"] = "found:address" in self._reached
            subgoals["mailed"] = not mail_faults(self._facts, self._recipient, self._outbox)
        return Verdict(not reasons, subgoals, tuple(reasons))

    def close(self) -> None:
        """Drop the results; the edition stays open for the other episodes."""
        self._tables.clear()
        self._analyses.clear()

    def _list_tables(self) -> str:
        return ", ".join(SCHEMA)

    def _describe_table(self, table: str) -> str:
        columns = SCHEMA.get(table)
        if columns is None:
            raise ToolError("unknown_table", f"no table '{clip(table, 30)}', there is {', '.join(SCHEMA)}")
        return f"{table}({', '.join(columns)})"

    def _query_database(self, sql: str) -> str:
        table = self._database.query(sql)
        handle = f"q{len(self._tables) + 1}"
        self._tables[handle] = table
        for row in table.rows[: self._row_limit]:  # what the agent was not shown, it has not found
            self._find(Entry(*row_point(table.columns, row)))
            if self._recipient in row and self._recipient is not None:
                self._reach("found:address")
        return render(handle, table, self._row_limit)

    def _analyze_data(self, data: str, op: str, column: str) -> str:
        names = [name.strip() for name in data.split(",")]
        for name in names:
            if name not in self._tables:
                raise ToolError("unknown_handle", f"no query '{clip(name, 20)}'")
        entry = Entry(*analyze([self._tables[name] for name in names], op, column))
        handle = f"a{len(self._analyses) + 1}"
        self._analyses[handle] = entry
        self._find(entry)
        return f"{handle}: {describe(entry)}"

    def _generate_report(self, section: str, value: str | float) -> str:
        name = section_key(section)
        if not 0 < len(name) <= SECTION_LIMIT:
            raise ToolError("invalid_value", f"'section' must have 1 to {SECTION_LIMIT} characters")
        entry = self._resolve(value)
        self._report[name] = entry
        fact = self._facts.get(name)
        if fact is not None and fault(fact, entry) is None:
            self._reach(f"found:{name}")
            self._reach(f"reported:{name}")
        left = next((fact for fact in self._facts if fact not in self._report), None)
        # one line, whatever a query returned
        written = clip(f"{name} = {describe(entry)}", SECTION_LIMIT + VALUE_LIMIT)
        return f"{written}\n{f'next {left}' if left else 'complete'}"

    def _resolve(self, value: str | float) -> Entry:
        reference = _REFERENCE.fullmatch(value.strip()) if isinstance(value, str) else None
        if reference is None:
            text = clip(value, VALUE_LIMIT) if isinstance(value, str) else value
            if text == "":
                raise ToolError("invalid_value", "'value' is empty")
            return read_literal(text)
        handle, row, column = reference.groups()
        if handle in self._analyses and row is None and column is None:
            return self._analyses[handle]
        if handle not in self._tables:
            raise ToolError("unknown_handle", f"no result '{clip(str(value), 20)}'")
        return self._cell(handle, int(row or 0), column)

    def _cell(self, handle: str, row: int, column: str | None) -> Entry:
        table = self._tables[handle]
        if row >= len(table.rows):
            raise ToolError("unknown_row", f"{handle} has {len(table.rows)} rows")
        if column is None:
            return Entry(*row_point(table.columns, table.rows[row]))
        if column not in table.columns:
            raise ToolError("unknown_column", f"{handle} has columns {', '.join(table.columns)}")
        index = table.columns.index(column)
        return Entry(*row_point(table.columns[index : index + 1], table.rows[row][index : index + 1]))

    def _send_email(self, to: str, subject: str) -> str:
        if not 0 < len(to.strip()) <= VALUE_LIMIT or len(subject) > VALUE_LIMIT:
            raise ToolError("invalid_value", f"'to' and 'subject' may have {VALUE_LIMIT} characters, 'to' at least 1")
        address = self._resolve(to).label or ""
        if not re.fullmatch(r"[^@\s]+@[^@\s]+", address):
            raise ToolError("invalid_value", f"'{clip(address or to, 30)}' is not an address")
        self._outbox.append(Mail(address, subject, dict(self._report)))
        if self._recipient is not None and not mail_faults(self._facts, self._recipient, self._outbox):
            self._reach("mailed")
        return f"sent to {clip(address)} with {len(self._report)} sections"

    def _finish(self) -> str:
        self._finished = True
        return "finished"

    def _find(self, entry: Entry) -> None:
        for name, fact in self._facts.items():
            if states(fact, entry):
                self._reach(f"found:{name}")

    def _reach(self, subgoal: str) -> None:
        self._reached.setdefault(subgoal)
