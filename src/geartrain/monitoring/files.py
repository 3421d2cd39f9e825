"""Rules and dashboards as the files of `k8s/components/monitoring`."""

from collections.abc import Mapping
from pathlib import Path

from geartrain.artifacts import write_atomically
from geartrain.monitoring.alert import RUNBOOKS
from geartrain.monitoring.dashboards import BOARDS, dashboard_file
from geartrain.monitoring.rules import prometheus_rule, rule_file


def files(*, runbooks: str = RUNBOOKS) -> Mapping[str, str]:
    """Return the text of each file, by its path in the folder."""
    return {
        "geartrain.rules.yaml": rule_file(runbooks=runbooks),
        "rule.yaml": prometheus_rule(runbooks=runbooks),
        **{f"dashboards/geartrain-{name}.json": dashboard_file(name) for name in BOARDS},
    }


def write(folder: Path, *, runbooks: str = RUNBOOKS) -> list[Path]:
    """Write the files into a folder, and return their paths."""
    written = []
    for name, text in files(runbooks=runbooks).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
        written.append(path)
    return written
