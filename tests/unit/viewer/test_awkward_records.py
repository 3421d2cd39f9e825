"""Records that are cut, garbled, hostile, or of another version: whoever watches says what there is, and goes on."""

import json
import math

import pytest
from rich.console import Console
from typer.testing import CliRunner

from geartrain.cli import app
from geartrain.telemetry.endpoint import write_text
from geartrain.telemetry.follower import Follower
from geartrain.telemetry.readings import Readings
from geartrain.viewer.answers import Answers
from geartrain.viewer.terminal import View, frame
from tests.fakes.scrape import parse

HOSTILE = "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>\u202eevil [red]rich[/red] \ud83d"
BEGIN = {"kind": "begin", "stage": "policy", "parameters": {"policy": {"recipe": "grpo", "iterations": 10}}}


def iteration(index, *, record=None, **fields):
    told = {"seconds": {"play": 1.0}, "tokens": {"played": 10}, "ranks": []}
    return {"kind": "iteration", "index": index, "record": {"iteration": index, **(record or {})}, **told, **fields}


def text(*lines):
    return "".join(json.dumps({"time": float(at), **line}) + "\n" for at, line in enumerate(lines))


WELL = text(BEGIN, iteration(0, record={"reward": 0.5, "success": 0.5}))
RECORDS = {
    "cut": WELL + '{"time": 3, "kind": "iterat',
    "nothing": "",
    "no begin": text(iteration(3)),
    "not finite": WELL
    + text(iteration(1, record={"reward": math.nan, "kl": math.inf}, seconds={"play": math.inf, "train": math.nan})),
    "other types": WELL
    + text(
        {"kind": "begin", "parameters": [1]},
        {"kind": "begin", "parameters": {"policy": ["x"]}, "run": {}},
        iteration("2"),
        iteration(2, seconds=[1], tokens=None, ranks=[3, {"rank": []}]),
        iteration(3, record={"alarms": "x", "families": [1], "channels": {"a": 3}, "kl": "high", "groups": "many"}),
        iteration(4, seconds={"play": "long"}),
        {"kind": "progress", "label": ["x"], "done": "1", "total": {}},
        {"kind": "progress", "label": "x", "done": 1, "total": "many"},
        {"kind": "progress", "label": "x", "done": 1, "total": 10**400},
        {"kind": "checkpoint", "time": None},
        {"kind": "end", "outcome": {"a": 1}, "reason": [1], "metrics": 3},
    ),
    "garbled": WELL + "[" * 100_000 + "\n\x00\x00\n\n" + '{"time": 1, "kind": "progress"}\n',
    "of before": text(
        {"kind": "begin"}, {"kind": "iteration", "index": 0}, {"kind": "novelty"}, iteration(1), {"kind": "end"}
    ),
    "hostile": text(
        {"kind": "begin", "run": HOSTILE, "parameters": {"policy": {"recipe": HOSTILE, "iterations": 5}}},
        {"kind": "progress", "label": HOSTILE, "done": 1, "total": 4, "status": HOSTILE},
        iteration(0, record={"alarms": ["kl: " + HOSTILE], "families": {HOSTILE: {"episodes": 1, "success": 1.0}}}),
        {"kind": "end", "outcome": "failed", "reason": HOSTILE, "error": HOSTILE},
    ),
}


@pytest.fixture(params=RECORDS)
def folder(request, tmp_path, monkeypatch):
    monkeypatch.delenv("GEARTRAIN_HOME", raising=False)
    (tmp_path / "params.yaml").write_text("")
    path = tmp_path / ".geartrain" / "live" / "policy-0123.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(RECORDS[request.param])
    return tmp_path


def test_the_terminal_shows_it_and_nothing_moves_its_cursor(folder):
    view = View(folder)
    view.refresh()
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(frame(view, width=100))
    shown = console.export_text(styles=False)
    assert not {c for c in shown if not c.isprintable()} - {"\n"}


def test_the_page_is_told_of_it_in_json(folder):
    answers = Answers(folder)
    for question in ("runs", "run", "episodes", "results"):
        json.dumps(answers.ask(question, {"run": "."}), allow_nan=False).encode()


def test_the_exporter_tells_finite_numbers_and_counts_what_it_could_not_read(folder, request):
    readings = Readings()
    follower = Follower(folder / ".geartrain", readings)
    follower.look()
    follower.look()
    write_text(readings, folder / "metrics.prom")
    found = parse((folder / "metrics.prom").read_text())
    assert all(math.isfinite(value) for value in found.values())
    unread = {"other types": 4, "garbled": 4, "of before": 1}.get(request.node.callspec.params["folder"], 0)
    assert readings.samples()["geartrain_exporter_errors_total"][0].value == unread


def test_a_diagnosis_is_made_of_what_there_is(folder):
    told = CliRunner().invoke(app, ["diagnose", str(folder)])
    assert told.exit_code == (0 if "iteration" in (folder / ".geartrain/live/policy-0123.jsonl").read_text() else 1)
    assert not {c for c in told.stdout if not c.isprintable()} - {"\n"}
