"""Alarms of a training in the report: there when one was raised, and only then."""

import json

import pytest

from geartrain.algorithms.validity import ALARMS
from geartrain.reporting.alarms import alarm_rows
from geartrain.reporting.build import render_report
from tests.fakes import workspace

TURNS = "turns: {} turns an episode, 4.0 at the start"


def test_an_alarm_has_one_row_with_its_first_iteration_and_its_last_word():
    history = [{"alarms": []}, {"alarms": [TURNS.format(9)]}, {"alarms": [TURNS.format(8), "entropy: 0.01 nats"]}, {}]
    turns, entropy = alarm_rows(history)
    assert (turns["since"], turns["times"]) == (2, "2 of 4")
    assert turns["reason"] == "8 turns an episode, 4.0 at the start"
    assert turns["meaning"] == ALARMS["turns"]
    assert (entropy["since"], entropy["times"]) == (3, "1 of 4")
    assert alarm_rows(history[:3])[1]["times"] == "1 of 3, the last too"


@pytest.mark.parametrize("damaged", [{}, {"alarms": None}, {"alarms": 3}, {"alarms": [None, 1]}])
def test_a_record_that_tells_of_no_alarm_raises_none(damaged):
    assert alarm_rows([damaged]) == []


def test_the_report_shows_alarms_where_there_are_any(tmp_path):
    folder = workspace.build(tmp_path / "run")
    assert 'id="alarms"' not in render_report(folder)
    path = folder / "models/policy/history.jsonl"
    history = [json.loads(line) for line in path.read_text().splitlines()]
    history[20]["alarms"] = ["zero_tool: 40% of the successes used no tool, <5%> at the start (zero-tool collapse)"]
    workspace.write_lines(path, history)
    section = render_report(folder).split('<h3 id="alarms"')[1].split("</section>")[0]
    assert '<td class="bad">zero tool</td><td class="number">21</td><td class="number">1 of 30</td>' in section
    assert "40% of the successes used no tool, &lt;5%&gt; at the start" in section
    assert ALARMS["zero_tool"] in section


def test_the_report_says_what_the_diagnosis_says_first(tmp_path):
    folder = workspace.build(tmp_path / "run")
    assert "Diagnosis: healthy: none of" in render_report(folder)
    path = folder / "models/policy/history.jsonl"
    history = [json.loads(line) for line in path.read_text().splitlines()]
    workspace.write_lines(path, [{**r, "trained_share": 0.3} for r in history])
    section = render_report(folder).split('id="diagnosis">')[1].split("</p>")[0]
    assert section.startswith("Diagnosis: masked actions (certain).")
    assert "0.3 of the sampled tokens are trained (limit 0.9)" in section


def test_the_phases_of_an_environment_get_a_panel(tmp_path):
    folder = workspace.build(tmp_path / "run")
    assert "Success by phase" not in render_report(folder)
    path = folder / "models/policy/history.jsonl"
    history = [json.loads(line) for line in path.read_text().splitlines()]
    workspace.write_lines(path, [{**r, "plan_success": 0.5} for r in history])
    assert "Success by phase" in render_report(folder)
