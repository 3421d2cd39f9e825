"""Where the code runs: it is loaded, its functions are called as the supervisor asks, values are sent back.

Nothing here is trusted after the code was loaded, for it may change whatever it finds. It cannot gain by that: each
message carries a token that only came with the call, and holds a value that the supervisor reads as data.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

from geartrain.sandbox import frames, values

NAME = "answer"
_FILE = f"<{NAME}>"
_MOST_FRAMES, _MOST_WORDS = 5, 1000


class Channel:
    """The descriptor that leads to the supervisor; read and written without `socket`, whose calls are refused."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def recv(self, count: int) -> bytes:
        """Return what is there, `count` bytes at most."""
        return os.read(self._descriptor, count)

    def send(self, text: str) -> None:
        """Send one message."""
        left = memoryview(frames.framed(text.encode()))
        while left:
            left = left[os.write(self._descriptor, left) :]


def serve(channel: Channel) -> None:
    """Load the code of the first message, then call what each other names; until the supervisor ends this process."""
    request = json.loads(frames.receive(channel).decode())
    code = request["code"]
    module = ModuleType(NAME)
    sys.modules[NAME] = module  # dataclasses, typing and pickle look there
    reply = _attempt(partial(_load, code, module), code)
    while True:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        channel.send(f'{{"token": "{request["token"]}", {reply[1:]}')
        request = json.loads(frames.receive(channel).decode())
        reply = _attempt(partial(_call, module, request), code)


def _load(code: str, module: ModuleType) -> None:
    exec(compile(code, _FILE, "exec", dont_inherit=True), module.__dict__)  # noqa: S102


def _call(module: ModuleType, request: dict[str, Any]) -> Any:
    function = getattr(module, request["function"])
    return function(*values.untagged(request["arguments"]), **values.untagged(request["keywords"]))


def _attempt(work: Callable[[], Any], code: str) -> str:
    """Return what a piece of work came to, as the supervisor reads it."""
    try:
        return json.dumps({"value": values.tagged(work())})
    except values.UnfitError as error:
        reply = {"reason": "value", "detail": str(error)}
    except MemoryError:
        reply = {"reason": "memory", "detail": "it asked for more memory than it may have"}
    except BaseException as error:
        reply = {"reason": "error", "detail": _explained(error, code)[-_MOST_WORDS:]}
    return json.dumps(reply)  # now that nothing holds what the work had


def _explained(error: BaseException, code: str) -> str:
    """Return the lines of the code that led to an error, and the error."""
    lines = code.splitlines()
    seen = [frame for frame in traceback.extract_tb(error.__traceback__, -50) if frame.filename == _FILE]
    where = [
        f"line {frame.lineno}, in {frame.name}: {lines[frame.lineno - 1].strip()}"
        for frame in seen[-_MOST_FRAMES:]
        if frame.lineno is not None and frame.lineno <= len(lines)
    ]
    return "\n".join([*where, *(part.strip() for part in traceback.format_exception_only(error))])
