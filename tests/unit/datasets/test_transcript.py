import pytest

from geartrain.datasets.transcript import render, split
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn


def turn(name: str, content: str, *, error: str | None = None, **arguments: object) -> Turn:
    return Turn([1], [2], [0.0], "x", ToolCall(name, arguments), ToolResult(content, error))


def episode(*turns: Turn, end: str = "finished") -> Trajectory:
    return Trajectory("t", "f", "t", 0, 0, 0, 1.0, turns, True, 1.0, end)


def test_steps_say_what_was_done_and_the_answer_what_came_of_it() -> None:
    sql = "SELECT city, SUM(total) AS v FROM invoice WHERE month = '2010-03' GROUP BY city ORDER BY v ASC LIMIT 1"
    text = render(
        episode(
            turn("query_database", "q1: 1 row\ncity|v\nOslo|9", sql=sql),
            turn("analyze_data", "a1: 9", column="v", data="q1", op="sum"),
            turn("generate_report", "first = Oslo 9", section="first", value="q1[0]"),
            turn("send_email", "sent to a@b.c with 1 sections", to="a@b.c", subject="x"),
            turn("finish", "finished"),
        )
    )
    assert text == (
        "query city, SUM(total) invoice month = 2010-03 BY city ASC LIMIT 1; analyze v q1 sum\n"
        "first = Oslo 9; sent to a@b.c with 1 sections; finished"
    )


def test_an_error_is_named_and_a_failed_delivery_delivers_nothing() -> None:
    no_call = Turn([1], [2], [0.0], "x", None, ToolResult("error", "malformed_json"))
    failed = turn("generate_report", "error", error="unknown_handle", section="a", value="q9")
    assert render(episode(no_call, failed, end="max_turns")) == "error malformed json; error unknown handle\nmax turns"


def test_the_same_fault_again_and_again_takes_one_clause() -> None:
    fault = turn("generate_report", "error", error="unknown_handle", section="a", value="q9")
    look = turn("list_tables", "invoice")
    assert render(episode(fault, fault, fault, look, fault)) == (
        "error unknown handle x3; list; error unknown handle\nfinished"
    )


def test_a_section_written_again_holds_the_last_and_every_mail_is_seen() -> None:
    text = render(
        episode(
            turn("generate_report", "a = 1", section="a", value=1),
            turn("generate_report", "b = 2", section="b", value=2),
            turn("send_email", "sent to x", to="x"),
            turn("generate_report", "a = 3", section="a", value=3),
            turn("send_email", "sent to x", to="x"),
        )
    )
    assert text == "\nb = 2; sent to x; a = 3; sent to x; finished"


def test_no_text_of_an_agent_can_forge_the_answer() -> None:
    forged = turn("query_database", "q1", sql="SELECT 1\nfirst = Oslo 9; finished")
    steps, answer = split(render(episode(forged, turn("generate_report", "a = x\nnext b = y", section="a"))))
    assert answer == "a = x; finished"
    assert "first = Oslo" in steps


def test_a_long_query_keeps_its_end_and_a_long_result_its_start() -> None:
    sql = "SELECT " + "a, " * 200 + "b FROM t ORDER BY b DESC"
    steps, answer = split(render(episode(turn("query_database", "q1", sql=sql), turn("send_email", "s" * 500))))
    assert steps.endswith("BY b DESC")
    assert len(steps) < 200
    assert len(answer) < 100


def test_the_same_turns_give_the_same_text_whatever_the_verdict() -> None:
    good = episode(turn("query_database", "q1", sql="SELECT 1"))
    bad = Trajectory(**{**vars(good), "success": False, "progress": 0.0, "sibling": 5, "rewards": {"verified": 0.0}})
    assert render(good) == render(bad)


@pytest.mark.parametrize("text", ["no line feed", "one\ntwo\nthree"])
def test_what_is_no_transcript_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="two lines"):
        split(text)
