"""Quality of episodes, on hand-written ones whose counts are known."""

from dataclasses import replace

import pytest

from geartrain.rollouts.quality import (
    describe_play,
    entropy_by_progress,
    first_attempts,
    redundant_calls,
    summarise_quality,
    used_no_tool,
)
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn
from tests.fakes.errand import make_task


def act(name, item=None, *, error=None, goals=()):
    call = None if name is None else ToolCall(name, {} if item is None else {"item": item})
    return Turn([1], [2, 3], [0.0, 0.0], "", call, ToolResult("", error), goals)


def episode(*turns, success=True, end="finished", progress=1.0):
    return Trajectory("t", "short", "t", 0, 0, 0, 1.0, turns, success, progress, end)


CLEAN = episode(act("take", "tea", goals=("tea",)), act("take", "salt", goals=("salt",)), act("finish"))
CLUMSY = episode(
    act("look"),
    act("take", "tee", error="unknown_item"),
    act("take", "tea", goals=("tea",)),
    act("look"),
    act("take", "salt", goals=("salt",)),
    act(None, error="no_call"),
    act("finish"),
)
LAZY = episode(act("finish"), success=True, progress=0.0)
CUT = episode(act("take", "tea", goals=("tea",)), act("take", "tea"), success=False, end="max_turns", progress=0.5)


def test_summary_counts_by_hand():
    found = summarise_quality([CLEAN, CLUMSY, CUT], {"t": make_task("t")}, {"t": 2})
    assert found == {
        "progress": pytest.approx(2.5 / 3, abs=1e-6),
        "steps": 4.0,
        "steps_of_successes": 5.0,
        "necessary_steps": 0.6,  # 3 + 3 necessary of 3 + 7 taken
        "invalid_calls": pytest.approx(2 / 12, abs=1e-6),
        "redundant_calls": pytest.approx(2 / 12, abs=1e-6),
        "zero_tool_successes": 0.0,
        "key_steps": pytest.approx(4 / 6, abs=1e-6),  # clean 2, clumsy 1 (salt), cut 1
        "truncated": pytest.approx(1 / 3, abs=1e-6),
        "action_tokens": 8.0,
    }


def test_share_of_nothing_is_none_not_zero():
    found = summarise_quality([CUT], {"t": make_task("t")}, {"t": 2})
    assert (found["steps_of_successes"], found["necessary_steps"], found["zero_tool_successes"]) == (None, None, None)


def test_play_is_counted_in_agent_turns_by_hand():
    found = describe_play([CLEAN, CLUMSY, CUT])
    assert (found["episodes"], found["environment_steps"]) == (3, 12)
    assert found["redundant_calls"] == pytest.approx(2 / 12, abs=1e-6)
    assert found["first_attempts"] == 0.8  # of 5 reached, clumsy's tea at the second attempt
    assert describe_play([LAZY])["first_attempts"] is None


def told(turn, *entropies):
    return replace(turn, action_entropies=entropies)


def test_entropy_is_of_the_share_of_sub_goals_that_was_reached_before_the_turn():
    whole = episode(
        told(act("look"), 1.0, 3.0),  # nothing reached: first third
        told(act("take", "tea", goals=("tea",)), 1.0, 1.0),
        told(act("take", "salt", goals=("salt",)), 0.5, 0.5),  # one of two: second third
        told(act("finish"), 0.0, 0.2),
    )
    assert entropy_by_progress([whole]) == [1.5, 0.5, 0.1]
    half = replace(whole, turns=whole.turns[:2] + whole.turns[3:], progress=0.5)  # one of two, the other never
    assert entropy_by_progress([half]) == [1.5, 0.1, None]
    lost = replace(whole, turns=[told(act("look"), 2.0, 2.0)], progress=0.0)
    assert entropy_by_progress([lost]) == [2.0, None, None]


@pytest.mark.parametrize(("played", "expected"), [(CLEAN, False), (CLUMSY, False), (LAZY, True)])
def test_a_success_by_finish_alone_used_no_tool(played, expected):
    assert used_no_tool(played) is expected


def test_a_success_after_failed_calls_alone_used_no_tool():
    assert used_no_tool(episode(act("take", "x", error="unknown_item"), act("finish")))


def test_redundant_needs_the_same_arguments():
    assert (
        redundant_calls(episode(act("take", "tea"), act("take", "salt"), act("take", "tea"), act("take", "tea"))) == 2
    )
    assert redundant_calls(episode(act(None, error="no_call"), act(None, error="no_call"))) == 0


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([act("look"), act("take", "tea", goals=("tea",))], 1),
        ([act("take", "tee"), act("take", "tea", goals=("tea",))], 0),
        ([act("look", error="broken"), act("take", "tea", goals=("tea",))], 0),
        ([act("take", "both", goals=("tea", "salt"))], 2),
        ([act("take", "tee"), act("take", "tea", goals=("tea",)), act("take", "salt", goals=("salt",))], 1),
    ],
)
def test_first_attempt_is_spoilt_by_an_error_or_an_earlier_try_with_the_same_tool(turns, expected):
    assert first_attempts(episode(*turns)) == expected
