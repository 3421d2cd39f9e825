"""A panel of a dashboard, and what Grafana's JSON makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["timeseries", "stat", "table", "state-timeline", "bargauge"]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""Chosen by the reader: a dashboard that names one works in one Grafana only."""
WIDTH, HEIGHT = 24, 8
"""Of the grid, and of a panel in it."""
RUN = "{{stage}} {{run_id}}"
"""Legend of what is told once a run."""


@dataclass(frozen=True)
class Query:
    """One expression of a panel, and what its series are called."""

    expr: str
    legend: str = RUN


@dataclass(frozen=True)
class Panel:
    """One panel; `limit` is where an alert begins, drawn as a red region."""

    title: str
    description: str
    queries: Sequence[Query]
    unit: str = "none"
    kind: Kind = "timeseries"
    limit: float | None = None
    below: bool = False
    """Whether what lies below the limit is bad, not what lies above."""
    width: int = 8
    low: float | None = None
    """Least value of the axis."""
    high: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Row:
    """A heading and the panels below it."""

    title: str
    panels: Sequence[Panel]


def of_run(expr: str) -> str:
    """Return PromQL for the series of the chosen runs and stages, each with the run's id."""
    chosen = 'geartrain_stage_info{run_id=~"$run", stage=~"$stage"}'
    return f"({expr}) * on (job, instance, stage) group_left (run_id) {chosen}"


def plot(title: str, metric: str, description: str, legend: str = RUN, **options: Any) -> Panel:
    """Return the panel of one expression of the chosen runs; options are fields of `Panel`."""
    return Panel(title, description, (Query(of_run(metric), legend),), **options)


def plot_share(title: str, metric: str, description: str, legend: str = RUN, **options: Any) -> Panel:
    """Return the panel of shares of 1, as `plot` does."""
    return plot(title, metric, description, legend, unit="percentunit", low=0.0, high=1.0, **options)


def laid_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows and panels as Grafana places them: from left to right, a new line where one is full."""
    placed: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        placed.append({"type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": []})
        left, top = 0, top + 1
        for panel in row.panels:
            if left + panel.width > WIDTH:
                left, top = 0, top + HEIGHT
            placed.append(_panel(panel, {"x": left, "y": top, "w": panel.width, "h": HEIGHT}))
            left += panel.width
        top += HEIGHT
    return [{"id": number, **panel} for number, panel in enumerate(placed, start=1)]


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": place,
        "targets": [_target(panel, query, name) for query, name in zip(panel.queries, "ABCDEFGH", strict=False)],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel),
        **({"transformations": _as_table()} if panel.kind == "table" else {}),
    }


def _target(panel: Panel, query: Query, name: str) -> dict[str, Any]:
    table = panel.kind == "table"
    return {
        "refId": name,
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": table or panel.kind in {"stat", "bargauge"},
        "range": not table and panel.kind not in {"stat", "bargauge"},
        "format": "table" if table else "time_series",
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        good, bad = ("red", "green") if panel.below else ("green", "red")
        steps = [{"color": good, "value": None}, {"color": bad, "value": panel.limit}]
    field: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.low is not None:
        field["min"] = panel.low
    if panel.high is not None:
        field["max"] = panel.high
    if panel.kind == "timeseries":
        field["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 0,
            "showPoints": "auto",
            # an iteration may take longer than a scrape: a gap is not a fault of the run
            "spanNulls": 3_600_000,
            "scaleDistribution": {"type": "log", "log": 10} if panel.log else {"type": "linear"},
            "thresholdsStyle": {"mode": "line+area" if panel.limit is not None else "off"},
        }
    elif panel.limit is not None or panel.kind == "state-timeline":
        field["color"] = {"mode": "thresholds"}
    return field


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull"]}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind in {"stat", "bargauge"}:
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    if panel.kind == "state-timeline":
        return {
            "showValue": "never",
            "rowHeight": 0.8,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        }
    return {"showHeader": True}


def _as_table() -> list[dict[str, Any]]:
    hidden = dict.fromkeys(("Time", "__name__", "job", "instance", "container", "endpoint"), True)
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": {"excludeByName": hidden}}]
