"""Dashboards are Grafana's JSON; expressions are PromQL over metrics that exist; panels explain themselves."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from geartrain.monitoring.dashboards import BOARDS, dashboard
from geartrain.monitoring.panel import DATASOURCE
from tests.monitoring.expressions import unknown_names
from tests.monitoring.promtool import check_rules

UNITS = {"none", "percentunit", "s", "bytes", "cps", "celsius"}
PLACE = {
    "type": "object",
    "required": ["x", "y", "w", "h"],
    "additionalProperties": False,
    "properties": {
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
        "y": {"type": "integer", "minimum": 0},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "h": {"type": "integer", "minimum": 1},
    },
}
SOURCE = {"const": DATASOURCE}
PANEL = {
    "type": "object",
    "required": ["id", "type", "title", "gridPos"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"enum": ["row", "timeseries", "stat", "table", "state-timeline", "bargauge"]},
        "title": {"type": "string", "minLength": 3},
        "gridPos": PLACE,
    },
    "if": {"properties": {"type": {"not": {"const": "row"}}}},
    "then": {
        "required": ["description", "datasource", "targets", "fieldConfig", "options"],
        "properties": {
            "description": {"type": "string", "minLength": 10},
            "datasource": SOURCE,
            "targets": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["refId", "expr", "datasource", "legendFormat", "instant", "range", "format"],
                    "additionalProperties": False,
                    "properties": {
                        "refId": {"pattern": "^[A-H]$"},
                        "expr": {"type": "string", "minLength": 3},
                        "datasource": SOURCE,
                        "legendFormat": {"type": "string", "minLength": 2},
                        "instant": {"type": "boolean"},
                        "range": {"type": "boolean"},
                        "format": {"enum": ["time_series", "table"]},
                    },
                },
            },
            "fieldConfig": {
                "type": "object",
                "required": ["defaults", "overrides"],
                "properties": {
                    "defaults": {
                        "type": "object",
                        "required": ["unit", "thresholds"],
                        "properties": {"unit": {"enum": sorted(UNITS)}},
                    }
                },
            },
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": ["uid", "title", "tags", "schemaVersion", "templating", "panels", "time", "refresh"],
    "properties": {
        "uid": {"pattern": "^geartrain-[a-z]+$"},
        "panels": {"type": "array", "minItems": 2, "items": PANEL},
        "templating": {"type": "object", "required": ["list"]},
    },
    "not": {"required": ["id"]},
}
"""What we use of Grafana's own schema, and no more than that; an `id` belongs to one installation."""


def _panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in dashboard(name)["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_fits_the_schema(name: str) -> None:
    found = dashboard(name)
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(found)] == []
    assert found["uid"] == f"geartrain-{name}"
    assert [variable["name"] for variable in found["templating"]["list"]] == ["datasource", "run", "stage"]
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    titles = [panel["title"] for panel in _panels(name)]
    assert len(set(titles)) == len(titles)


def test_a_panel_that_explains_nothing_does_not_fit() -> None:
    found = dashboard("run")
    del found["panels"][1]["description"]
    found["panels"][2]["datasource"] = {"type": "prometheus", "uid": "P1809F7CD0C75ACF3"}
    assert len(list(Draft202012Validator(SCHEMA).iter_errors(found))) == 2


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard(name)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_every_expression_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{name}:{panel['id']}{target['refId']}", "expr": _filled_in(target["expr"])}
        for name in BOARDS
        for panel in _panels(name)
        for target in panel["targets"]
    ]
    assert len(rules) > 80
    assert check_rules(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), tmp_path) == ""
    broken = [*rules[:1], {"record": "panel:broken", "expr": "sum by (stage geartrain_stage_running"}]
    assert "panel:broken" in check_rules(yaml.safe_dump({"groups": [{"name": "panels", "rules": broken}]}), tmp_path)


@pytest.mark.parametrize("name", BOARDS)
def test_every_metric_and_label_exists(name: str) -> None:
    assert unknown_names(" ".join(target["expr"] for panel in _panels(name) for target in panel["targets"])) == set()


def _filled_in(expr: str) -> str:
    """Put what Grafana would in the place of its variables."""
    filled = re.sub(r"\$(run|stage)\b", ".*", expr).replace("$__rate_interval", "5m")
    assert "$" not in filled.replace('"$1"', ""), expr
    return filled
