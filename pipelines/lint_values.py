"""Rules about values that stand in a compiled pipeline: images that move, secrets that everybody can read."""

import re
from collections.abc import Iterator
from typing import Any

from pipelines.compiled import Compiled
from pipelines.findings import Found, Rule

_BY_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_TAG = re.compile(r":([\w][\w.-]*)$")
SECRET_NAME = re.compile(
    r"(?i)(passw|secret|credential|private_?key|(api|access)_?key|(^|_)token(?![a-z]))(?!.*_?name$)"
)
NOT_A_VALUE = re.compile(r"(?i)^(true|false|/[\w./-]*)$")
"""A switch or a path is no secret, whatever it is called."""
SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    r"|\bhf_[A-Za-z0-9]{30,}\b"
    r"|\bey[JK][A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\."
    r"|://[^/\s:@]+:[^/\s:@]+@"
)


def moving_image(compiled: Compiled) -> Found:
    """An image without a tag, or `latest`."""
    for task, image in _images(compiled):
        tag = _TAG.search(image)
        if not _BY_DIGEST.search(image) and (tag is None or tag[1] == "latest"):
            yield task, f"image {image!r} is whatever was pushed last"


def image_without_digest(compiled: Compiled) -> Found:
    """An image by tag."""
    for task, image in _images(compiled):
        if not _BY_DIGEST.search(image):
            yield task, f"image {image!r} has no digest: a cached step would not see new code under the same tag"


def secret_in_clear(compiled: Compiled) -> Found:
    """A secret as a default, a constant or a variable."""
    for name, about in compiled.parameters.items():
        yield from (("pipeline", f"parameter {where}") for where in _secrets(name, about.get("defaultValue")))
    for task in compiled.tasks:
        for name, value in task.constants.items():
            yield from ((task.name, f"parameter {where}") for where in _secrets(name, value))
        for variable in task.container.get("env", []):
            yield from ((task.name, f"variable {w}") for w in _secrets(variable["name"], variable.get("value")))


def _images(compiled: Compiled) -> Iterator[tuple[str, str]]:
    return ((task.name, str(task.container["image"])) for task in compiled.tasks if task.container.get("image"))


def _secrets(name: str, value: Any) -> Iterator[str]:
    """Yield the place of each value that is, or is called, a secret."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (f"{name}.{place}" for place in _secrets(str(key), inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets(name, inner)
    elif isinstance(value, str) and value and "{{$" not in value:
        named = SECRET_NAME.search(name) and not NOT_A_VALUE.match(value)
        if named or SECRET_VALUE.search(value):
            yield f"{name} holds what looks like a secret"


_DIGEST = "Compile with GEARTRAIN_IMAGE=registry/name@sha256:…, as the push printed it."
RULES = (
    Rule(moving_image, "backend cacheutils", _DIGEST),
    Rule(image_without_digest, "backend cacheutils", _DIGEST, release=True),
    Rule(
        secret_in_clear,
        "Kubeflow stores parameters in clear",
        "Name a Secret in components/sites.py; pods get it by use_secret_as_env.",
    ),
)
