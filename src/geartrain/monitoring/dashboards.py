"""The dashboards as Grafana reads them: one JSON object each, with a fixed uid and variables for run and stage."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from geartrain.monitoring.fleet_boards import CLUSTER, FLEET
from geartrain.monitoring.panel import DATASOURCE, Row, laid_out
from geartrain.monitoring.run_boards import CREDIT, REWARD, RUN

BOARDS: Mapping[str, tuple[str, str, Sequence[Row]]] = {
    "fleet": (
        "geartrain: fleet",
        "Every run: what it is at, what is wrong with it, when the last one came through.",
        FLEET,
    ),
    "run": ("geartrain: run", "One training run: is it learning, and is it healthy?", RUN),
    "reward": (
        "geartrain: reward",
        "What the reward channels say, how often they fail, and whether they can be fooled.",
        REWARD,
    ),
    "credit": ("geartrain: credit", "How credit is spread over turns and tokens, and what it is made of.", CREDIT),
    "cluster": ("geartrain: cluster", "Queues, GPUs, ranks, checkpoints and lineage.", CLUSTER),
}
"""Name -> title, what it is for, rows."""
SCHEMA_VERSION = 39
"""Of Grafana 10 and later, which migrate it themselves."""


def dashboard(name: str) -> dict[str, Any]:
    """Return a dashboard."""
    title, description, rows = BOARDS[name]
    return {
        "uid": f"geartrain-{name}",
        "title": title,
        "description": description,
        "tags": ["geartrain"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "links": [
            {
                "type": "dashboards",
                "title": "geartrain",
                "tags": ["geartrain"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "annotations": {"list": [_alerts()]},
        "templating": {
            "list": [_datasource(), _variable("run", "run_id", "Run"), _variable("stage", "stage", "Stage")]
        },
        "panels": laid_out(rows),
    }


def dashboard_file(name: str) -> str:
    """Return a dashboard as the text of its file."""
    return json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Geartrain.*", alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{stage}}",
        "step": "60s",
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(name: str, label: str, shown: str) -> dict[str, Any]:
    query = f"label_values(geartrain_stage_info, {label})"
    return {
        "name": name,
        "label": shown,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "hide": 0,
    }
