"""What this process says while it works, on stderr: text for people, or one JSON object a line for a log collector.

    GEARTRAIN_LOG   `json` or `text`; unset: JSON in a pod whose stderr is no terminal, else text

Each event is one line of JSON with `time`, `level`, `message`, `logger`, what is bound (run, stage, rank) and what the
event adds; an exception has its type, message and stack. Warnings, what libraries log, and an exception that nobody
caught go the same way. Secrets are taken out of both forms (`scrubbing`). Answers of commands are on stdout, as ever.
"""

import json
import logging
import math
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Any

from geartrain.scrubbing import scrub

VARIABLE = "GEARTRAIN_LOG"
POD = "KUBERNETES_SERVICE_HOST"
LOGGER = "geartrain"
WARNING, ERROR = logging.WARNING, logging.ERROR
_FIELDS = "geartrain_fields"
_LAST_WORDS_SECONDS = 5.0
_BREAKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"}
"""What JSON leaves as it is and some readers take for the end of a line."""
_bound: dict[str, Any] = {}
_json = False


def set_up(environment: Mapping[str, str] = os.environ) -> None:
    """Let everything that this process says go one way, in the form that the environment asks for; may be repeated."""
    global _json
    asked = environment.get(VARIABLE, "").lower()
    _json = asked == "json" or (asked != "text" and POD in environment and not sys.stderr.isatty())
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(handler)
    root.addHandler(_Handler(_Json() if _json else _Text()))
    logging.getLogger(LOGGER).setLevel(logging.INFO if _json else logging.WARNING)
    logging.captureWarnings(_json)
    sys.excepthook = _uncaught
    threading.excepthook = lambda told: _uncaught(told.exc_type, told.exc_value, told.exc_traceback)
    known = {"run": environment.get("GEARTRAIN_RUN_ID"), "rank": environment.get("RANK")}
    bind(**{name: value for name, value in known.items() if value})


def bind(**fields: Any) -> None:
    """Add fields to every line from now on; None takes one away."""
    _bound.update(fields)
    for name in [name for name, value in _bound.items() if value is None]:
        del _bound[name]


def say(message: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Say an event. As text it is the message alone, after `error: ` if it is one; `fields` are for machines."""
    if _json:
        logging.getLogger(LOGGER).log(level, "%s", message, extra={_FIELDS: fields})
    else:
        print(scrub(f"error: {message}" if level >= logging.ERROR else message), file=sys.stderr, flush=True)


def says_json() -> bool:
    """Return whether lines are JSON."""
    return _json


def adopt(*names: str) -> None:
    """Let loggers of libraries, which write by themselves when they are imported, go our way."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def as_event(line: str) -> str:
    """Return a line that another program has written as one of ours, if lines are JSON and it is not one already."""
    if not _json or _parsed(line) is not None:
        return line
    record = logging.LogRecord("output", logging.INFO, "", 0, line, None, None)
    return _Json().format(record)


@contextmanager
def relaying(stream: IO[bytes] | None) -> Iterator[None]:
    """Pass on what a child writes to its stderr while the block runs, each line as an event; None: nothing is piped."""
    if stream is None:
        yield
        return
    thread = threading.Thread(target=_relay, args=(stream,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(_LAST_WORDS_SECONDS)  # a grandchild that lives on may hold the pipe


def _relay(stream: IO[bytes]) -> None:
    for line in stream:
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            print(as_event(text), file=sys.stderr, flush=True)


def readable(text: str) -> str:
    """Return a log for people: what is JSON of ours becomes the text that a terminal would have shown."""
    return "\n".join(_plain(line) for line in text.split("\n"))


class _Handler(logging.Handler):
    """Writes to whatever stderr is when there is something to say."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # stderr is closed, or its reader is gone
            print(self.format(record), file=sys.stderr, flush=True)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage().strip(),
            "logger": record.name,
            **_bound,
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            told["exception"] = _exception(*record.exc_info)
        text = json.dumps({name: _scrubbed(value) for name, value in told.items()}, ensure_ascii=False)
        return text.translate(_BREAKS)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.levelname.lower()}: {record.name}: {record.getMessage().strip()}"
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + _exception(*record.exc_info)["stack"].rstrip()
        return scrub(text)


def _exception(kind: Any, error: BaseException | None, stack: TracebackType | None) -> dict[str, str]:
    text = "".join(traceback.format_exception(kind, error, stack))
    return {"type": kind.__name__, "message": str(error), "stack": text}


def _uncaught(kind: type[BaseException], error: BaseException | None, stack: TracebackType | None) -> None:
    if error is None or issubclass(kind, SystemExit):
        return
    if _json:
        about = (kind, error, stack)
        logging.getLogger(LOGGER).critical("%s: %s", kind.__name__, error, exc_info=about)
    else:
        print(scrub(_exception(kind, error, stack)["stack"]), end="", file=sys.stderr, flush=True)


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {str(name): _scrubbed(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | int) else scrub(str(value))


def _parsed(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) and isinstance(told.get("message"), str) and "level" in told else None


def _plain(line: str) -> str:
    told = _parsed(line)
    if told is None:
        return line
    stack = told.get("exception", {}).get("stack", "") if isinstance(told.get("exception"), dict) else ""
    if stack:
        return str(stack).rstrip()
    message = str(told["message"])
    foreign = told.get("logger") not in (LOGGER, "output")
    prefix = f"{told['level']}: {told.get('logger')}: " if foreign else "error: " if told["level"] == "error" else ""
    return message if prefix and message.startswith(prefix) else prefix + message
