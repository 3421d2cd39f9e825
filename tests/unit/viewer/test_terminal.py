"""`geartrain top`: what a frame says, on 80 columns, in a pipe and on a terminal that is resized and left by q."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from rich.console import Console

from geartrain.errors import UserError
from geartrain.viewer import terminal
from tests.fakes.long_run import write_long_run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    return write_long_run(tmp_path_factory.mktemp("top") / "run", iterations=20, tasks=1, ended="failed")


def _frame(folder, width=80, *, plain=False, chosen=None):
    view = terminal.View(folder, chosen=chosen)
    view.refresh()
    console = Console(width=width, color_system=None)
    with console.capture() as shown:
        console.print(terminal.frame(view, width=width, plain=plain))
    return shown.get()


def test_a_frame_names_stages_progress_curves_and_why_it_ended(stopped):
    text = _frame(stopped)
    assert text.startswith("run  fixed_weights  policy failed  last heard of ")
    for words in ("· warm_start", "✘ policy", "20/20", "the loss is <not> finite", "20 iterations"):
        assert words in text
    (line,) = [line for line in text.splitlines() if line.startswith("success ")]
    assert any(block in line for block in terminal.BLOCKS)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_frame_fits_its_terminal(width, stopped):
    assert max(len(line.rstrip()) for line in _frame(stopped, width).splitlines()) <= width


def test_a_terminal_that_knows_ascii_alone_gets_nothing_else(stopped):
    assert _frame(stopped, plain=True).isascii()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ""),
        ([1.0], "▁"),
        ([1.0, 1.0], "▁▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([0.0] * 16 + [8.0] * 16, "▁▁▁▁████"),
    ],
)
def test_a_spark_line(values, expected):
    assert terminal.spark(values, 8) == expected


def test_of_several_runs_the_one_at_work_is_shown_and_n_shows_the_next(fleet):
    view = terminal.View(fleet)
    view.refresh()
    assert view.shown == "runs/long"
    names = []
    for _ in range(3):
        view.step()
        names.append(view.shown)
    assert sorted(names) == ["runs/done", "runs/long", "runs/other"]
    assert "also running: runs/long" in _frame(fleet, chosen="runs/done")


def test_a_folder_without_a_run_says_how_to_make_one(tmp_path):
    with pytest.raises(UserError, match="geartrain run --profile smoke"):
        terminal.View(tmp_path).refresh()


def test_in_a_pipe_it_prints_one_frame_and_ends(stopped):
    done = subprocess.run(
        [sys.executable, "-m", "geartrain", "top", str(stopped)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.startswith("run  fixed_weights")
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_on_a_terminal_it_follows_is_resized_and_leaves_at_q(stopped):
    process, handle = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm-256color", "PYTHONUTF8": "1"}
        os.execv(sys.executable, [sys.executable, "-m", "geartrain", "top", str(stopped)])
    try:
        fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        text = _read_until(handle, "q quit")
        assert "fixed_weights" in text
        fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        os.kill(process, signal.SIGWINCH)
        _read_until(handle, "q quit")
        os.write(handle, b"q")
        _read_until(handle, "\x1b[?1049l")  # the screen that was there before is back
        _, status = os.waitpid(process, 0)
        process = 0
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        if process:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        os.close(handle)


def _read_until(handle, words, seconds=120.0):
    text, deadline = "", time.monotonic() + seconds
    while words not in text:
        ready, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{words!r} never came: {text[-2000:]}"
        try:
            text += os.read(handle, 65536).decode("utf-8", "replace")
        except OSError:  # the other side is gone
            assert words in text, text[-2000:]
    return text
