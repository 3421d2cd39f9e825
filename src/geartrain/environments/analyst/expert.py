"""The scripted expert: knows what is asked, reads only what the tools answer.

It reads a task's parameters and section names, never its facts. Flawless, it
solves every task in `necessary_steps` calls; flawed, see `flaws`.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence

from geartrain.environments.analyst.flaws import FLAWLESS, Habits, mail_flaws
from geartrain.environments.analyst.questions import Compare, Drill, Rank, Series, Share, flaw_sites, from_record
from geartrain.environments.analyst.rendering import quote, unquote
from geartrain.environments.environment import Task
from geartrain.environments.scripted import Call, Script, ScriptedExpert
from geartrain.environments.tools import render_call

Filters = Sequence[tuple[str, str]]

_COLUMNS = {"rep": "employee"}
_SOURCES = {  # natural joins: tables share no columns but keys
    "customer": "invoice NATURAL JOIN customer",
    "rep": "invoice NATURAL JOIN customer JOIN employee ON employee_id = rep_id",
    "genre": "line NATURAL JOIN invoice NATURAL JOIN track NATURAL JOIN genre",
    "artist": "line NATURAL JOIN invoice NATURAL JOIN track NATURAL JOIN album NATURAL JOIN artist",
}
_OF_INVOICES = {"revenue": "SUM(total)", "orders": "COUNT(*)", "units": "SUM(units)", "mean": "AVG(total)"}
_OF_LINES = {
    "revenue": "SUM(amount)",
    "orders": "COUNT(DISTINCT invoice_id)",
    "units": "SUM(quantity)",
    "mean": "AVG(amount)",
}
_OFFICE = "sales@chinookcorp.com"  # nobody reads it


class AnalystExpert(ScriptedExpert):
    """A policy that follows the script of one task."""

    def __init__(self, task: Task, *, seed: int, habits: Habits = FLAWLESS):
        rng = random.Random(f"{seed}/{task.task_id}")  # noqa: S311 - not a secret
        super().__init__(_script(task, habits, rng), rng, broken_call=habits.broken_call, spoil=_broken)


def _broken(call: Call, rng: random.Random) -> str:
    name, arguments = call
    kinds = ["brace", "tool"] + (["column"] if name == "query_database" else [])
    kind = rng.choice(kinds)
    if kind == "brace":
        return render_call(name, arguments)[:-1]
    if kind == "tool":
        return render_call(name.split("_")[0] + "_tool", arguments)
    return render_call(name, {"sql": arguments["sql"].replace(" AS v", "s AS v").replace("email", "mail", 1)})


def _script(task: Task, habits: Habits, rng: random.Random) -> Script:
    parts = [from_record(record) for record in task.spec["parameters"]["parts"]]
    mail = task.spec["parameters"]["mail"]
    active = [{flaw for flaw in flaw_sites(part) if rng.random() < habits.flaw} for part in parts]
    mail_active = {flaw for flaw in mail_flaws(mail["to"]) if rng.random() < habits.flaw} if mail else set()
    if rng.random() < habits.look_around:
        yield rng.choice([("list_tables", {}), ("describe_table", {"table": "invoice"})])
    answers: dict[str, str] = {}
    for part, sections, flaws in zip(parts, task.spec["sections"], active, strict=True):
        yield from _SCRIPTS[part.kind](part, sections, flaws, answers)
    if mail:
        yield from _mail(mail, mail_active, answers)
    yield "finish", {}


def select(group: str, metric: str, period: str, filters: Filters = (), tail: str = "") -> str:
    """Return the expert's query; always the same clauses in the same order."""
    columns = {group, *(column for column, _ in filters)}
    source = next((_SOURCES[column] for column in _SOURCES if column in columns), "invoice")
    amount = (_OF_LINES if source.startswith("line") else _OF_INVOICES)[metric]
    when = f"month = '{period}'" if len(period) > 4 else f"month LIKE '{period}-%'"
    where = " AND ".join([when, *(f"{_COLUMNS.get(c, c)} = {quote(value)}" for c, value in filters)])
    column = _COLUMNS.get(group, group)
    if not group:
        return f"SELECT {amount} AS v FROM {source} WHERE {where}"  # noqa: S608 - the agent's own query
    return f"SELECT {column}, {amount} AS v FROM {source} WHERE {where} GROUP BY {column}{tail}"  # noqa: S608


def _query(sql: str) -> Call:
    return "query_database", {"sql": sql}


def _report(section: str, value: str) -> Call:
    return "generate_report", {"section": section, "value": value}


def _analyze(data: str, op: str) -> Call:
    return "analyze_data", {"data": data, "op": op, "column": "v"}


