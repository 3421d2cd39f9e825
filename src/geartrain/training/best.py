"""The weights that did best on `val` so far, and how they did."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Validation:
    """How a policy does on `val`; shares in [0, 1]."""

    greedy: float
    sampled: float
    progress: float

    @property
    def rank(self) -> tuple[float, float]:
        """What checkpoints are compared by."""
        return 0.5 * (self.greedy + self.sampled), self.progress


@dataclass
class Best:
    """What `val` chose; never `test`."""

    validation: Validation | None = None
    iteration: int = -1
    """Iterations of training behind the weights; 0 is the warm start itself."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """On the CPU, so that a second policy never fills a GPU."""

    def consider(self, validation: Validation, iteration: int, model: Any) -> None:
        """Keep a copy of the weights of `model` if it did better than all before; the earlier one wins a tie."""
        if self.validation is None or validation.rank > self.validation.rank:
            self.validation, self.iteration = validation, iteration
            self.weights = {name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` continues from."""
        assert self.validation is not None, "nothing was validated yet"
        found = self.validation
        numbers = [found.greedy, found.sampled, found.progress]
        return {"validation": numbers, "iteration": self.iteration, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`'s value."""
        self.validation, self.iteration = Validation(*state["validation"]), state["iteration"]
        self.weights = dict(state["weights"])
