"""The table of metrics: names by Prometheus' conventions, few series, everything said."""

import math
import re

import pytest

from geartrain.algorithms.recipe import RECIPES
from geartrain.algorithms.validity import ALARMS, WINDOW
from geartrain.preferences.forgeries import KINDS
from geartrain.preferences.pairs import SPLITS
from geartrain.rollouts.probes import PROBES
from geartrain.stages.evaluation import EVALUATED, MODELS
from geartrain.stages.stage import ORDER
from geartrain.telemetry import GROUPS, MAX_SERIES, METRICS, labels
from geartrain.telemetry.readings import FIRST
from geartrain.telemetry.rules import RULES

PROCESS_SERIES = 8
"""Of prometheus_client's collector of the process, and a few to spare."""


def most_series(metric):
    combinations = 1 if metric.kind == "info" else math.prod(label.bound for label in metric.labels)
    return combinations * (len(metric.buckets) + 3 if metric.kind == "histogram" else 1)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_name_says_kind_and_unit(metric):
    assert re.fullmatch(r"geartrain(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith("_info") == (metric.kind == "info")
    assert not re.search(r"_(ms|millis|mb|kb|gb|percent|minutes|hours|count|sum|bucket)(_|$)", metric.name)
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(metric.buckets)
    assert metric.help[0].isupper() or metric.help[0].isdigit()
    assert metric.help.endswith((".", "…"))
    assert all(label.why and bool(label.values) != bool(label.most) for label in metric.labels)
    assert metric.of in ("*", "", *ORDER)
    assert "run_id" not in [label.name for label in metric.labels] or metric.kind == "info"


def test_no_name_is_declared_twice():
    assert len(METRICS) == sum(map(len, GROUPS.values()))


def test_an_exporter_cannot_have_too_many_series():
    """Each label at its bound, one stage, as in a pod."""
    assert sum(map(most_series, METRICS.values())) + PROCESS_SERIES <= MAX_SERIES


def test_a_follower_of_all_stages_cannot_either():
    of_any = sum(most_series(metric) for metric in METRICS.values() if metric.of == "*")
    own = sum(most_series(metric) for metric in METRICS.values() if metric.of != "*")
    assert own + of_any * len(ORDER) + PROCESS_SERIES <= 2 * MAX_SERIES
    assert own + sum(most_series(METRICS[f"geartrain_{name}"]) for name in ("stage_running",)) * 9 <= MAX_SERIES


def test_vocabularies_are_those_of_what_they_name():
    assert set(ALARMS) <= set(labels.ALARMS)
    assert set(KINDS) == set(labels.ATTACK.values)
    assert set(SPLITS) == set(labels.PAIR_SPLIT.values)
    assert {grain for recipe in RECIPES.values() for grain in recipe.grains} <= set(labels.GRAIN.values)
    assert (EVALUATED, tuple(MODELS)) == (labels.SPLIT.values, labels.ROLE.values)
    assert labels.STAGE.values == ORDER
    assert FIRST == WINDOW
    assert PROBES


def test_every_rule_is_asked_for_and_every_one_asked_for_is_there():
    named = {metric.source.removeprefix("line: ") for metric in METRICS.values() if metric.source.startswith("line: ")}
    own = {metric.source.removeprefix("line: ") for metric in METRICS.values() if metric.of == ""}
    assert named - own == set(RULES)