def _handle(content: str) -> str:
    return content.split(":")[0]


def _cell(content: str, row: int = 0) -> str:
    """Return the first cell of a row of a query's answer; "none" when there is no such row."""
    lines = content.split("\n")[2:]
    return unquote(lines[row].split("|")[0]) if row < len(lines) else "none"


def _metric(metric: str, flaws: Collection[str]) -> str:
    return "mean" if "mean_for_orders" in flaws else metric


def _sorted(order: str, flaws: Collection[str], k: int) -> str:
    skipped = " OFFSET 1" if "lowest_skipped" in flaws else ""
    return f" ORDER BY v {'DESC' if order == 'highest' else 'ASC'} LIMIT {k}{skipped}"


def _rank(part: Rank, sections: Sequence[str], flaws: Collection[str], answers: dict[str, str]) -> Script:
    filters = [("country", part.country)] if part.country else []
    tail = _sorted(part.order, flaws, part.k)
    content = yield _query(select(part.group, _metric(part.metric, flaws), part.period, filters, tail))
    for row, section in enumerate(sections):
        answers[section] = _cell(content, row)
        yield _report(section, f"{_handle(content)}[{row}]")


def _compare(part: Compare, sections: Sequence[str], flaws: Collection[str], answers: dict[str, str]) -> Script:
    months = list(part.months)
    if "month_repeated" in flaws:
        months[-1] = months[-2]
    handles = []
    for month, section in zip(months, sections, strict=False):
        content = yield _query(select("", _metric(part.metric, flaws), month, [(part.column, part.entity)]))
        handles.append(_handle(content))
        yield _report(section, f"{handles[-1]}[0]")
    if part.change:
        content = yield _analyze(f"{handles[0]},{handles[-1]}", part.change)
        yield _report(sections[-1], _handle(content))


def _drill(part: Drill, sections: Sequence[str], flaws: Collection[str], answers: dict[str, str]) -> Script:
    filters: list[tuple[str, str]] = []
    for level, section in zip(part.levels, sections, strict=True):
        if level == "city" and "parent_forgotten" in flaws:
            filters = []
        tail = _sorted(part.order, flaws if level == part.levels[0] else (), 1)
        content = yield _query(select(level, _metric(part.metric, flaws), part.period, filters, tail))
        filters = [(level, _cell(content))]
        yield _report(section, f"{_handle(content)}[0]")


def _series(part: Series, sections: Sequence[str], flaws: Collection[str], answers: dict[str, str]) -> Script:
    content = yield _query(select("month", _metric(part.metric, flaws), part.year, [(part.column, part.entity)]))
    table = _handle(content)
    for ask, section in zip(part.asks, sections, strict=True):
        op = "diff" if ask == "outlier" and "change_for_outlier" in flaws else ask
        content = yield _analyze(table, op)
        yield _report(section, _handle(content))


def _share(part: Share, sections: Sequence[str], flaws: Collection[str], answers: dict[str, str]) -> Script:
    metric = _metric(part.metric, flaws)
    whole = [("country", part.country)] if part.by_genre else []
    some = [*whole, ("genre", part.genre)] if part.by_genre else [("country", part.country)]
    first = yield _query(select("", metric, part.period, some))
    second = yield _query(select("", metric, part.period, whole))
    content = yield _analyze(f"{_handle(first)},{_handle(second)}", "share")
    yield _report(sections[0], _handle(content))


def _mail(mail: Mapping[str, str], flaws: Collection[str], answers: Mapping[str, str]) -> Script:
    if "mail_forgotten" in flaws:
        return
    if "office_for_rep" in flaws:
        yield "send_email", {"to": _OFFICE, "subject": "report"}
        return
    person = quote(mail["who"] or answers[mail["section"]])
    boss = "SELECT email FROM employee WHERE employee_id = (SELECT manager_id FROM {} = {})"
    if mail["to"] == "employee":
        sql = f"SELECT email FROM employee WHERE employee = {person}"  # noqa: S608 - the agent's own query
    elif mail["to"] == "manager":
        sql = boss.format("employee WHERE employee", person)
    else:
        served = "customer JOIN employee ON employee_id = rep_id WHERE customer"
        sql = f"SELECT email FROM {served} = {person}"  # noqa: S608 - the agent's own query
    content = yield _query(sql)
    yield "send_email", {"to": f"{_handle(content)}[0]", "subject": "report"}


_SCRIPTS: Mapping[str, Callable[..., Script]] = {
    "rank": _rank,
    "compare": _compare,
    "drill": _drill,
    "series": _series,
    "share": _share,
}
