"""A real policy trainer in a tiny world, and what can go wrong in it: each fault changes what training works with.

No gauge is set here: a fault touches rewards, gradients or time, and what becomes of it is the trainer's doing.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from geartrain.rewards.mix import Scored
from geartrain.stages.policy import TaskWorld
from geartrain.training.policy import PolicyTrainer
from geartrain.trajectory import Trajectory
from tests.fakes.guessing import Guessing, GuessingPlayers, make_guesser
from tests.fakes.parity import make_config, make_policy, make_trainer

MANY = 400
"""Iterations that no fault needs; the alert ends the run before."""
BEGINS = 3
"""Iteration in which a fault begins."""


class FaultyWorld(TaskWorld):
    """Plays and scores as ever, but for what `before` and `reward` do to it."""

    before: Callable[[int], None] = staticmethod(lambda iteration: None)
    """Called before an iteration is played."""
    reward: Callable[[Trajectory, float | None], float | None] | None = None
    """Takes the place of a trajectory's total reward."""

    def play(self, policy: Any, iteration: int, refill: int = 0) -> list[Trajectory]:
        self.before(iteration)
        return super().play(policy, iteration, refill)

    def score(self, trajectories: Any) -> Scored:
        scored = super().score(trajectories)
        if self.reward is None:
            return scored
        pairs = zip(scored.trajectories, scored.rewards, strict=True)
        return replace(scored, rewards=[self.reward(trajectory, value) for trajectory, value in pairs])


def make_faulty(work: Path, recipe: str = "grpo", *, guesses: bool = False, **policy: Any) -> PolicyTrainer:
    """Return a trainer of the tiny model in the world of parity, or of guessing."""
    config = make_config(**{"recipe": recipe, "validate_every": 1, "siblings": 8, **policy})
    model, _ = make_guesser() if guesses else (make_policy(), 0.0)
    place = {"players_type": GuessingPlayers, "environment": Guessing()} if guesses else {}
    trainer: PolicyTrainer = make_trainer(work, config, recipe, policy=model, world_type=FaultyWorld, **place)
    return trainer


def let(trainer: PolicyTrainer, **changes: Any) -> None:
    """Change what a trainer's world does."""
    for name, value in changes.items():
        object.__setattr__(trainer.world, name, value)


def healthy(work: Path) -> PolicyTrainer:
    """A run in which nothing is wrong: it learns, slowly."""
    return make_faulty(work, iterations=MANY, learning_rate=1e-3)


def not_finite(work: Path) -> PolicyTrainer:
    """From some iteration on every gradient is NaN."""
    trainer = make_faulty(work, iterations=MANY, minibatches=1)

    def spoil(iteration: int) -> None:
        if iteration == BEGINS:
            for weight in trainer.policy.model.parameters():
                if weight.requires_grad:
                    weight.register_hook(lambda gradient: gradient * math.nan)

    let(trainer, before=spoil)
    return trainer


def stalled(work: Path) -> PolicyTrainer:
    """In some iteration the players do not come back until `hang`, an event of the trainer's world, is set."""
    trainer = make_faulty(work, iterations=BEGINS + 2)
    hang = threading.Event()

    def wait(iteration: int) -> None:
        if iteration == BEGINS:
            assert hang.wait(240)

    let(trainer, before=wait, hang=hang)
    return trainer


def one_word(work: Path) -> PolicyTrainer:
    """The reward likes one token alone, and nothing holds the policy: it ends by saying nothing else."""
    trainer = make_faulty(work, iterations=MANY, learning_rate=3e-2, kl_coefficient=0.0, validate_every=MANY)
    liked = trainer.policy.tokenizer.encode("b")[0]

    def reward(trajectory: Trajectory, value: float | None) -> float:
        said = [token for turn in trajectory.turns for token in turn.action_ids]
        # siblings that all say it must differ: iterations without a signal train nothing, and are over before a scrape
        return sum(token == liked for token in said) / max(1, len(said)) + 1e-3 * trajectory.sibling

    let(trainer, reward=reward)
    return trainer


def hacked(work: Path) -> PolicyTrainer:
    """The reward pays for failures: it rises by what the verifier calls wrong."""
    trainer = make_faulty(work, iterations=MANY, learning_rate=3e-2, kl_coefficient=0.0)
    let(trainer, reward=lambda trajectory, value: float(not trajectory.success))
    return trainer


def guessing(work: Path) -> PolicyTrainer:
    """A teacher that has read the answer teaches to guess it without looking."""
    return make_faulty(
        work,
        "direct_distillation",
        guesses=True,
        iterations=MANY,
        learning_rate=1e-2,
        kl_coefficient=0.0,
        validate_every=MANY,
    )
