"""Take secrets out of text that is written where others read it: logs, reasons, records of what happens.

What is known to be secret: values of environment variables whose names say so, and what looks like a credential in any
text. It is the last line of defence; the first is not to put secrets into messages.
"""

import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from urllib.parse import quote, quote_plus

HIDDEN = "***"
SHORTEST = 8
"""Characters of a value below which hiding it would garble ordinary text, such as "false" or a number."""
_NAMES = re.compile(r"SECRET|TOKEN|PASSW|_KEY|APIKEY|CREDENTIAL|PRIVATE", re.IGNORECASE)
_HARMLESS = re.compile(r"TOKENIZERS_|_KEY_?(FILE|PATH)$", re.IGNORECASE)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    # https://user:password@host, https://token@host
    (re.compile(r"(?<=://)[^\s/@'\"]+@"), f"{HIDDEN}@"),
    (re.compile(r"(?i)(\bauthorization['\"]?\s*[:=]\s*['\"]?)(?:\w+ +)?[^\s'\",]+"), rf"\g<1>{HIDDEN}"),
    (re.compile(r"(?i)(\bcookie['\"]?\s*[:=]\s*['\"]?)[^\r\n'\"]+"), rf"\g<1>{HIDDEN}"),
    (re.compile(r"(?i)(\bbearer +)[\w.~+/=-]{16,}"), rf"\g<1>{HIDDEN}"),
    (
        re.compile(r"(?i)([?&](?:[\w-]*(?:token|secret|password|signature|credential)|key|sig)=)[^&\s'\"]+"),
        rf"\g<1>{HIDDEN}",
    ),
    (
        re.compile(
            r"(?i)(\b\w*(?:password|passwd|secret|api_?key|access_?key|token)['\"]?\s*[:=]\s*['\"]?)[^\s'\",}&]{8,}"
        ),
        rf"\g<1>{HIDDEN}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), HIDDEN),
    (re.compile(r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abp]-)[\w-]{16,}"), HIDDEN),
    # JSON web tokens
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
)


def scrub(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the text with every secret replaced by `HIDDEN`."""
    for value in _secrets(environment):
        text = text.replace(value, HIDDEN)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def _secrets(environment: Mapping[str, str]) -> list[str]:
    """Return the values that must not be shown, the longest first: one may hold another."""
    found = {
        value.strip()
        for name, value in environment.items()
        if _NAMES.search(name) and not _HARMLESS.search(name) and not os.path.isabs(value)
    }
    forms = {form for value in found if len(value) >= SHORTEST for form in _forms(value)}
    return sorted(forms, key=len, reverse=True)


def _forms(value: str) -> set[str]:
    """Return a value as addresses, JSON, Python and basic authentication write it."""
    encoded = value.encode("utf-8", "surrogateescape")
    plain = {value, quote(encoded, safe=""), quote(encoded), quote_plus(encoded), repr(value)[1:-1]}
    written = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    return {*plain, *written, b64encode(encoded).decode().rstrip("="), urlsafe_b64encode(encoded).decode().rstrip("=")}
