"""What users of the sandbox rely on: answers, failures by kind, limits; and that it comes back whatever happens."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from geartrain.errors import UserError
from geartrain.sandbox.outcome import Call, Failed, Limits, Value
from geartrain.sandbox.strays import children
from geartrain.sandbox.supervisor import Sandbox

ADD = "def add(a, b=0):\n    print('adding', a)\n    return a + b\n"


def test_each_call_has_its_answer(sandbox: Sandbox) -> None:
    calls = [Call("add", [1, 2]), Call("add", ["a", 1]), Call("add", [3], {"b": 4}), Call("absent")]
    outcome = sandbox.run(ADD, calls)
    assert outcome.answers[0] == Value(3)
    assert outcome.answers[1] == Failed(
        "error",
        'line 3, in add: return a + b\nTypeError: can only concatenate str (not "int") to str',
    )
    assert outcome.answers[2] == Value(7)
    assert outcome.answers[3] == Failed("error", "AttributeError: module 'answer' has no attribute 'absent'")
    assert outcome.output == "adding 1\nadding a\nadding 3\n"
    assert outcome.seconds >= outcome.cpu_seconds > 0
    assert outcome.failed == outcome.answers[1]
    with pytest.raises(ValueError, match="TypeError"):
        outcome.values  # noqa: B018


def test_code_that_does_not_load_answers_nothing(sandbox: Sandbox) -> None:
    outcome = sandbox.run("def f(:\n    pass", [Call("f"), Call("f")])
    assert outcome.answers[0] == outcome.answers[1]
    assert outcome.failed is not None
    assert outcome.failed.reason == "error"
    assert "SyntaxError" in outcome.failed.detail


def test_a_run_without_calls_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(UserError, match="without calls"):
        sandbox.run("raise SystemExit(0)", [])


def test_no_place_to_write_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(UserError, match="Let TMPDIR name one"):
        Sandbox()


def test_data_of_python_comes_back_as_it_was(sandbox: Sandbox) -> None:
    data = [(1, "a"), {2: {3.5, 4}}, {"k": [None, True]}, frozenset("x"), -(10**30), "\N{SNOWMAN}"]
    assert sandbox.run("def same(x): return x", [Call("same", [data])]).values == [data]


def test_a_trusted_test_decides_by_one_answer_what_it_asks_next(sandbox: Sandbox) -> None:
    with sandbox.program("total = 0\ndef add(x):\n    global total\n    total += x\n    return total") as program:
        answers = [program.call(Call("add", [1]))]
        assert answers == [Value(1)]
        answers.append(program.call(Call("add", [10])))
    assert program.outcome(answers).values == [1, 11]
    assert program.call(Call("add", [1])) == Failed("unavailable", "the run is over")


def test_usual_modules_work(sandbox: Sandbox) -> None:
    code = """
from __future__ import annotations
import collections, dataclasses, datetime, decimal, enum, fractions, functools, heapq, itertools, json, logging, math
import pickle, random, re, statistics, string, typing, unittest

@dataclasses.dataclass
class Point:
    x: int
    y: int = 2

class Color(enum.Enum):
    RED = 1

def f():
    return [
        pickle.loads(pickle.dumps(Point(1))) == Point(1, 2),
        datetime.datetime.strptime("2026-01-02", "%Y-%m-%d").isoformat(),
        typing.get_type_hints(Point)["x"] is int,
        str(fractions.Fraction(1, 3) + decimal.Decimal("0.5").as_integer_ratio()[0]),
        statistics.median([1, 2, 3]),
        "caf\\u00e9".encode("utf-16").decode("utf-16"),
        Color.RED.name,
        open("x", "w").write("1") and open("x").read(),
    ]
"""
    values = [True, "2026-01-02T00:00:00", True, "4/3", 2, "caf\u00e9", "RED", "1"]
    assert sandbox.run(code, [Call("f")]).values == [values]


def test_a_module_beside_the_standard_library_is_there_if_asked_for() -> None:
    code = "import numpy as np\ndef f(x): return np.linalg.det(np.array(x)), np.random.rand(), np.fft.fft(x[0]).real"
    with Sandbox(["numpy"]) as sandbox:
        first, again = (sandbox.run(code, [Call("f", [[[1.0, 2.0], [3.0, 5.0]]])]).values[0] for _ in range(2))
        assert sandbox.run("import numpy\nx = numpy.ones(10**9)", [Call("f")]).failed == Failed(
            "memory", "it asked for more memory than it may have"
        )
    assert first == again
    assert first[0] == pytest.approx(-1.0)
    with pytest.raises(UserError, match="no_such_module: it is not installed"):
        Sandbox(["no_such_module"])


def test_runs_are_alike() -> None:
    """The order of a set and what `random` says do not change from one sandbox to another."""
    code = "import random\ndef f(): return [repr(set('abcdefgh')), hash('a'), random.random()]"
    values = []
    for _ in range(2):
        with Sandbox() as sandbox:
            values += [sandbox.run(code, [Call("f")]).values for _ in range(2)]
    assert values[0] == values[1] == values[2] == values[3]


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": float("inf")},
        {"seconds": float("nan")},
        {"seconds": 0},
        {"seconds": "1"},
        {"cpu_seconds": 0.5},
        {"files": True},
    ],
)
def test_limits_are_finite_numbers(limits: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"limits.{next(iter(limits))}="):
        Limits(**limits)  # type: ignore[arg-type]


def test_an_argument_that_is_no_data_is_the_callers_fault(sandbox: Sandbox) -> None:
    with pytest.raises(UserError, match="arguments of add: nan is no data"):
        sandbox.run(ADD, [Call("add", [float("nan")])])
    assert sandbox.run(ADD, [Call("add", [1, 1])]).values == [2]


def test_an_argument_larger_than_any_buffer_arrives(sandbox: Sandbox) -> None:
    assert sandbox.run("def f(x): return len(x)", [Call("f", ["x" * 3_000_000])]).values == [3_000_000]


def test_the_time_of_the_caller_is_not_counted(sandbox: Sandbox) -> None:
    """A slow test between two calls takes nothing of the code's time."""
    with sandbox.program(ADD, Limits(seconds=1.0)) as program:
        program.call(Call("add", [1]))
        before = program._exchange._left  # type: ignore[union-attr]
        subprocess.run([sys.executable, "-S", "-c", ""], check=True)
        assert program._exchange._left == before  # type: ignore[union-attr]


