"""Which episode is shown, and how its turns are tinted."""

import math

import pytest

from geartrain.reporting.transcript import choose_pair, pretty_call, printable


def record(task, success, advantage=1.0, weights=(1.0, 2.0)):
    turns = [{"action": "x", "observation": "y", "error": None, "weight": weight} for weight in weights]
    return {"task_id": task, "prompt": "p", "success": success, "advantage": advantage, "turns": turns}


def choose(before, after):
    return choose_pair({"before": before, "after": after})


def test_failure_that_became_a_success_is_preferred():
    before = [record("a", True), record("b", False, -1.0), record("c", False, -1.0)]
    after = [record("a", True), record("c", True), record("b", False, -1.0)]
    assert choose(before, after).task_id == "c"


def test_the_same_task_is_shown_on_both_sides_or_none():
    assert choose([record("a", False)], [record("b", True)]) is None
    assert choose([], []) is None
    assert choose([record("a", False, weights=())], [record("a", True)]) is None


def test_a_failure_that_was_blamed_is_preferred_to_one_that_was_praised():
    praised, blamed = record("a", False, 1.4, (0.1, 3.0)), record("b", False, -1.4)
    assert choose([praised, blamed], [record("a", True), record("b", True)]).task_id == "b"


def test_where_credit_differs_between_turns_is_preferred():
    flat, telling = record("a", False, -1.0, (1.0, 1.0)), record("a", False, -1.0, (0.5, 1.5))
    pair = choose([flat, telling], [record("a", True)])
    assert [line.weight for line in pair.before.lines] == [0.5, 1.5]


def test_tint_follows_sign_and_size_of_the_credit():
    pair = choose([record("a", False, -2.0, (0.5, 2.0))], [record("a", True, 1.0, (1.0, 1.0))])
    assert [(line.kind, line.strength) for line in pair.before.lines] == [("blame", 0.25), ("blame", 1.0)]
    assert [(line.kind, line.strength) for line in pair.after.lines] == [("reward", 0.25), ("reward", 0.25)]


@pytest.mark.parametrize("advantage", [0.0, None, math.nan, "1"])
def test_no_advantage_no_tint(advantage):
    pair = choose([record("a", False, advantage)], [record("a", True, advantage)])
    assert {line.kind for line in (*pair.before.lines, *pair.after.lines)} == {"none"}


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        ('{"name": "query", "arguments": {"sql": "a \\"b\\"", "n": 2}}', 'query(sql="a \\"b\\"", n=2)'),
        ('{"name": "finish", "arguments": {}}', "finish()"),
        ("not json", "not json"),
        ('["list"]', '["list"]'),
        ('{"name": "x"}', '{"name": "x"}'),
        ('{"name": "x", "arguments": []}', '{"name": "x", "arguments": []}'),
    ],
)
def test_calls_read_as_calls_and_anything_else_as_it_is(action, shown):
    assert pretty_call(action) == shown


def test_long_texts_are_cut_and_say_so():
    assert printable("x" * 20, limit=5) == "xxxxx … 15 more characters"
    assert printable("a\n\tb") == "a\n\tb"
