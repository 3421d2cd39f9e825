"""Secrets do not reach what others read."""

import json
from base64 import b64encode
from urllib.parse import quote, quote_plus

import pytest

from geartrain.scrubbing import HIDDEN, scrub

LONG = "q7Zt81mXw0LpE4vR"


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GEARTRAIN_REFERENCE_KEY", "PGPASSWORD", "MY_PRIVATE_THING", "db_passwd"],
)
def test_values_of_variables_whose_names_say_so_are_hidden(name):
    assert scrub(f"could not log in with {LONG}, retried", {name: LONG}) == f"could not log in with {HIDDEN}, retried"


@pytest.mark.parametrize(
    "write", [quote, quote_plus, json.dumps, repr, lambda value: b64encode(value.encode()).decode(), str]
)
def test_a_value_is_hidden_however_it_is_written(write):
    """In an address, in JSON, in Python, in basic authentication."""
    value = 'p@ss w0rd/"x\\ü&+'
    assert scrub(f"before {write(value)} after", {"DB_PASSWORD": value}).strip("=") in {
        f"before {mark}{HIDDEN}{mark}{pad} after" for mark in ("", "'", '"') for pad in ("", "=", "==")
    }


def test_harmless_values_stay():
    environment = {
        "TOKENIZERS_PARALLELISM": "falsehood",
        "SHORT_TOKEN": "false",
        "GEARTRAIN_SIGNING_KEY": "/etc/geartrain/key.pem",
        "HOME": LONG,
    }
    text = f"false falsehood /etc/geartrain/key.pem {LONG}"
    assert scrub(text, environment) == text


def test_of_two_values_the_longer_is_hidden_whole():
    assert scrub(LONG + "tail", {"A_TOKEN": LONG, "B_TOKEN": LONG + "tail"}) == HIDDEN


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("GET https://user:hunter2@host/path", "hunter2"),
        ("cloning https://ghp_abc@github.com/x.git", "ghp_abc"),
        ("redis://:pa55word@redis:6379/0", "pa55word"),
        (f"Authorization: Bearer {LONG}", LONG),
        (f"headers {{'Authorization': 'Basic {LONG}='}}", LONG),
        (f"sent bearer {LONG}", LONG),
        (f"https://s3/bucket?X-Amz-Signature={LONG}&x=1", LONG),
        (f"https://host/x?token={LONG}", LONG),
        (f'{{"password": "{LONG}"}}', LONG),
        (f"aws_secret_access_key = {LONG}", LONG),
        (f"Set-Cookie: session={LONG}; Path=/", LONG),
        (f"{{'cookie': 'a=1; b={LONG}'}}", LONG),
        ("key AKIAIOSFODNN7EXAMPLE used", "AKIAIOSFODNN7EXAMPLE"),
        (f"hf_{LONG}{LONG} is not valid", LONG),
        (f"-----BEGIN EC PRIVATE KEY-----\n{LONG}\n{LONG}\n-----END EC PRIVATE KEY-----", LONG),
        (f"-----BEGIN PRIVATE KEY-----\n{LONG}", LONG),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.abc-def", "eyJzdWIi"),
    ],
)
def test_what_looks_like_a_credential_is_hidden(text, hidden):
    found = scrub(text, {})
    assert hidden not in found
    assert HIDDEN in found


@pytest.mark.parametrize(
    "text",
    [
        "policy: 15/30, 0:15 elapsed, 0:15 left, success 0.15",
        "s3://bucket/runs/policy/request.json: no such object",
        "http://127.0.0.1:9464/metrics",
        "generated 123456789 tokens: 4096 of them trained",
        "models/policy/manifest.json: sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "key policy-0123456789abcdef of stage policy",
        "mail to a.person@example.org",
    ],
)
def test_ordinary_lines_stay(text):
    assert scrub(text, {}) == text
