"""How much the opinion of each tool weighs: by itself, in a phase of the run, for a family of tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Phase:
    """Weights from a share of the run on."""

    start: float
    """Share of the run that is over when it begins, in [0, 1]."""
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Weights:
    """Weights by tool; what is said of a family goes before what is said of a phase, that before the rest."""

    everywhere: Mapping[str, float] = field(default_factory=dict)
    families: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    phases: Sequence[Phase] = ()
    """In the order of their start."""

    def of(self, tool: str, *, family: str, share: float) -> float:
        """Return the weight of a tool for a family when `share` of the run is over; 0 where nothing is said."""
        weight = self.everywhere.get(tool, 0.0)
        for phase in self.phases:
            if phase.start <= share:
                weight = phase.weights.get(tool, weight)
        return self.families.get(family, {}).get(tool, weight)
