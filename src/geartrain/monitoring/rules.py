"""The rules as files: for Prometheus itself, and as the operator's PrometheusRule; both from one table."""

from typing import Any

import yaml

from geartrain.monitoring.alert import RUNBOOKS, Alert, Pace
from geartrain.monitoring.learning_alerts import learning
from geartrain.monitoring.recordings import recordings
from geartrain.monitoring.service_alerts import service

HEADER = "# Made by `make golden` from src/geartrain/monitoring: edit there.\n"
STEADY = Pace()
"""Real time."""


def alerts(pace: Pace = STEADY) -> tuple[Alert, ...]:
    """Return every alert, at a pace."""
    return (*learning(pace), *service(pace))


def groups(pace: Pace = STEADY, *, runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """Return the content of a rule file: the computed series first, the alerts that read them after them."""
    every = f"{round(1000 * pace.every)}ms" if pace.every % 1 else f"{pace.every:g}s"
    return {
        "groups": [
            {"name": "geartrain-series", "interval": every, "rules": recordings(pace)},
            {
                "name": "geartrain-alerts",
                "interval": every,
                "rules": [alert.rule(runbooks=runbooks) for alert in alerts(pace)],
            },
        ]
    }


def rule_file(pace: Pace = STEADY, *, runbooks: str = RUNBOOKS) -> str:
    """Return the rule file of Prometheus."""
    return HEADER + _yaml(groups(pace, runbooks=runbooks))


def prometheus_rule(*, runbooks: str = RUNBOOKS) -> str:
    """Return the rules as the operator's object, with the labels by which kube-prometheus picks rules up."""
    return HEADER + _yaml(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {
                "name": "geartrain",
                "namespace": "geartrain",
                "labels": {"prometheus": "k8s", "role": "alert-rules", "app.kubernetes.io/part-of": "geartrain"},
            },
            "spec": groups(runbooks=runbooks),
        }
    )


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, which a person can read."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _yaml(content: dict[str, Any]) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)
