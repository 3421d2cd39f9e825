"""Hyper-parameters of the methods, in groups that several of them share: default, range, what low and high do."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite

Value = float | bool | str


@dataclass(frozen=True)
class Setting:
    """One hyper-parameter of a method."""

    default: Value
    what: str
    low: str = ""
    """What a low value does; of a switch, what False does."""
    high: str = ""
    minimum: float = 0.0
    maximum: float = float("inf")
    choices: tuple[str, ...] = ()

    def problem(self, value: object) -> str | None:
        """Return why `value` is impossible, or None."""
        if self.choices:
            near = get_close_matches(str(value), self.choices, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            return None if value in self.choices else f"is {value!r}, expected one of {', '.join(self.choices)}{hint}"
        if isinstance(self.default, bool):
            return None if isinstance(value, bool) else f"is {value!r}, expected true or false"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"is {value!r}, expected a number"
        if isinstance(self.default, int) and isfinite(value) and value != int(value):
            return f"is {value}, expected a whole number"
        inside = isfinite(value) and self.minimum <= value <= self.maximum
        most = f" to {self.maximum:g}" if isfinite(self.maximum) else " or more, and finite"
        return None if inside else f"is {value}, expected {self.minimum:g}{most}"


def but(settings: Mapping[str, Setting], **defaults: Value) -> dict[str, Setting]:
    """Return settings with other defaults."""
    changed = {name: Setting(**{**vars(settings[name]), "default": value}) for name, value in defaults.items()}
    return {**settings, **changed}


_STRENGTH = Setting(
    0.5,
    "gamma of W = 1 + gamma (2 s - 1), s the agreement of credit and outcome",
    "0 is plain GRPO",
    "1 lets a disagreeing token keep almost nothing",
    0.0,
    1.0,
)
_BOUND = Setting(2.0, "c: W lies in [1/c, c]", "near 1 is plain GRPO", "a few tokens carry the whole update", 1.0001)
_NORMALISE = Setting(
    True,
    "whether W has mean 1 over each trajectory",
    "False also rescales whole trajectories: a change of learning rate in disguise",
    "True moves credit only within a trajectory",
)
_PAST_TEACHER: Mapping[str, Setting] = {
    "teacher": Setting(
        "ema",
        "the past self that is explained and matched: a slow average, which blurs and never jumps, or a snapshot, "
        "which is a policy that has played, and jumps when it is renewed",
        choices=("ema", "snapshot"),
    ),
    "teacher_decay": Setting(
        0.9,
        "of the average: what it keeps of itself per iteration",
        "0 is the student itself, which explains nothing",
        "1 never moves, and drifts away from what the student does",
        0.0,
        1.0,
    ),
    "snapshot_share": Setting(
        0.1,
        "share of the run between two snapshots, of that teacher",
        "0 is the policy of one iteration before, hardly another",
        "explains and holds what the student has left",
        0.0,
        1.0,
    ),
}
GRAINS: Mapping[str, Setting] = {
    "strength": _STRENGTH,
    "bound": _BOUND,
    "normalise": _NORMALISE,
}
STEP_RETURN: Mapping[str, Setting] = {
    "step_discount": Setting(
        0.5,
        "per turn, of the step rewards that come later",
        "an error is the fault of its own turn alone",
        "the grain blurs into the outcome",
        0.0,
        1.0,
    ),
}
TOKEN_RETURN: Mapping[str, Setting] = {
    "token_discount": Setting(
        0.0,
        "per sampled token, of the token rewards that come later; what the agent is shown passes no time",
        "a fault is blamed on its own token alone",
        "on all that was said before it too",
        0.0,
        1.0,
    ),
}
MIXTURE: Mapping[str, Setting] = {
    **GRAINS,
    **TOKEN_RETURN,
    "objective": Setting(
        "explanation",
        "what the grain weights are trained on: explain the teacher's decisions, align with the outcome, or regress it",
        choices=("explanation", "alignment", "regression"),
    ),
    "grain_learning_rate": Setting(
        1e-3, "Adam's, of the grain network", "the mixture stays even", "it follows noise", 1e-9
    ),
    "grain_entropy": Setting(0.01, "entropy bonus of the mixture", "it may collapse early", "it stays even"),
    **_PAST_TEACHER,
    "distil": Setting(
        0.0,
        "weight of the pull to the teacher, modulated by its confidence and by |fused advantage|",
        "0 skips the teacher's pass over every token",
        "holds the policy at its past self",
    ),
    "distil_final": Setting(
        -1.0, "its value at the end of the run, reached linearly; -1 keeps it constant", minimum=-1
    ),
    "distil_direction": Setting(
        "reverse",
        "of the pull: KL(student || teacher), KL(teacher || student), or Jensen-Shannon",
        choices=("reverse", "forward", "jsd"),
    ),
    "confidence_power": Setting(
        1.0, "exponent of the teacher's confidence", "0 trusts every token alike", "only sure ones count"
    ),
    "advantage_power": Setting(1.0, "exponent of 2 sigmoid|A| - 1", "0 pulls everywhere", "only where credit is large"),
}
CRITIC: Mapping[str, Setting] = {
    "critic_steps": Setting(
        0,
        "steps by which the critic learns each batch's siblings after it has weighed them",
        "0 keeps the critic of the warm start's siblings, which the policy leaves behind",
        "fits one batch's luck",
    ),
    "critic_learning_rate": Setting(3e-4, "Adam's, of the critic", "stale", "follows noise", 1e-9),
    "critic_decay": Setting(
        0.9,
        "what the queried copy of the critic keeps of itself per iteration",
        "0 queries the critic itself, which has just seen its own batch",
        "1 never moves",
        0.0,
        1.0,
    ),
}
PAST_SELF: Mapping[str, Setting] = {
    "snapshot_share": Setting(
        0.1,
        "share of the run between two snapshots of the teacher",
        "the teacher is the student: W = 1",
        "log ratios grow until the tanh saturates",
        0.0,
        1.0,
    ),
    "temperature": Setting(0.5, "nats at which tanh bends", "every turn is extreme", "W stays near 1", 1e-6),
    "kappa": Setting(0.8, "largest change of W", "0 is plain GRPO", "W reaches its bounds", 0.0, 10.0),
    "scale": Setting(
        2.0,
        "how much weaker coarse states are, by 1 + scale",
        "granularity does not matter",
        "planning is hardly weighed",
    ),
    "dead_zone": Setting(0.02, "nats of shift that change nothing", "rounding is weighed", "small shifts are ignored"),
    "failures": Setting(
        "dampen",
        "a failure's turn that moved: weigh it down, or up (as the paper on GEAR does)",
        choices=("dampen", "amplify"),
    ),
    "granularity": Setting(
        "progress",
        "what tells coarse from fine: share of sub-goals left, rank of the turn's entropy, a network "
        "trained to predict the two, or nothing",
        choices=("progress", "entropy", "learned", "none"),
    ),
    "omega_low": Setting(0.2, "lower bound of W", "a turn may lose its credit", "W stays near 1", 1e-3, 1.0),
    "omega_high": Setting(5.0, "upper bound of W", "W stays near 1", "a few turns carry the update", 1.0),
    "warm_share": Setting(0.1, "share of the run with W = 1", "the first snapshots are noise", "starts late", 0.0, 1.0),
    "blend_share": Setting(0.1, "share of the run over which W is blended in", "a jump", "slow", 0.0, 1.0),
    "normalise": _NORMALISE,
}
_SEGMENTS: Mapping[str, Setting] = {
    "onset": Setting(0.1, "rescaled divergence at which a segment opens", "everything is a segment", "spikes only"),
    "growth": Setting(
        1.5,
        "a segment closes at this multiple of its opening's entropy",
        "single tokens",
        "to the end of the turn",
        1.0,
    ),
    "entropy_floor": Setting(
        0.1, "nats below which entropy closes nothing", "an opening of entropy 0 closes at once", "segments fill turns"
    ),
    "longest": Setting(64, "tokens of a segment", "cuts sentences", "whole turns share one credit", 1),
    "boundaries": Setting(
        "adaptive",
        "where credit is shared: adaptive segments, whole tool calls, or nowhere (a token each)",
        choices=("adaptive", "calls", "none"),
    ),
}
PRIVILEGED: Mapping[str, Setting] = {
    "alpha": Setting(
        0.2,
        "W lies in [1 - alpha/2, 1 + alpha/2] before it is normalised",
        "0 is plain GRPO",
        "the answer outvotes the outcome",
        0.0,
        1.9,
    ),
    "quantile": Setting(
        0.99,
        "of the divergence in a batch, which counts as 1",
        "many tokens saturate",
        "one outlier sets the scale",
        0.01,
        1.0,
    ),
    **_SEGMENTS,
    "normalise": _NORMALISE,
}
SIBLINGS: Mapping[str, Setting] = {
    "gamma": Setting(1.0, "raw W = 1 + gamma s, s the saliency", "0 is plain GRPO", "spikes carry the update"),
    "bound": _BOUND,
    "top": Setting(
        20, "teacher's likeliest tokens in the support of the divergence", "differences fall into the tail", "memory", 1
    ),
    "direction": Setting(
        "reverse",
        "of the divergence that is measured",
        choices=("reverse", "forward", "jsd"),
    ),
    **_SEGMENTS,
    "normalise": _NORMALISE,
}
