"""What scripted experts and task sets of every environment share."""

import random
from collections.abc import Callable, Generator, Mapping
from typing import Any

from geartrain.config import SPLITS
from geartrain.environments.tools import render_call
from geartrain.errors import UserError
from geartrain.trajectory import ToolResult

Call = tuple[str, dict[str, Any]]
Script = Generator[Call, str, None]
"""Yields calls, is sent what the tools answer."""


class ScriptedExpert:
    """A policy that follows a script; now and then it spoils a call, and makes it again after seeing the error."""

    def __init__(
        self, script: Script, rng: random.Random, *, broken_call: float, spoil: Callable[[Call, random.Random], str]
    ):
        self._script, self._rng = script, rng
        self._broken_call, self._spoil = broken_call, spoil
        self._pending: Call | None = None

    def act(self, last: ToolResult | None) -> str:
        """Return the next message; after the script's end, `finish` again."""
        if self._pending is not None:
            call, self._pending = self._pending, None
            return render_call(*call)
        try:
            call = next(self._script) if last is None else self._script.send(last.content)
        except StopIteration:
            return render_call("finish", {})
        if self._rng.random() < self._broken_call:
            self._pending = call
            return self._spoil(call, self._rng)
        return render_call(*call)


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Raise UserError on split sizes that no task set can have."""
    unknown = sorted(set(sizes) - set(SPLITS))
    if unknown:
        raise UserError(f"no split '{unknown[0]}'; the splits are {', '.join(SPLITS)}")
    if any(size < 0 for size in sizes.values()):
        raise UserError(f"sizes must not be negative: {dict(sizes)}")
    if sizes.get("paraphrase", 0) > sizes.get("test", 0):
        raise UserError("paraphrase rewords test tasks, so it may not have more tasks than test")
