"""From an agent's message to a tool's answer: one parser, one validator, one dispatcher.

Every path that reads agent output (sampling, evaluation, demonstrations, public
data) goes through `parse_call`, so the same bytes mean the same thing everywhere.
Nothing here raises on what an agent wrote: a fault is a `ToolResult` whose
`error` is one of the kinds below, and the episode goes on.

    no_call several_calls malformed_json malformed_call too_long     the message
    unknown_tool missing_argument unexpected_argument wrong_type invalid_value   the call
    internal_error                                                   a bug of ours; logged, never expected
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from geartrain.environments.environment import ToolSpec
from geartrain.trajectory import ToolCall, ToolResult

MESSAGE_LIMIT = 200_000
"""Longest message in characters, thoughts included."""
CALL_LIMIT = 8_000
"""Longest call in characters."""
NESTING_LIMIT = 16
"""Deepest nesting of a call; the JSON parser's own limit depends on the caller's stack depth."""
NUMBER_LIMIT = 1e15
"""Largest magnitude of a number; up to here a float is exact to the cent."""

_LOG = logging.getLogger(__name__)
_WRAPPED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)|```(?:json)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class ToolError(Exception):
    """A fault of the agent's making; `kind` is stable snake_case, `message` is shown to the agent."""

    def __init__(self, kind: str, message: str, position: int | None = None):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.position = position


@dataclass(frozen=True)
class Tool:
    """A tool: what the agent is told, and a function of its validated arguments that returns the answer's text."""

    spec: ToolSpec
    run: Callable[..., str]


def render_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the canonical text of a call: one JSON object, default separators, characters unescaped."""
    return json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)


def clip(text: str, limit: int = 60) -> str:
    """Return `text` on one line, valid Unicode, at most `limit` characters."""
    flat = " ".join(_SURROGATE.sub("?", text[: 4 * limit]).replace("\x00", "?").split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def error_result(error: ToolError) -> ToolResult:
    """Return the result that shows `error` to the agent."""
    where = "" if error.position is None else f" at character {error.position}"
    return ToolResult(f"error {error.kind}: {error.message}{where}", error.kind, error.position)


def parse_call(message: str) -> ToolCall:
    """Read the one call of an agent's message.

    A message is one JSON object `{"name": ..., "arguments": {...}}`, bare, or
    inside one `<tool_call>` element or one JSON code fence; text around those
    two is taken for thoughts. Raises ToolError with the offset of the fault.
    """
    body, offset = _locate(message)
    if len(body) > CALL_LIMIT:
        raise ToolError("too_long", f"a call may have {CALL_LIMIT} characters, this one has {len(body)}")
    _check_text(body, offset)
    start = len(body) - len(body.lstrip())
    try:
        value, end = _DECODER.raw_decode(body, start)
    except json.JSONDecodeError as error:
        raise ToolError("malformed_json", error.msg.split(":")[0], offset + error.pos) from None
    except (ValueError, RecursionError) as error:
        # Not JSONDecodeError: our own checks (duplicate key, NaN) and integers past Python's digit limit.
        raise ToolError("malformed_json", clip(str(error), 80)) from None
    rest = body[end:].lstrip()
    if rest:
        if rest[0] in "{[":
            raise ToolError("several_calls", "one call per message", offset + len(body) - len(rest))
        raise ToolError("malformed_json", "text after the call", offset + len(body) - len(rest))
    return _shape(value)


def _locate(message: str) -> tuple[str, int]:
    if len(message) > MESSAGE_LIMIT:
        raise ToolError("too_long", f"a message may have {MESSAGE_LIMIT} characters, this one has {len(message)}")
    if message.lstrip()[:1] in ("{", "["):
        return message, 0
    blocks = list(_WRAPPED.finditer(message))
    if len(blocks) > 1:
        raise ToolError("several_calls", "one call per message", blocks[1].start())
    if blocks:
        group = 1 if blocks[0].group(1) is not None else 2
        return blocks[0].group(group), blocks[0].start(group)
    if "{" not in message:
        raise ToolError("no_call", "answer with one JSON call")
    raise ToolError("malformed_json", "text before the call", 0)


def _check_text(body: str, offset: int) -> None:
    lone = _SURROGATE.search(body)
    if lone:
        raise ToolError("malformed_json", "lone surrogate", offset + lone.start())
    if body.count("[") + body.count("{") <= NESTING_LIMIT:
        return
    depth, quoted, escaped = 0, False, False
    for position, character in enumerate(body):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted, escaped = True, False
        elif character in "[{":
            depth += 1
            if depth > NESTING_LIMIT:
                raise ToolError("malformed_json", "nested too deeply", offset + position)
        elif character in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key '{clip(key, 30)}'")
        if _SURROGATE.search(key) or (isinstance(value, str) and _SURROGATE.search(value)):
            raise ValueError("lone surrogate")
        result[key] = value
    return result


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_reject_constant)


def _shape(value: object) -> ToolCall:
    if isinstance(value, list) and len(value) > 1:
        raise ToolError("several_calls", "one call per message")
    if not isinstance(value, dict):
        raise ToolError("malformed_call", "a call is a JSON object with name and arguments")
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str):
        raise ToolError("malformed_call", "name must be a string")
    if not isinstance(arguments, dict):
        raise ToolError("malformed_call", "arguments must be an object")
    extra = sorted(set(value) - {"name", "arguments"})
    if extra:
        raise ToolError("malformed_call", f"unexpected key '{clip(extra[0], 30)}'")
    return ToolCall(name, arguments)


def check_arguments(spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
    """Check arguments against a tool's JSON schema (types, required, enum); raises ToolError."""
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    for name in spec.parameters.get("required", ()):
        if name not in arguments:
            raise ToolError("missing_argument", f"{spec.name} needs '{name}'")
    for name, value in arguments.items():
        if name not in properties:
            raise ToolError("unexpected_argument", f"{spec.name} takes no '{clip(name, 30)}'")
        _check_value(name, value, properties[name])


def _check_value(name: str, value: object, schema: Mapping[str, Any]) -> None:
    declared = schema.get("type", "string")
    kinds = [declared] if isinstance(declared, str) else list(declared)
    python_types = tuple(t for kind in kinds for t in _JSON_TYPES[kind])
    if not isinstance(value, python_types) or (isinstance(value, bool) and bool not in python_types):
        raise ToolError("wrong_type", f"'{name}' must be a {' or '.join(kinds)}")
    # Also true of NaN, of infinities, and of integers that no float can hold.
    if isinstance(value, int | float) and not abs(value) <= NUMBER_LIMIT:
        raise ToolError("wrong_type", f"'{name}' must be a number of at most {NUMBER_LIMIT:.0e}")
    choices = schema.get("enum")
    if choices is not None and value not in choices:
        raise ToolError("invalid_value", f"'{name}' is one of {', '.join(map(str, choices))}")


def dispatch(message: str, tools: Mapping[str, Tool]) -> tuple[ToolCall | None, ToolResult]:
    """Parse, validate and run one message; the call is None when the message holds no well-formed one."""
    call = None
    try:
        call = parse_call(message)
        tool = tools.get(call.name)
        if tool is None:
            raise ToolError("unknown_tool", f"no tool '{clip(call.name, 30)}'")
        check_arguments(tool.spec, call.arguments)
        return call, ToolResult(tool.run(**call.arguments))
    except ToolError as error:
        return call, error_result(error)
    except Exception:  # a bug here must not kill the other rollouts of the batch
        _LOG.exception("tool call failed: %s", clip(message, 200))
        return call, ToolResult("error internal_error: the tool failed", "internal_error")
