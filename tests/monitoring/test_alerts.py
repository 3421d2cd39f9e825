"""Every alert fires when it has to, stays silent when it must, resolves, and does not outlive its job."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from geartrain.monitoring.alert import PREFIX, Pace
from geartrain.monitoring.rules import alerts, rule_file
from geartrain.telemetry import METRICS
from tests.monitoring.cases import CASES, POD, Case, Value, always
from tests.monitoring.promtool import run_tests

ALERTS = {alert.name: alert for alert in alerts()}
AROUND: Mapping[str, Value] = {'stage_info{run_id="r42"}': always(1.0), "stage_running": always(1.0)}
"""What every running stage tells of itself."""
LONG = 60
"""Steps that are looked at after an end."""


@pytest.fixture(scope="module")
def rules() -> str:
    return rule_file()


def test_every_alert_has_its_case() -> None:
    assert [case.alert for case in CASES] == list(ALERTS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_fires_when_it_has_to_and_says_why(case: Case, rules: str, tmp_path: Path) -> None:
    checks = [_expect(case, case.after, firing=True)]
    if case.after:
        checks.append(_expect(case, case.after - 1, firing=False))
    assert _differences(rules, case, _series({**AROUND, **case.ill}, case.after + 1), checks, tmp_path) == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_stays_silent_while_all_is_well(case: Case, rules: str, tmp_path: Path) -> None:
    steps = case.after + LONG
    checks = [_expect(case, step, firing=False) for step in range(0, steps, max(1, steps // 20))]
    assert _differences(rules, case, _series({**AROUND, **case.well}, steps), checks, tmp_path) == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_resolves_when_it_is_cured(case: Case, rules: str, tmp_path: Path) -> None:
    turn, cured = case.after + 1, {**case.well, **case.cured}
    series = {name: _then(value, cured.get(name, value), turn) for name, value in {**AROUND, **case.ill}.items()}
    end = turn + case.recovers
    checks = [_expect(case, end + more, firing=False) for more in (1, 2, 5)]
    assert _differences(rules, case, _series(series, end + 6), checks, tmp_path) == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_does_not_outlive_its_job(case: Case, rules: str, tmp_path: Path) -> None:
    """The process is gone, and Prometheus has seen that: the series are marked stale."""
    turn = case.after + 1
    series = {name: [*values[:turn], "stale"] for name, values in _values({**AROUND, **case.ill}, turn).items()}
    checks = [_expect(case, turn + case.gone + more, firing=False) for more in (0, 5, LONG)]
    assert _differences(rules, case, _written(series), checks, tmp_path) == ""


@pytest.mark.parametrize("name", ["NonFinite", "LogProbMismatch"])
def test_a_run_that_fails_at_once_tells_why_though_it_is_gone(name: str, rules: str, tmp_path: Path) -> None:
    """A notifier that groups alerts for half a minute never tells of one that was over before it looked."""
    case = next(case for case in CASES if case.alert == name)
    turn = case.after + 1
    ill = {**AROUND, **case.ill, "stage_last_failure_timestamp_seconds": always(turn * case.step)}
    del ill['stage_info{run_id="r42"}']  # gone too: the text cannot name the run any more
    series = {name: [*values[: turn + 1], "stale"] for name, values in _values(ill, turn).items()}
    case = replace(case, description=case.description.removeprefix("Run r42. "))
    checks = [_expect(case, turn + 10, firing=True), _expect(case, turn + 17, firing=False)]
    assert _differences(rules, case, _written(series), checks, tmp_path) == ""


GPUS = {
    "of the pod, scraped with its labels kept": {"pod": "policy-0", "namespace": "geartrain"},
    "of no pod, but on its node": {"pod": "dcgm-x", "namespace": "gpu-operator"},
    "on a machine without pods": {},
}


@pytest.mark.parametrize("labels", GPUS)
def test_idle_gpus_are_seen_whatever_the_exporter_calls_them(labels: str, rules: str, tmp_path: Path) -> None:
    """Names of pods are missing on MIG and without `nvidia.com/gpu` among the limits (dcgm-exporter#577, #138)."""
    case = next(case for case in CASES if case.alert == "GPUIdle")
    place = {**POD, "node": "n1", "geartrain_dev_stage": "policy"}
    if not GPUS[labels]:
        place = {name: POD[name] for name in ("job", "instance", "stage")}
    told = {"gpu": "0", "Hostname": "n1", "job": "dcgm", "instance": "10.0.0.3:9400", **GPUS[labels]}
    series = [
        {"series": f"geartrain_stage_running{_braces(place)}", "values": "1x40"},
        {"series": f"DCGM_FI_DEV_GPU_UTIL{_braces(told)}", "values": "2x40"},
        {"series": f"DCGM_FI_DEV_GPU_UTIL{_braces({**told, 'gpu': '1'})}", "values": "0x40"},
    ]
    where = place.get("pod", place["instance"])
    case = replace(
        case,
        labels=place,
        summary=f"policy ({where}): its GPUs are busy 1% of the time",
        description=case.description.removeprefix("Run r42. "),
    )
    assert _differences(rules, case, series, [_expect(case, 30, firing=True)], tmp_path) == ""


def test_gpus_of_others_are_nobody_s_fault(rules: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.alert == "GPUIdle")
    told = {"gpu": "0", "Hostname": "n9", "pod": "other-0", "namespace": "others", "job": "dcgm"}
    series = [
        {"series": f"geartrain_stage_running{_braces({**POD, 'node': 'n1'})}", "values": "1x40"},
        {"series": f"DCGM_FI_DEV_GPU_UTIL{_braces(told)}", "values": "0x40"},
    ]
    assert _differences(rules, case, series, [_expect(case, 30, firing=False)], tmp_path) == ""


@pytest.mark.parametrize(("waiting", "fires"), [("2x100", True), ("0x100", False), ("2x40 0 2x59", False)])
def test_kueue_s_own_metrics_tell_of_a_queue_too(waiting: str, fires: bool, rules: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.alert == "QueueTooLong")
    case = replace(
        case,
        labels={"cluster_queue": "geartrain-gpu"},
        summary="geartrain-gpu: a job has waited 1h 0m 0s for its place",
        description=case.description.removeprefix("Run r42. "),
    )
    pending = {"cluster_queue": "geartrain-gpu", "status": "active", "job": "kueue", "instance": "10.0.0.9:8080"}
    series = [{"series": f"kueue_pending_workloads{_braces(pending)}", "values": waiting}]
    checks = [_expect(case, 30, firing=False), _expect(case, 90, firing=fires)]
    assert _differences(rules, case, series, checks, tmp_path) == ""


def test_a_counter_first_seen_above_zero_has_risen(rules: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.alert == "NonFinite")
    ill = {**case.ill, "train_skipped_steps_total": always(2.0)}
    checks = [_expect(case, 0, firing=True), _expect(case, 14, firing=True), _expect(case, 16, firing=False)]
    assert _differences(rules, case, _series({**AROUND, **ill}, 20), checks, tmp_path) == ""


@pytest.mark.parametrize("case", [case for case in CASES if case.ends < LONG], ids=lambda case: case.alert)
def test_does_not_outlive_a_stage_of_which_an_exporter_still_tells(case: Case, rules: str, tmp_path: Path) -> None:
    turn, steps = case.after + 1, case.after + case.ends + LONG
    told = _values({**AROUND, **case.ill}, steps)
    series = {}
    for name, values in told.items():
        metric = METRICS.get("geartrain_" + _family(name))
        after = [values[turn]] * (steps - turn) if metric is not None and metric.outlives else ["stale"]
        series[name] = values[:turn] + (["0"] * (steps - turn) if name == "stage_running" else after)
    series["stage_last_success_timestamp_seconds"] = ["_"] * turn + [f"{turn * case.step:g}"] * (steps - turn)
    checks = [_expect(case, turn + case.ends + more, firing=False) for more in (1, 5, LONG // 2)]
    assert _differences(rules, case, _written(series), checks, tmp_path) == ""


def test_an_hour_of_patience_is_seconds_at_another_pace() -> None:
    stalled = next(alert for alert in alerts(Pace(1 / 600)) if alert.name == "TrainingStalled")
    assert "clamp_min(5 * geartrain:iteration_seconds:mean, 1)" in stalled.expr
    assert (stalled.hold, ALERTS["TrainingStalled"].hold) == ("100ms", "1m")
    assert [Pace().span(seconds) for seconds in (0, 0.5, 90, 5400, 86_400, 90_061)] == [
        *("0s", "500ms", "1m30s", "1h30m", "1d", "1d1h1m1s")
    ]


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _then(before: Value, after: Value, turn: int) -> Value:
    return lambda step: (before if step < turn else after)(step)


def _family(name: str) -> str:
    return name.partition("{")[0].removesuffix("_sum").removesuffix("_count")


def _values(series: Mapping[str, Value], steps: int) -> dict[str, list[str]]:
    """Return the samples of each series as promtool writes them."""
    told = {name: [value(step) for step in range(steps + 1)] for name, value in series.items()}
    return {name: ["_" if value is None else f"{value:g}" for value in values] for name, values in told.items()}


def _series(series: Mapping[str, Value], steps: int) -> list[dict[str, str]]:
    return _written(_values(series, steps))


def _written(series: Mapping[str, list[str]]) -> list[dict[str, str]]:
    return [{"series": _full_name(name), "values": " ".join(values)} for name, values in series.items()]


def _full_name(name: str) -> str:
    if name.startswith("DCGM"):
        return name
    family, _, own = name.partition("{")
    told = [text for text in own.rstrip("}").split(",") if text]
    given = {text.partition("=")[0] for text in told}
    told += [f'{label}="{value}"' for label, value in POD.items() if label not in given]
    return f"geartrain_{family}{{{','.join(told)}}}"


def _differences(
    rules: str, case: Case, series: list[dict[str, str]], checks: list[dict[str, Any]], folder: Path
) -> str:
    every = f"{case.step:g}s"
    test = {"interval": every, "input_series": series, "alert_rule_test": checks}
    return run_tests(rules, [test], folder, every=every)


def _expect(case: Case, step: int, *, firing: bool) -> dict[str, Any]:
    check: dict[str, Any] = {"eval_time": f"{step * case.step:g}s", "alertname": PREFIX + case.alert}
    if firing:
        alert = ALERTS[case.alert]
        labels = {**(case.labels or POD), "severity": alert.severity, "area": alert.area}
        texts = {"summary": case.summary, "description": case.description}
        check["exp_alerts"] = [
            {"exp_labels": labels, "exp_annotations": {**texts, "runbook_url": f"docs/runbooks/{alert.page}.md"}}
        ]
    return check
