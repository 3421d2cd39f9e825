"""Rules and dashboards are committed: a change of either shows in the diff. `make golden` rewrites them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from geartrain.algorithms.validity import ALARMS
from geartrain.monitoring.files import files
from geartrain.monitoring.rules import alerts, groups, prometheus_rule, rule_file
from tests.deploy.validation import problems
from tests.monitoring.expressions import names, unknown_names
from tests.monitoring.promtool import check_rules

FOLDER = "k8s/components/monitoring"


@pytest.mark.parametrize("name", files())
def test_a_file_is_what_its_source_makes(name: str, root: Path, request: pytest.FixtureRequest) -> None:
    path = root / FOLDER / name
    if request.config.getoption("--regenerate"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files()[name])
    assert path.read_text() == files()[name], "wanted? then `make golden` and commit the diff"


def test_nothing_else_lies_there(root: Path) -> None:
    found = {path.relative_to(root / FOLDER).as_posix() for path in (root / FOLDER).rglob("*") if path.is_file()}
    assert found == {*files(), "kustomization.yaml"}


def test_the_rules_are_rules_for_prometheus_and_for_its_operator(tmp_path: Path) -> None:
    assert check_rules(rule_file(), tmp_path) == ""
    document = yaml.safe_load(prometheus_rule())
    assert problems(document) == []
    assert document["spec"] == yaml.safe_load(rule_file()) == groups()
    document["spec"]["groups"][1]["rules"][0]["for"] = "soon"
    assert problems(document) != []


def test_every_name_in_a_rule_exists() -> None:
    assert unknown_names(rule_file()) == set()
    assert "geartrain_train_kl_nats" in names(rule_file())


def test_every_alarm_of_the_run_s_own_watch_is_told() -> None:
    assert [name for name in ALARMS if name not in "".join(alert.expr for alert in alerts()) and name != "kl"] == []
    assert "geartrain_train_kl_nats" in rule_file()


def test_the_command_writes_them_with_links_to_a_copy_of_the_runbooks(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "geartrain.monitoring",
        "--out",
        str(tmp_path),
        "--runbooks",
        "https://git.example.org/r/",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path / name) for name in files()]
    written = (tmp_path / "geartrain.rules.yaml").read_text()
    assert "runbook_url: https://git.example.org/r/kl-blow-up.md" in written
    assert (tmp_path / "dashboards/geartrain-run.json").read_text() == files()["dashboards/geartrain-run.json"]
