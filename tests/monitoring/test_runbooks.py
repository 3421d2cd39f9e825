"""Every alert has its page, every page its alert, and both name only what is there."""

import re
from pathlib import Path

import pytest

from geartrain.config import Config
from geartrain.monitoring.alert import Alert
from geartrain.monitoring.rules import alerts
from geartrain.monitoring.runbook import with_head
from geartrain.telemetry import METRICS
from tests.monitoring.expressions import unknown_names

ALERTS = {alert.page: alert for alert in alerts()}
SECTIONS = ["What it means", "Confirm", "Likely causes", "Change in params.yaml"]
SETTING = re.compile(r"\b([a-z_]+)\.([a-z_]+(?:\.[a-z_]+)?)\b(?!\()")
FILES = {"md", "yaml", "json", "jsonl"}


def _page(root: Path, name: str) -> Path:
    return root / "docs/runbooks" / f"{name}.md"


def test_every_alert_has_its_page_and_every_page_its_alert(root: Path) -> None:
    assert sorted(path.stem for path in (root / "docs/runbooks").glob("*.md")) == sorted(ALERTS)


def test_the_guide_lists_them_all(root: Path) -> None:
    rows = re.findall(
        r"^\| \[(\w+)\]\(runbooks/([\w-]+)\.md\) \| (\w+) \|", (root / "docs/alerts.md").read_text(), re.MULTILINE
    )
    assert rows == [(alert.name, alert.page, alert.severity) for alert in alerts()]


@pytest.mark.parametrize("name", ALERTS)
def test_a_page_is_about_its_alert_and_says_what_to_do(name: str, root: Path, request: pytest.FixtureRequest) -> None:
    path = _page(root, name)
    if request.config.getoption("--regenerate"):
        path.write_text(with_head(path.read_text(), ALERTS[name]))
    text = path.read_text()
    assert text == with_head(text, ALERTS[name]), "the rule has changed? then `make golden`, and read the page again"
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    for link in re.findall(r"\]\(([\w-]+)\.md\)", text):
        assert link in ALERTS


@pytest.mark.parametrize("name", ALERTS)
def test_pages_and_texts_name_settings_and_metrics_that_exist(name: str, root: Path) -> None:
    alert = ALERTS[name]
    texts = (_page(root, name).read_text(), alert.summary, alert.description)
    assert _unknown_settings(" ".join(texts)) == []
    assert unknown_names(" ".join(texts)) == set()


def test_a_setting_or_metric_that_is_not_there_is_found() -> None:
    assert _unknown_settings("lower policy.learning_rates or policy.sampling.temp") == [
        *("policy.learning_rates", "policy.sampling.temp")
    ]
    assert unknown_names("geartrain_train_kl_nats geartrain_train_klnats geartrain:x:y") == {
        *("geartrain_train_klnats", "geartrain:x:y")
    }
    assert "geartrain_train_kl_nats" in METRICS


def _unknown_settings(text: str) -> list[str]:
    whole = Config().model_dump()
    found = []
    for section, path in SETTING.findall(text):
        if section not in whole or path.rpartition(".")[2] in FILES or not isinstance(whole[section], dict):
            continue
        place = whole[section]
        for key in path.split("."):
            place = place.get(key, "missing") if isinstance(place, dict) else None
        if place == "missing":
            found.append(f"{section}.{path}")
    return found


def test_texts_say_a_value_and_what_to_do_first() -> None:
    assert [alert.name for alert in alerts() if "First: " not in alert.description] == []
    assert [alert.name for alert in alerts() if not _says_a_value(alert)] == []


def _says_a_value(alert: Alert) -> bool:
    return "$value" in alert.summary + alert.description or "$labels.alarm" in alert.summary
