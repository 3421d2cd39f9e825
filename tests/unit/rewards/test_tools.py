"""Tools: declared, asked only for what they apply to, within a time, all of it on record."""

import json

import pytest

from geartrain.environments.environment import Task
from geartrain.errors import UserError
from geartrain.rewards.audit import AuditLog
from geartrain.rewards.outcome import Failed, NotApplicable, Spent, Value
from geartrain.rewards.panel import ask_panel
from geartrain.rewards.reading import spoken
from geartrain.rewards.toolbox import built_in, learned_tool, rule_tool
from geartrain.rewards.tools import Applies, Cost, Registry, Tool

TASK = Task("t", "text", "f", "test", "Say something.", "", 1, {"reference": "so"})
OTHER = Task("u", "text", "g", "test", "Say more.", "", 1, {})
TASKS = {"t": TASK, "u": OTHER}


class Clock:
    """Time that passes when somebody is asked."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Slow:
    """Takes a second an episode, and notes who it was asked about."""

    def __init__(self, name, clock, answer=None):
        self.name, self._clock, self.asked = name, clock, []
        self._answer = answer or Value(0.5, "because", Spent(1, 10, 2, 0.25))

    def score(self, trajectories, tasks):
        self.asked += [t.sibling for t in trajectories]
        self._clock.now += len(trajectories)
        return [self._answer] * len(trajectories)


def build_tool(channel, **declared):
    return Tool(channel, "judge", Cost.SERVER, "a slow one", **declared)


def episodes(count, task=TASK):
    return [spoken(task, "words", sibling=i) for i in range(count)]


def test_a_tool_is_asked_only_for_what_it_applies_to():
    clock = Clock()
    channel = Slow("slow", clock)
    tool = build_tool(channel, applies=Applies(frozenset({"f"}), reference=True))
    found = tool.score([spoken(OTHER, "x", sibling=0), spoken(TASK, "x", sibling=1)], TASKS)
    assert found == [NotApplicable("other_family"), Value(0.5)]
    assert channel.asked == [1]
    assert build_tool(channel, applies=Applies(reference=True)).score([spoken(OTHER, "x")], TASKS) == [
        NotApplicable("no_reference")
    ]


def test_when_time_is_up_the_rest_fails_and_what_is_found_stays():
    clock = Clock()
    cheap, dear = Slow("cheap", clock), Slow("dear", clock)
    tools = [build_tool(dear, batch=2), Tool(cheap, "rule", Cost.CPU, "cheap", batch=2)]
    columns = ask_panel(tools, episodes(4), TASKS, seconds=6.0, clock=clock)
    assert list(columns) == ["dear", "cheap"]  # in the order given
    assert columns["cheap"] == [Value(0.5)] * 4  # asked first
    assert columns["dear"] == [Value(0.5), Value(0.5), Failed("out_of_time"), Failed("out_of_time")]
    assert dear.asked == [0, 1]


def test_the_registry_refuses_a_second_tool_of_a_name_and_names_those_it_has():
    registry = Registry([rule_tool("length")])
    with pytest.raises(UserError, match="length"):
        registry.add(rule_tool("length"))
    with pytest.raises(UserError, match="there are length"):
        registry["lenght"]


def test_every_built_in_tool_is_declared_and_answers_one_outcome_an_episode():
    registry = built_in()
    names = {tool.name for tool in registry}
    assert {"verified", "length", "address", "exact", "bleu", "chrf", "rouge"} <= names
    assert [tool.cost for tool in registry.for_task(TASK)] == sorted(tool.cost for tool in registry)
    assert {"exact", "bleu"}.isdisjoint(tool.name for tool in registry.for_task(OTHER))
    columns = ask_panel(list(registry), [*episodes(2), *episodes(1, OTHER)], TASKS)
    assert {len(column) for column in columns.values()} == {3}
    assert columns["verified"] == [Value(0.0)] * 3
    assert learned_tool(Slow("learned", Clock())).cost is Cost.MODEL


def test_every_answer_is_on_record_without_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_TOKEN", "open-sesame-please")
    clock = Clock()
    told = [
        build_tool(Slow("value", clock)),
        build_tool(Slow("failed", clock, Failed("no_verdict", "it said open-sesame-please\u2028", Spent(2, 5)))),
        build_tool(Slow("silent", clock, NotApplicable("no_prose"))),
    ]
    with AuditLog(tmp_path / "logs/audit.jsonl") as audit:
        ask_panel(told, episodes(2), TASKS, audit=audit, clock=clock)
    text = (tmp_path / "logs/audit.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["tool"], line["outcome"], line["raw"]) for line in lines] == [
        *[("value", "value", 0.5)] * 2,
        *[("failed", "failed", None)] * 2,
        *[("silent", "n/a", None)] * 2,
    ]
    assert (lines[0]["seconds"], lines[0]["tokens_in"], lines[0]["price"], lines[0]["why"]) == (
        1.0,
        10,
        0.25,
        "because",
    )
    assert "open-sesame" not in text
    assert "requests" not in lines[4]


def test_the_record_is_bounded_and_has_one_writer(tmp_path):
    path = tmp_path / "audit.jsonl"
    tool = build_tool(Slow("value", Clock()))
    with AuditLog(path, megabytes=0.002) as audit:
        for _ in range(40):
            audit.write(tool, episodes(1), [Value(0.5, "x" * 1000)], seconds=0.1)
        with pytest.raises(UserError, match="another process"):
            AuditLog(path)
    kept = [path, path.with_suffix(".jsonl.1")]
    assert all(0 < file.stat().st_size <= 1000 for file in kept)
    assert {json.loads(line)["tool"] for file in kept for line in file.read_text().splitlines()} == {"value"}


def test_a_line_that_a_kill_has_cut_spoils_no_other(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_text('{"tool": "val')
    with AuditLog(path) as audit:
        audit.write(build_tool(Slow("value", Clock())), episodes(1), [Value(0.5)], seconds=0.1)
    cut, whole = path.read_text().splitlines()
    assert cut == '{"tool": "val'
    assert json.loads(whole)["tool"] == "value"
