import io
from collections.abc import Iterator

import pytest

from geartrain import progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_when_the_last_is_old_enough_and_one_at_the_end() -> None:
    clock, out = Clock(), io.StringIO()
    lines = progress.PlainLines("policy", 30, out, every=10.0, clock=clock)
    for second in range(1, 16):
        clock.now = float(second)
        lines.advance(1, status=f"success {second / 100:.2f}")
    lines.close()
    # at 10 s: 10 of 30 done, so 20 more take 20 s
    assert out.getvalue().splitlines() == [
        "policy: 10/30, 0:10 elapsed, 0:20 left, success 0.10",
        "policy: 15/30, 0:15 elapsed, 0:15 left, success 0.15",
    ]


def test_a_note_is_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    progress.note("alarm: turns")
    assert capsys.readouterr() == ("", "alarm: turns\n")


def test_the_last_line_is_not_said_twice() -> None:
    clock, out = Clock(), io.StringIO()
    lines = progress.PlainLines("tasks", 2, out, every=1.0, clock=clock)
    clock.now = 3725.0
    lines.advance(2)
    lines.close()
    assert out.getvalue() == "tasks: 2/2, 1:02:05 elapsed\n"


def test_track_yields_every_item_and_knows_the_length_of_a_list() -> None:
    out = io.StringIO()
    assert list(progress.track([1, 2, 3], "tasks", stream=out)) == [1, 2, 3]
    assert out.getvalue().startswith("tasks: 3/3")


def test_an_unknown_total_counts_only() -> None:
    out = io.StringIO()
    assert list(progress.track(iter("ab"), "rows", stream=out)) == ["a", "b"]
    assert out.getvalue() == "rows: 2, 0:00 elapsed\n"


def test_nothing_is_said_of_an_end_that_did_not_come() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    out = io.StringIO()
    with pytest.raises(ValueError, match="broken"):
        list(progress.track(broken(), "rows", stream=out))
    assert out.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_the_status() -> None:
    out = Terminal()
    with progress.bar("policy", 2, stream=out) as advance:
        advance(1)
        advance(1, status="success [0.41]")
    assert "2/2" in out.getvalue()
    assert "success [0.41]" in out.getvalue()
