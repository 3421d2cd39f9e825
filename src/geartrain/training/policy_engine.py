"""What the policy loop asks of whoever holds its optimiser: one process that holds all, or ranks that hold parts."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torch import Tensor

from geartrain.errors import UserError
from geartrain.models.backbone import TokenScores, token_logprobs
from geartrain.policy_section import PolicySection
from geartrain.ranks import ALONE, Ranks
from geartrain.training.engine import Engine, Piece, StepReport
from geartrain.training.sharded import ShardedEngine

T = TypeVar("T")
WARMUP_ITERATIONS = 3
"""Adam's first steps move every weight by the full learning rate, however noisy its gradient."""
EPSILON = 1e-5
"""Adam's. At 1e-8 the output rows of tokens that hardly occur move as far as all others, on gradients of nothing but
noise, and invalid calls rise until the policy falls apart."""


class PolicyEngine(Protocol):
    """A model that is trained, and its optimiser."""

    lockstep: bool
    """Whether all ranks must run as many micro-batches, see `sharded`."""

    def score(self, ids_BT: Tensor, attention_BT: Tensor, **options: Any) -> TokenScores:
        """Score tokens with the weights that are trained; see `models.scoring.token_logprobs`."""
        ...

    def accumulate(self, pieces: Iterable[Piece[T]], *, workers: int = 1) -> Iterator[T]:
        """Add the gradients of micro-batches, in order; yield what else each piece returns."""
        ...

    def step(self) -> StepReport:
        """Clip the accumulated gradient, update the weights, clear the gradient. Raises UserError if it diverges."""
        ...

    def publish(self) -> None:
        """Let whoever plays have the new weights."""
        ...

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        """Write what is too large for a checkpoint below `folder`; return what the checkpoint needs."""
        ...

    def prune(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Remove what older checkpoints wrote, once the one of `state` is safe."""
        ...

    def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Continue from what `save` returned. Raises UserError on what another kind of engine returned."""
        ...


class WholeEngine(Engine):
    """A policy that every rank holds whole."""

    lockstep = False

    def __init__(self, model: Any, **options: Any) -> None:
        """Take the parameters of `model` that require a gradient; see `Engine` for the rest."""
        super().__init__(model.parameters(), **options)
        self._model = model

    def score(self, ids_BT: Tensor, attention_BT: Tensor, **options: Any) -> TokenScores:
        """Score tokens with the weights that are trained; see `models.scoring.token_logprobs`."""
        return token_logprobs(self._model, ids_BT, attention_BT, **options)

    def publish(self) -> None:
        """Let whoever plays have the new weights; here they are the same."""

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        """Return what a checkpoint needs; nothing has to be written beside it."""
        return self.state_dict()

    def prune(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Nothing was written."""

    def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Continue from what `save` returned. Raises UserError on the state of a sharded engine."""
        if "shards" in state:
            raise UserError(
                f"{folder}: the checkpoint is DeepSpeed's, of {state['world']} rank(s) under ZeRO {state['zero']}. Set "
                "policy.sharding as it was, or start the stage anew without this folder."
            )
        self.load_state_dict(state)


def build_engine(model: Any, section: PolicySection, ranks: Ranks = ALONE) -> PolicyEngine:
    """Return the engine that a section asks for. Raises UserError where it needs deepspeed and there is none."""
    options: dict[str, Any] = {
        "learning_rate": section.learning_rate,
        "total_steps": section.iterations * section.minibatches,
        "gradient_clip": section.gradient_clip,
        "warmup_steps": WARMUP_ITERATIONS * section.minibatches,
        "schedule": section.schedule,
        "betas": (0.9, 0.99),
        "epsilon": EPSILON,
    }
    if section.sharding is None:
        return WholeEngine(model, ranks=ranks, **options)
    return ShardedEngine(model, section.sharding, ranks, **options)
