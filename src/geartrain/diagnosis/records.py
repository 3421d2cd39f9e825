"""What a run has recorded, as the rules of diagnosis read it; whatever is not there is empty, never an exception."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from geartrain.methods import METHODS, settings_of

Record = Mapping[str, Any]
Outcome = Literal["running", "complete", "failed", "interrupted", "killed", "unknown"]
WINDOW = 3
"""Iterations that "at the start" and "now" are means of, where there are twice as many; else half of what there is."""


@dataclass(frozen=True)
class Records:
    """Of one run."""

    history: Sequence[Record]
    """Iterations of the policy, in order."""
    parameters: Record
    """Of the stage `policy`, as its manifest holds them."""
    outcome: Outcome = "complete"
    reason: str = ""
    """Why it failed or was ended."""
    metrics: Mapping[str, Record] = field(default_factory=dict)
    """By stage, from the manifests."""
    credit: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    """"before" and "after": episodes of `val` with their credit."""
    tables: Record = field(default_factory=dict)
    """Of the evaluation."""
    absent: tuple[str, ...] = ()
    """Stages and files that the run does not have (yet)."""

    def points(self, name: str) -> list[tuple[int, float]]:
        """Return (iteration, value) of the records that hold a finite number under a name."""
        found = []
        for place, record in enumerate(self.history):
            value = record.get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                found.append((int(record.get("iteration", place)), float(value)))
        return found

    def start(self, name: str) -> float | None:
        """Return the mean of the first values under a name; None without two values."""
        return _mean([value for _, value in self.points(name)], first=True)

    def now(self, name: str) -> float | None:
        """Return the mean of the last values under a name; None without two values."""
        return _mean([value for _, value in self.points(name)], first=False)

    def validations(self) -> list[tuple[int, float]]:
        """Return (iterations of training, success on `val`), greedy and sampled alike, the start included."""
        found = []
        for place, record in enumerate(self.history):
            done = int(record.get("iteration", place)) + 1
            for prefix, trained in (("start_", 0), ("", done)):
                pair = [record.get(f"{prefix}val_{how}") for how in ("greedy", "sampled")]
                numbers = [value for value in pair if isinstance(value, int | float)]
                if len(numbers) == len(pair):
                    found.append((trained, fmean(numbers)))
        return found

    @property
    def recipe(self) -> str:
        """The algorithm, "" where it is not known."""
        return str(self.policy("recipe", ""))

    @property
    def weighs(self) -> bool:
        """Whether the recipe has weights of its own."""
        return self.recipe in METHODS and METHODS[self.recipe].kind != "baseline"

    def policy(self, key: str, default: Any = None) -> Any:
        """Return a value of the section `policy`."""
        section = self.parameters.get("policy")
        return section.get(key, default) if isinstance(section, Mapping) else default

    def method(self, key: str) -> Any:
        """Return a setting of the recipe: what was given, or its default; None where it has no such setting."""
        given = self.policy("settings", {}) or {}
        try:
            return settings_of(self.recipe, given.get(self.recipe, {})).get(key)
        except (KeyError, ValueError):  # of another version
            return None

    def metric(self, stage: str, name: str) -> float | None:
        """Return a number of a stage's manifest."""
        value = self.metrics.get(stage, {}).get(name)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    @property
    def iterations(self) -> int:
        """How many were planned."""
        return int(self.policy("iterations", len(self.history)) or len(self.history))


def _mean(values: Sequence[float], *, first: bool) -> float | None:
    if len(values) < 2:
        return None
    width = min(WINDOW, len(values) // 2)
    return fmean(values[:width] if first else values[-width:])
