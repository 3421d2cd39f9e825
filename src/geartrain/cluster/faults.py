"""An API server's refusals, as errors of ours: what happened, what to do, and whether to ask again."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from geartrain.cluster.interface import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerFaultError,
    ThrottledError,
    TroubleError,
)
from geartrain.errors import GeartrainError

LAUNCHER, REAPER = "geartrain-pipeline", "geartrain-reaper"
"""Service accounts, and the Roles of the same names."""
_DENIED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?:.*? namespace "(?P<namespace>[^"]*)")?'
)
_LONGEST_WAIT = 300.0
"""Seconds; a server that asks for more is asked again after this, so that a wrong header cannot stall a run."""


@dataclass(frozen=True)
class Answer:
    """An answer that is no success."""

    verb: str
    """In the words of RBAC: create, get, list, delete."""
    request: str
    status: int
    body: bytes
    headers: Mapping[str, str]
    """Names in lower case."""


def missing(what: str) -> NotFoundError:
    """Return the error for something that is not there."""
    return NotFoundError(f"{what} is not there")


def translate(answer: Answer) -> GeartrainError:
    """Return the error that an answer means; never a success. Source: ours."""
    reason, message = _status(answer)
    text = f"{answer.request}: {message}"
    wait = _retry_after(answer.headers)
    match answer.status:
        case 403:
            return ForbiddenError(_forbidden(message, text))
        case 404:
            return NotFoundError(text)
        case 409 if answer.verb == "create" and reason == "Conflict":
            # the quota was updated by somebody else at that moment; a name that is taken says AlreadyExists
            return TroubleError(text, retry_after=wait)
        case 409:
            return ConflictError(text)
        case 401:
            return TroubleError(f"{text}; the token is not accepted: it may just be rotated", retry_after=wait)
        case 410:
            return GoneError(text, retry_after=wait)
        case 408 | 429:
            return ThrottledError(text, retry_after=wait)
        case status if status >= 500:
            return ServerFaultError(text, retry_after=wait)
    return InvalidError(text)


def _status(answer: Answer) -> tuple[str, str]:
    """Return reason and message of the `Status` object that a Kubernetes API answers with."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        shown = answer.body[:200].decode("utf-8", errors="replace").strip()
        return "", f"HTTP {answer.status}" + (f": {shown}" if shown else "")
    return str(body.get("reason") or ""), f"HTTP {answer.status}: {body.get('message') or body.get('reason') or ''}"


def _forbidden(message: str, text: str) -> str:
    denied = _DENIED.search(message)
    if denied is None:  # a webhook, a quota or pod security, not a missing permission
        return f"{text}. A policy of the cluster refuses it; permissions are not what is missing"
    resource = ".".join(part for part in (denied["resource"], denied["group"]) if part)
    place = f" in namespace {denied['namespace']}" if denied["namespace"] else ""
    role = LAUNCHER
    if denied["resource"] == "trainjobs" and denied["verb"] in ("list", "delete"):
        role = f"{LAUNCHER} (the reaper's: {REAPER})"
    return (
        f"{denied['user']} may not {denied['verb']} {resource}{place}. "
        f"The Role {role} grants it: bind it, or run as the service account of that name"
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header; its other form, a date, is not one that Kubernetes sends."""
    text = headers.get("retry-after", "").strip()
    return min(float(text), _LONGEST_WAIT) if text.isascii() and text.isdecimal() else None
