"""The table of algorithms as text for a terminal; loads no torch."""

import textwrap
from collections.abc import Iterator

from geartrain.method_settings import Setting
from geartrain.methods import METHODS

WIDTH = 100
KINDS = {"baseline": "baselines", "credit": "credit methods", "control": "controls"}


def list_methods() -> str:
    """Return every method by kind: name, what it does, source."""
    lines: list[str] = []
    longest = max(map(len, METHODS))
    for kind, title in KINDS.items():
        lines += ["", title]
        for name, method in METHODS.items():
            if method.kind == kind:
                text = f"{method.what} ({method.source})"
                indent = " " * (longest + 4)
                lines += textwrap.wrap(text, WIDTH, initial_indent=f"  {name:<{longest}}  ", subsequent_indent=indent)
    return "\n".join(lines[1:])


def describe_method(name: str) -> str:
    """Return one method with its settings: default, range, what a low and a high value do. Raises KeyError."""
    method = METHODS[name]
    lines = [*textwrap.wrap(f"{name} ({method.kind}): {method.what}", WIDTH), f"source: {method.source}"]
    if not method.settings:
        return "\n".join([*lines, "it has no settings of its own"])
    lines += ["", f"--set policy.recipe={name} --set policy.settings.{name}.SETTING=VALUE"]
    for key, setting in method.settings.items():
        lines += ["", f"  {key} = {_shown(setting.default)}   {_range(setting)}".rstrip()]
        for text in _told(setting):
            lines += textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="      ")
    return "\n".join(lines)


def _told(setting: Setting) -> Iterator[str]:
    yield setting.what
    if setting.low:
        yield f"low: {setting.low}"
    if setting.high:
        yield f"high: {setting.high}"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _range(setting: Setting) -> str:
    if setting.choices:
        return f"({', '.join(setting.choices)})"
    if isinstance(setting.default, bool):
        return "(true, false)"
    top = "up" if setting.maximum == float("inf") else f"{setting.maximum:g}"
    return f"({setting.minimum:g} {'and' if top == 'up' else 'to'} {top})"
