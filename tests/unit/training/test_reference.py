"""What a teacher is told of a task's siblings: both outcomes, in five fields, and no value to copy (SGCD-P)."""

from dataclasses import replace

import pytest

from geartrain.training.reference import FAILURES, MASK, SUCCESSES, literal_tokens, sanitise, summarise
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn


def _turn(name, error=None, goals=(), **arguments):
    text = f"{name} {arguments}"
    return Turn([1], [2], [-0.1], text, ToolCall(name, arguments), ToolResult("ok", error), goals)


def _trajectory(sibling, *turns, success, end="finished"):
    return Trajectory("t", "f", "t", sibling, 0, 0, 1.0, turns, success, float(success), end)


GOOD = _trajectory(
    0,
    _turn("look", goals=("found '2010-05'",)),
    _turn("query", sql="SELECT 'Brazil', 42"),
    _turn("mail", to="jane@shop.example"),
    success=True,
)
BAD = _trajectory(1, _turn("look"), _turn("mail", to="sales@shop.example", error="unknown_person"), success=False)


def test_the_five_fields_are_there():
    text = summarise([GOOD, BAD])
    lines = text.splitlines()
    assert lines[0] == f"Checks that successful attempts met: found {MASK}"
    assert lines[1] == f"A good way: look() > query(SELECT {MASK}, {MASK}) > mail({MASK})"
    assert lines[2].startswith("A failed way left it at step 2: it did mail(<...>) instead of query(")
    assert lines[2].endswith("met unknown person")
    assert lines[3] == "Attempts part at step 2"
    assert MASK in lines[4]


@pytest.mark.parametrize("outcome", [True, False])
def test_without_both_outcomes_there_is_nothing_to_tell(outcome):
    assert summarise([_trajectory(i, _turn("look"), success=outcome) for i in range(4)]) is None


def test_a_lone_success_is_told_to_everyone_and_so_is_a_lone_failure():
    # decided: the reference is of the group, the trajectory itself included; only a group of one outcome has none
    assert summarise([GOOD, BAD, BAD, BAD]) is not None
    assert summarise([GOOD, GOOD, GOOD, BAD]) is not None


def test_short_successes_and_long_failures_are_told_and_no_more_than_a_few():
    long = _trajectory(2, *[_turn("look", page="a")] * 5, success=True)
    looped = _trajectory(3, *[_turn("look"), *[_turn("query", sql="x")] * 9], success=False, end="max_turns")
    text = summarise([long, GOOD, BAD, BAD, BAD, looped])
    assert text.count("A failed way") == FAILURES == SUCCESSES
    assert "A good way: look() > query" in text
    assert "was cut" not in text.splitlines()[3]
    assert text.splitlines()[2].endswith("was cut")


@pytest.mark.parametrize(
    "literal", ["'O''Hara'", '"quoted"', "12", "3.50", "2010-05-01", "10:30", "jane.p@shop.example", "'42 things'"]
)
def test_no_literal_passes(literal):
    assert sanitise(f"before {literal} after") == f"before {MASK} after"
    told = summarise([_trajectory(0, _turn("query", sql=f"x = {literal}"), success=True), BAD])
    assert literal not in told


class Letters:
    """A tokenizer of one character per id."""

    def decode(self, token_ids, skip_special_tokens=False):
        return "".join(map(chr, token_ids))


def _said(*messages):
    turns = [Turn([9, 9], [ord(c) for c in m], [-1.0] * len(m), m, None, ToolResult("")) for m in messages]
    return Trajectory("t", "f", "t", 0, 0, 0, 1.0, turns, True, 1.0, "finished")


@pytest.mark.parametrize(
    ("message", "literals"),
    [
        ('{"name": "query", "arguments": {"sql": "SELECT a FROM b"}}', ""),
        ("""{"sql": "WHERE x = 'Rio' AND y > 10"}""", "'Rio'10"),
        ("""{"sql": "x = \\"Rio\\" OR z = 2010-05"}""", '\\"Rio\\"2010-05'),
        ('{"to": "jane@shop.example", "limit": 5}', "jane@shop.example5"),
        ("""{"sql": "x = 'it''s'"}""", "'it''s'"),
    ],
)
def test_tokens_of_masked_values_are_those_of_the_literals(message, literals):
    played = _said("look", message)
    found = literal_tokens(played, Letters())
    ids = played.token_ids()
    assert "".join(chr(ids[place]) for place in found.nonzero()[:, 0].tolist()) == literals
    assert not found[: 2 + len("look") + 2].any()  # prompts, and a message without a value


def test_a_message_that_is_not_what_its_ids_say_has_no_such_tokens():
    played = _said("x = 5")
    turn = replace(played.turns[0], action_text="y = 7")
    assert not literal_tokens(replace(played, turns=[turn]), Letters()).any()