def test_a_zygote_that_dies_is_replaced() -> None:
    with Sandbox() as sandbox:
        assert sandbox._zygote is not None
        first = sandbox._zygote.folder
        os.kill(sandbox._zygote.process, signal.SIGKILL)
        sandbox._zygote._process.wait()
        assert sandbox.run(ADD, [Call("add", [1, 1])]).values == [2]
        assert not first.exists()


def test_a_zygote_that_dies_in_a_run_makes_it_unavailable_and_not_wrong() -> None:
    with Sandbox() as sandbox:
        with sandbox.program(ADD) as program:
            assert sandbox._zygote is not None
            os.kill(sandbox._zygote.process, signal.SIGKILL)
            answer = program.call(Call("add", [1, 1]))
        assert isinstance(answer, Value) or answer.reason == "unavailable"
        assert sandbox.run(ADD, [Call("add", [1, 1])]).values == [2]


def test_a_process_that_was_killed_while_it_waited_is_replaced(sandbox: Sandbox) -> None:
    """Out of memory, the kernel ends first what does nothing."""
    sandbox.run(ADD, [Call("add", [1, 1])])
    assert sandbox._zygote is not None
    zygote = sandbox._zygote.process
    until = time.monotonic() + 30
    while not (waiting := children(zygote)):
        assert time.monotonic() < until, "no process was made in advance"
    handle = os.pidfd_open(waiting[0])
    os.kill(waiting[0], signal.SIGKILL)
    _wait_for_end(handle)
    assert sandbox.run(ADD, [Call("add", [1, 1])]).values == [2]
    assert sandbox._zygote.process == zygote


def test_threads_share_a_sandbox(sandbox: Sandbox) -> None:
    found: dict[int, list[int]] = {}

    def work(number: int) -> None:
        found[number] = [sandbox.run(ADD, [Call("add", [number, turn])]).values[0] for turn in range(5)]

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number + turn for turn in range(5)] for number in range(4)}


def test_nothing_is_left_open() -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    with Sandbox() as sandbox:
        folder = sandbox._zygote.folder  # type: ignore[union-attr]
        sandbox.run(ADD, [Call("add", [1, 1])])
        during = opened()
        for limits in [Limits(), Limits(seconds=2.0)] * 5:
            sandbox.run(ADD, [Call("add", [1, 1])], limits)
            sandbox.run("import os; os._exit(3)", [Call("add", [1, 1])])
        assert opened() == during
    assert opened() == before
    assert not folder.exists()


OWNER = """
import os, signal, sys, threading
from geartrain.sandbox.outcome import Call
from geartrain.sandbox.strays import children
from geartrain.sandbox.supervisor import Sandbox
made = []
thread = threading.Thread(target=lambda: made.append(Sandbox()))
thread.start()
thread.join()  # the sandbox outlives the thread that made it
sandbox = made[0]
def add(): return sandbox.run("def add(a): return a + 1", [Call("add", [1])]).values[0]
first = add()
child = os.fork()
if child == 0:  # a fork may use it too: it gets its own
    os._exit(40 + add())
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(first, status, add(), sandbox._zygote.process, sandbox._zygote.folder, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_owner_however_that_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as owner:
        assert owner.stdout is not None
        first, forked, again, zygote, folder = owner.stdout.readline().split()
        handle = os.pidfd_open(int(zygote))
        owner.kill()
        _wait_for_end(handle)
    assert (first, forked, again) == ("2", "42", "2")
    assert not Path(folder).exists()


def _wait_for_end(handle: int) -> None:
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    assert ended.poll(60_000)
    os.close(handle)


STRAY = """
import os, time
from geartrain.sandbox import confinement, strays, zygote
confinement.adopt_orphans()
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()  # out of the group, and soon an orphan
        os.write(write, b"x")
        time.sleep(1000)
    time.sleep(1000)
os.read(read, 1)
ended = zygote.end(child)
assert zygote.ENDED.unpack(ended)[2], ended
strays.kill_children(os.getpid())
os.waitid(os.P_ALL, 0, os.WEXITED)
assert not zygote.strays()
"""


def test_what_a_run_would_leave_behind_is_found_and_killed() -> None:
    """A run cannot start a process; if it ever could, none would outlive it."""
    subprocess.run([sys.executable, "-c", STRAY], check=True, timeout=60)
