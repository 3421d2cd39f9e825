"""A client of any OpenAI-compatible server: one completion, with time-outs, tries again, and what it has cost.

The key comes from an environment variable or from a file that one names; never
from a setting, never into a log. Standard library alone.
"""

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geartrain.errors import UserError

LONGEST_ANSWER = 10**6
"""Bytes of an answer that are read."""
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same call may succeed."""
Messages = Sequence[Mapping[str, str]]


class CompletionError(Exception):
    """No usable answer. `kind` is stable and snake_case; `tries` is how often the server was asked."""

    def __init__(self, kind: str, detail: str, tries: int) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.tries = kind, detail, tries


@dataclass(frozen=True)
class Completion:
    """An answer, and its tokens as the server counted them (0 where it does not say)."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    tries: int = 1


@dataclass(frozen=True)
class Server:
    """Where to ask, and how patiently. Raises ValueError for an address that is not http(s) or holds a password."""

    url: str
    """Base address, such as http://127.0.0.1:8000/v1."""
    model: str
    key: str = ""
    timeout: float = 60.0
    """Seconds for one try."""
    tries: int = 1
    """Times that a call is made at most, while its failure is a passing one."""
    backoff: float = 0.5
    """Seconds before the second try; doubled before each further one."""
    pause: Callable[[float], object] = time.sleep

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")) or "@" in self.url:
            raise ValueError("the address must be http(s)://HOST[:PORT]/PATH, without user and password")

    def __repr__(self) -> str:
        return f"Server({self.url!r}, {self.model!r})"  # never the key

    def complete(self, messages: Messages, **options: Any) -> Completion:
        """Ask for one completion; `options` go into the request (temperature, max_tokens, seed).

        Raises:
            CompletionError: it failed `tries` times, or in a way that stays.
        """
        body = json.dumps({"model": self.model, "messages": list(messages), **options}).encode()
        for attempt in range(1, self.tries + 1):
            try:
                return self._once(body, attempt)
            except CompletionError as error:
                if attempt == self.tries or error.kind not in _PASSING_KINDS:
                    raise
            self.pause(self.backoff * 2 ** (attempt - 1))
        raise CompletionError("not_asked", "tries is 0", 0)

    def _once(self, body: bytes, attempt: int) -> Completion:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(  # noqa: S310 - http(s) alone, see __post_init__
            f"{self.url.rstrip('/')}/chat/completions", body, headers
        )
        try:
            with _OPENER.open(request, timeout=self.timeout) as response:
                answered = _read(response, time.monotonic() + self.timeout)
        except urllib.error.HTTPError as error:
            error.close()
            kind = "busy" if error.code in PASSING else "refused"
            raise CompletionError(kind, f"status {error.code}", attempt) from None
        except TimeoutError:
            raise CompletionError("timeout", f"{self.timeout:g} s", attempt) from None
        except (OSError, http.client.HTTPException) as error:  # a URLError is an OSError
            if isinstance(getattr(error, "reason", None), TimeoutError):
                raise CompletionError("timeout", f"{self.timeout:g} s", attempt) from None
            raise CompletionError("unreachable", type(error).__name__, attempt) from None
        return _parsed(answered, attempt)


class _NoDetour(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would take the key to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoDetour)
_PASSING_KINDS = frozenset({"busy", "timeout", "unreachable"})


def _read(response: Any, deadline: float) -> bytes:
    """Read an answer by `deadline`, which the time-out of a socket does not promise: it starts anew with each byte."""
    parts, size = [], 0
    while size < LONGEST_ANSWER and (part := response.read1(65536)):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(parts)


def _parsed(answered: bytes, attempt: int) -> Completion:
    try:
        told = json.loads(answered)
        text = told["choices"][0]["message"]["content"]
        usage = told.get("usage") or {}
        counts = [usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise CompletionError("no_completion", type(error).__name__, attempt) from None
    if not isinstance(text, str):
        raise CompletionError("no_completion", "content is no text", attempt)
    tokens_in, tokens_out = (n if isinstance(n, int) and n >= 0 else 0 for n in counts)
    return Completion(text, tokens_in, tokens_out, attempt)


def key_from(variable: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the key in `$VARIABLE`, or in the file that `$VARIABLE_FILE` names; "" where neither is set.

    Raises:
        UserError: the file cannot be read.
    """
    named = environment.get(f"{variable}_FILE")
    if not named:
        return environment.get(variable, "").strip()
    try:
        return Path(named).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"${variable}_FILE: {named} cannot be read ({type(error).__name__}). Mend the path.") from error
