"""One line an event: JSON for collectors, text for people; whoever says it."""

import json
import os
import subprocess
import sys

import pytest

from geartrain import logs

SECRET = "q7Zt81mXw0LpE4vR"
SAYING = """
import logging, sys, threading, warnings
from geartrain import logs, progress
logs.set_up()
logs.bind(stage="policy")
"""


def run(body, *, check=True, **variables):
    """Run a program that logs; return what it wrote to stderr, and to stdout."""
    environment = {name: value for name, value in os.environ.items() if name not in (logs.VARIABLE, logs.POD, "RANK")}
    environment.pop("GEARTRAIN_RUN_ID", None)
    done = subprocess.run(
        [sys.executable, "-c", SAYING + body],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=check,
        timeout=60,
    )
    return done.stderr, done.stdout


def events(text):
    return [json.loads(line) for line in text.splitlines()]


JSON = {logs.VARIABLE: "json"}


def test_what_is_said_is_a_line_with_what_is_bound():
    said, _ = run('logs.say("hello\\nworld", done=3)', **JSON, GEARTRAIN_RUN_ID="r-1", RANK="1")
    (event,) = events(said)
    assert event.pop("time").endswith("+00:00")
    assert event == {
        "level": "info",
        "message": "hello\nworld",
        "logger": "geartrain",
        "run": "r-1",
        "rank": "1",
        "stage": "policy",
        "done": 3,
    }


def test_as_text_it_is_the_message_alone():
    assert run('logs.say("hello", done=3); logs.say("it broke", level=logs.ERROR)')[0] == "hello\nerror: it broke\n"


@pytest.mark.parametrize(
    ("variables", "json_is_said"),
    [({}, False), ({logs.POD: "10.0.0.1"}, True), ({logs.POD: "10.0.0.1", logs.VARIABLE: "text"}, False), (JSON, True)],
)
def test_pods_say_json_and_people_have_the_last_word(variables, json_is_said):
    said, _ = run('logs.say("hello")', **variables)
    assert said.startswith("{") is json_is_said


def test_progress_notes_libraries_and_warnings_go_the_same_way():
    body = """
with progress.bar("policy", total=2) as advance:
    advance(2, status="success 0.41")
progress.note("alarm: turns")
logging.getLogger("some.library").warning("odd: %s", 3)
library = logging.getLogger("writes.itself")
library.addHandler(logging.StreamHandler())
library.propagate = False
logs.adopt("writes.itself")
library.error("own handler")
warnings.warn("old", FutureWarning)
print("the answer")
"""
    said, answer = run(body, **JSON)
    found = {event["logger"]: event for event in events(said) if event["logger"] != "geartrain"}
    own = [event for event in events(said) if event["logger"] == "geartrain"]
    assert answer == "the answer\n"
    assert [event["message"] for event in own][1:] == ["alarm: turns"]
    assert (own[0]["label"], own[0]["done"], own[0]["total"]) == ("policy", 2, 2)
    assert found["some.library"]["message"] == "odd: 3"
    assert found["writes.itself"]["level"] == "error"
    assert "FutureWarning: old" in found["py.warnings"]["message"]
    assert all(event["stage"] == "policy" for event in events(said))


@pytest.mark.parametrize("where", ["main", "thread"])
def test_an_exception_that_nobody_caught_is_one_line_too(where):
    body = f"""
def fail():
    raise ValueError("no good: password={SECRET}")
fail() if {where == "main"} else threading.Thread(target=fail).start()
"""
    said, _ = run(body, check=False, **JSON)
    (event,) = events(said)
    assert (event["level"], event["exception"]["type"]) == ("critical", "ValueError")
    assert "in fail" in event["exception"]["stack"]
    assert SECRET not in said


def test_as_text_an_exception_keeps_its_traceback_but_no_secret():
    said, _ = run(f'raise ValueError("Bearer {SECRET}{SECRET}")', check=False)
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("ValueError: Bearer ***\n")


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_in_no_line_of_either_form(form):
    body = """
import os
logs.say(f"key {os.environ['A_TOKEN']}", where={"url": f"https://u:{os.environ['A_TOKEN']}@h"})
logging.getLogger("x").error("%s", os.environ["A_TOKEN"])
"""
    said, _ = run(body, A_TOKEN=SECRET, **{logs.VARIABLE: form})
    assert said
    assert SECRET not in said


def test_what_is_no_json_becomes_none_that_is_none():
    said, _ = run('logs.say("x", loss=float("nan"), thing=object(), parts=(1, "a"))', **JSON)
    (event,) = events(said)
    assert (event["loss"], event["parts"]) == ("nan", [1, "a"])


def test_what_a_child_writes_is_passed_on_line_by_line():
    """As torchrun and its ranks under `geartrain node`: some lines are events already."""
    body = """
import subprocess
child = '''
import sys
print("W1201 torchrun says", file=sys.stderr)
print('{"level": "info", "message": "mine", "rank": "0"}', file=sys.stderr)
print("  torn \\\\u2028 bytes", file=sys.stderr)
'''
with subprocess.Popen([sys.executable, "-c", child], stderr=subprocess.PIPE) as process, logs.relaying(process.stderr):
    process.wait()
"""
    found = events(run(body, **JSON)[0])
    assert [event["message"] for event in found] == ["W1201 torchrun says", "mine", "torn \u2028 bytes"]
    assert [event.get("logger") for event in found] == ["output", None, "output"]


def test_a_log_of_json_reads_as_on_a_terminal():
    body = """
logs.say("policy: 3/30")
logs.say("UserError, exit code 2: policy: x", level=logs.ERROR)
logging.getLogger("lib").warning("w")
print(logs.as_event("from torchrun"), file=sys.stderr)
raise KeyError("k")
"""
    text = logs.readable(run(body, check=False, **JSON)[0] + "not json\n{\n")
    lines = text.splitlines()
    assert lines[:4] == ["policy: 3/30", "error: UserError, exit code 2: policy: x", "warning: lib: w", "from torchrun"]
    assert lines[4] == "Traceback (most recent call last):"
    assert lines[-3:] == ["KeyError: 'k'", "not json", "{"]


def test_the_command_line_fails_in_one_line():
    command = [sys.executable, "-m", "geartrain", "config", "check", "nowhere.yaml"]
    done = subprocess.run(command, env={**os.environ, **JSON}, capture_output=True, text=True, check=False)
    (event,) = events(done.stderr)
    assert done.returncode == event["exit_code"] == 2
    assert (event["level"], "nowhere.yaml" in event["message"]) == ("error", True)
