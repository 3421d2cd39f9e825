"""Which numbers of a training are shown together, under which name: for the report and for the run page."""

from collections.abc import Sequence
from dataclasses import dataclass

AFTER, FIRST, SECOND, THIRD = "after", "series-1", "series-2", "series-3"
"""Colours, by the names that the style sheet gives them."""


@dataclass(frozen=True)
class Series:
    """One line: a key of the records in history.jsonl."""

    key: str
    label: str = ""
    colour: str = AFTER
    after: bool = False
    """Measured after the iteration's update, else before it."""


@dataclass(frozen=True)
class Panel:
    """A small figure."""

    title: str
    meaning: str
    series: Sequence[Series]


SUCCESS = (
    Series("success", "training", SECOND),
    Series("val_sampled", "val, sampled", THIRD, after=True),
    Series("val_greedy", "val, greedy", AFTER, after=True),
)
PANELS = (
    Panel("Reward", "Mean of the training episodes.", (Series("reward"),)),
    Panel("KL to the warm start", "Per token, in nats.", (Series("kl"),)),
    Panel("Entropy", "Per token, in nats; near 0 it no longer explores.", (Series("entropy"),)),
    Panel("Clipped tokens", "Share whose ratio left the trust region.", (Series("clip_fraction"),)),
    Panel("Gradient norm", "Before clipping.", (Series("gradient_norm"),)),
    Panel("Invalid calls", "Share of turns answered by an error.", (Series("invalid_calls"),)),
    Panel(
        "Grain weights",
        "How much each grain counts in the mixture.",
        (
            Series("grain_global", "global", FIRST),
            Series("grain_step", "step", SECOND),
            Series("grain_token", "token", THIRD),
        ),
    ),
    Panel(
        "Spread of the credit weights",
        "Standard deviation over tokens; 0 is plain GRPO.",
        (Series("weight_spread"),),
    ),
    Panel("Steps per episode", "Mean of the training episodes.", (Series("turns"),)),
    Panel(
        "Success by phase",
        "A whole plan that fits; of whole plans, right or wrong, those carried out.",
        (Series("plan_success", "planning", FIRST), Series("do_success", "doing", SECOND)),
    ),
)
