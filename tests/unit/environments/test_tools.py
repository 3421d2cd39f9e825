"""The one parser: what a message means, and that nothing an agent writes raises or runs."""

import json
from pathlib import Path

import pytest

from geartrain.environments.environment import ToolSpec
from geartrain.environments.tools import (
    CALL_LIMIT,
    MESSAGE_LIMIT,
    NESTING_LIMIT,
    Tool,
    ToolError,
    clip,
    dispatch,
    parse_call,
    render_call,
)
from geartrain.trajectory import ToolCall

CALL = '{"name": "add", "arguments": {"a": 1, "b": "x"}}'
PARSED = ToolCall("add", {"a": 1, "b": "x"})
SPEC = ToolSpec(
    "add",
    "",
    {
        "type": "object",
        "properties": {
            "a": {"type": ["integer", "number"]},
            "b": {"type": "string", "enum": ["x", "y"]},
            "c": {"type": "boolean"},
        },
        "required": ["a", "b"],
    },
)
TOOLS = {"add": Tool(SPEC, lambda a, b, c=False: f"{a}{b}{c}")}


@pytest.mark.parametrize(
    "message",
    [
        CALL,
        f"  \n{CALL}\n ",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"I think first.\n<tool_call>{CALL}</tool_call>\nDone.",
        f"<tool_call>{CALL}",  # the closing tag is often the stop string
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```",
        json.dumps(json.loads(CALL), indent=2),
    ],
)
def test_accepts(message: str) -> None:
    assert parse_call(message) == PARSED


def test_canonical_form_keeps_characters() -> None:
    text = render_call("q", {"sql": "city = 'São Paulo'"})
    assert text == """{"name": "q", "arguments": {"sql": "city = 'São Paulo'"}}"""
    assert parse_call(text) == ToolCall("q", {"sql": "city = 'São Paulo'"})


def test_tags_inside_a_string_are_text() -> None:
    call = render_call("add", {"b": "<tool_call>{}</tool_call> ```json\n{}\n```"})
    assert parse_call(call).arguments["b"].startswith("<tool_call>")


@pytest.mark.parametrize(
    ("message", "kind", "position"),
    [
        ("", "no_call", None),
        ("The answer is 4.", "no_call", None),
        (f"Sure: {CALL}", "malformed_json", 0),
        (f"{CALL} done", "malformed_json", 49),
        (CALL[:-1], "malformed_json", 47),
        ('{"name": add}', "malformed_json", 9),
        (f"<tool_call>{CALL[:-1]}</tool_call>", "malformed_json", 11 + 47),
        ("{'name': 'add', 'arguments': {}}", "malformed_json", 1),
        ('{"name": "add", "arguments": {"a": NaN}}', "malformed_json", None),
        ('{"name": "add", "arguments": {"a": -Infinity}}', "malformed_json", None),
        ('{"name": "add", "name": "sub", "arguments": {}}', "malformed_json", None),
        ('{"name": "add", "arguments": {"a": 1, "a": 2}}', "malformed_json", None),
        ('{"name": "add", "arguments": {"a": ' + "9" * 5000 + "}}", "malformed_json", None),
        ('{"name": "\\ud800", "arguments": {}}', "malformed_json", None),
        ('{"name": "add", "arguments": {"b": "\ud800"}}', "malformed_json", 36),
        ("[" * (NESTING_LIMIT + 1), "malformed_json", NESTING_LIMIT),
        ('{"a":' * 2000, "too_long", None),
        ('{"a":' * 1000, "malformed_json", 5 * NESTING_LIMIT),
        (CALL + CALL, "several_calls", 48),
        (f"[{CALL}, {CALL}]", "several_calls", None),
        (f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>", "several_calls", 71),
        (f"[{CALL}]", "malformed_call", None),
        ("{}", "malformed_call", None),
        ('{"name": null, "arguments": {}}', "malformed_call", None),
        ('{"name": "add"}', "malformed_call", None),
        ('{"name": "add", "arguments": null}', "malformed_call", None),
        ('{"name": "add", "arguments": [1]}', "malformed_call", None),
        ('{"name": "add", "arguments": "{}"}', "malformed_call", None),
        ('{"name": "add", "arguments": {}, "id": 1}', "malformed_call", None),
        ("{" + " " * CALL_LIMIT, "too_long", None),
        ("x" * (MESSAGE_LIMIT + 1), "too_long", None),
    ],
)
def test_rejects_with_kind_and_position(message: str, kind: str, position: int | None) -> None:
    with pytest.raises(ToolError) as caught:
        parse_call(message)
    assert (caught.value.kind, caught.value.position) == (kind, position)


def test_brackets_in_strings_are_not_nesting() -> None:
    assert parse_call(render_call("add", {"b": '[{"\\' * 100})).arguments["b"].count("{") == 100


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"a": 1, "b": "x"}, None),
        ({"a": 1.5, "b": "y", "c": True}, None),
        ({"b": "x"}, "missing_argument"),
        ({"a": 1, "b": "x", "z": 1}, "unexpected_argument"),
        ({"a": "1", "b": "x"}, "wrong_type"),
        ({"a": True, "b": "x"}, "wrong_type"),
        ({"a": None, "b": "x"}, "wrong_type"),
        ({"a": [1], "b": "x"}, "wrong_type"),
        ({"a": 1, "b": {"x": 1}}, "wrong_type"),
        ({"a": 1, "b": "x", "c": 1}, "wrong_type"),
        ({"a": 10**400, "b": "x"}, "wrong_type"),
        ({"a": 1, "b": "z"}, "invalid_value"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, object], kind: str | None) -> None:
    call, result = dispatch(render_call("add", arguments), TOOLS)
    assert result.error == kind
    assert call == ToolCall("add", arguments)


def test_a_float_that_overflows_is_a_wrong_type() -> None:
    _, result = dispatch('{"name": "add", "arguments": {"a": 1e999, "b": "x"}}', TOOLS)
    assert result.error == "wrong_type"


def test_an_unknown_tool_is_a_call_and_an_error() -> None:
    call, result = dispatch(render_call("rm", {}), TOOLS)
    assert call == ToolCall("rm", {})
    assert (result.error, result.content) == ("unknown_tool", "error unknown_tool: no tool 'rm'")


def test_a_bug_of_ours_is_a_result_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise ZeroDivisionError

    _, result = dispatch(render_call("broken", {}), {"broken": Tool(ToolSpec("broken", "", {}), broken)})
    assert result.error == "internal_error"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("template", ["{}", '{{"name": {}, "arguments": {{}}}}', '{{"name": "add", "arguments": {}}}'])
def test_python_in_a_message_does_not_run(template: str, tmp_path: Path) -> None:
    """Fault E1 of the catalogue: a parser that evaluates what it cannot parse."""
    victim = tmp_path / "created"
    _, result = dispatch(template.format(f"__import__('pathlib').Path({str(victim)!r}).touch()"), TOOLS)
    assert result.error is not None
    assert not victim.exists()


def test_clip_gives_one_valid_line() -> None:
    text = clip("a\n\tb\x00\ud800" + "c" * 100, 20)
    assert len(text) == 20
    assert text.encode().startswith(b"a b??c")
