"""No way out: each attempt is contained, nothing around it changes, and the next honest run is answered rightly."""

import math
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from geartrain.sandbox.confinement import NOBODY
from geartrain.sandbox.outcome import Call, Failed, Value
from geartrain.sandbox.supervisor import Sandbox
from tests.unit.sandbox.attempts import ENDINGS, FORGED, LEAVINGS, PRELUDE, REFUSED
from tests.unit.sandbox.conftest import World

HONEST = """
import json, math, os, random
def add(a, b):
    return a + b
def seen():
    return [math.pi, sum([1, 2]), len("abc"), json.dumps([1]), os.listdir("."), sorted(os.environ), random.random()]
"""


@pytest.fixture(autouse=True)
def _nothing_changes(sandbox: Sandbox, world: World) -> Generator[None]:
    before, zygote = world.state(), _zygote(sandbox)
    yield
    answered = sandbox.run(HONEST, [Call("add", [20, 22]), Call("seen")])
    assert answered.values == [42, [math.pi, 3, 3, "[1]", [], ["HOME", "TMPDIR"], 0.8444218515250481]]
    assert _zygote(sandbox) == zygote, "it had to be started anew"
    assert world.state() == before


def _zygote(sandbox: Sandbox) -> int:
    assert sandbox._zygote is not None
    return sandbox._zygote.process


def _code(body: str) -> str:
    return f"{PRELUDE}\ndef attempt(given):\n {body}\n"


def test_there_are_more_than_forty() -> None:
    assert len(REFUSED) + len(ENDINGS) + len(FORGED) + len(LEAVINGS) > 100


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str, sandbox: Sandbox, world: World, scratch_of_others: list[str]) -> None:
    given = {**world.given(), "scratches": scratch_of_others}
    outcome = sandbox.run(_code(f"return {REFUSED[name]}"), [Call("attempt", [given])])
    assert outcome.answers == (Value([]),)


@pytest.fixture(scope="session")
def scratch_of_others() -> Generator[list[str]]:
    """The folder of another sandbox, with a file that anybody could read."""
    with Sandbox() as other, other.program("open('note', 'w').write('mine')") as program:
        assert program.call(Call("no")) is not None
        assert other._zygote is not None
        yield [str(other._zygote.folder)]


@pytest.mark.parametrize("name", ENDINGS)
def test_ends_the_run(name: str, sandbox: Sandbox, world: World) -> None:
    ending, started = ENDINGS[name], time.monotonic()
    code, limits = f"{_code(ending.body)}\n{ending.loaded}", ending.allowed()
    outcome = sandbox.run(code, [Call("attempt", [world.given()]), Call("attempt", [{}])], limits)
    assert outcome.failed is not None
    assert outcome.failed.reason in ending.reasons, outcome.failed
    assert isinstance(outcome.answers[0], Failed)
    assert len(outcome.output) <= limits.output_bytes
    assert time.monotonic() - started < limits.seconds + 20


@pytest.mark.parametrize("name", ["exit", "exit_of_the_process", "infinite_loop", "close_the_channel"])
def test_ends_the_run_while_it_is_loaded(name: str, sandbox: Sandbox) -> None:
    body = ENDINGS[name].body.replace("return", "x =")
    outcome = sandbox.run(f"{PRELUDE}\nif True:\n {body}", [Call("attempt")] * 3, ENDINGS[name].allowed())
    assert [type(answer) for answer in outcome.answers] == [Failed] * 3
    assert outcome.failed is not None
    assert outcome.failed.reason in ENDINGS[name].reasons


@pytest.mark.parametrize("name", FORGED)
def test_does_not_pass_for_the_answer(name: str, sandbox: Sandbox) -> None:
    (answer,) = sandbox.run(_code(FORGED[name]), [Call("attempt", [{}])]).answers
    assert isinstance(answer, Value)
    assert answer.data != 42
    assert type(answer.data) in (int, str, list, bool)
    if name != "a_truth_for_a_number":
        assert answer.data in (41, "42", [42])


@pytest.mark.parametrize("name", LEAVINGS)
def test_leaves_nothing_for_the_next_run(name: str, sandbox: Sandbox) -> None:
    assert sandbox.run(_code(LEAVINGS[name]), [Call("attempt", [{}])]).answers == (Value(None),)
    # the fixture looks from the next run


def test_code_sees_one_input_at_a_time(sandbox: Sandbox) -> None:
    """All of its memory that Python can show holds no input but the present one, and no expected value."""
    code = """
import gc, sys
def attempt(word):
    frame, seen = sys._getframe(), []
    while frame is not None:
        seen.append(repr(frame.f_locals))
        frame = frame.f_back
    seen += [repr(thing) for thing in gc.get_objects() if isinstance(thing, (list, dict, tuple)) and len(thing) < 9]
    text = " ".join(seen)
    return [name for name in map("-".join, (["first", "input"], ["second", "input"])) if name in text]
"""
    outcome = sandbox.run(code, [Call("attempt", ["first-input"]), Call("attempt", ["second-input"])])
    assert outcome.values[0] == ["first-input"]


def test_code_is_nobody(sandbox: Sandbox) -> None:
    """Even where the trainer is root; so the kernel itself refuses what Landlock has no say in."""
    code = _code("return [os.getuid(), os.geteuid(), os.getgid(), os.getegid()]")
    expected = [NOBODY] * 4 if os.geteuid() == 0 else [os.getuid(), os.geteuid(), os.getgid(), os.getegid()]
    assert sandbox.run(code, [Call("attempt", [{}])]).values == [expected]
    assert sandbox._zygote is not None
    status = Path(f"/proc/{sandbox._zygote.process}/status").read_text()
    found = dict(
        line.split(":\t", 1) for line in status.splitlines() if line.startswith(("Cap", "NoNewPrivs", "Groups"))
    )
    assert found["NoNewPrivs"] == "1"
    assert {int(found[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert os.geteuid() != 0 or found["Groups"].strip() == ""


def test_nothing_of_a_run_lives_on(sandbox: Sandbox) -> None:
    outcome = sandbox.run(_code("return os.getpid()"), [Call("attempt", [{}])])
    (process,) = outcome.values
    assert not Path(f"/proc/{process}").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_failures_are_never_true(sandbox: Sandbox) -> None:
    """`all(results)` over codes that mean failure once rewarded failing tests."""
    answers: Any = sandbox.run("def f(): return 1 / 0", [Call("f")]).answers
    with pytest.raises(TypeError, match="neither true nor false"):
        all(answers)
