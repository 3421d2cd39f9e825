"""The table of algorithms, as people read and configure it: source, settings, what a low or a high value does.

Pure data, so that `params.yaml` is checked and `geartrain methods` answers
without loading torch. The functions of each row are in
`geartrain.algorithms.recipe.RECIPES`; a test holds the two equal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

Value = float | bool | str
NEUTRAL = ("strength", "kappa", "alpha", "gamma")
"""Settings that switch weighing off at 0."""


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
        inside = self.minimum <= value <= self.maximum  # False for NaN
        return None if inside else f"is {value}, expected {self.minimum:g} to {self.maximum:g}"


@dataclass(frozen=True)
class Method:
    """One row: a baseline, a credit method, or a control."""

    kind: str
    """"baseline", "credit" or "control"."""
    what: str
    source: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    rewarded: bool = True
    """Whether rewards reach the loss."""

    @property
    def neutral(self) -> dict[str, Value]:
        """Settings at which every W is 1; empty where there is no W."""
        return {name: 0.0 for name in NEUTRAL if name in self.settings}


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
_GRAINS: Mapping[str, Setting] = {
    "strength": _STRENGTH,
    "bound": _BOUND,
    "normalise": _NORMALISE,
}
_STEP_RETURN: Mapping[str, Setting] = {
    "step_discount": Setting(
        0.5,
        "per turn, of the step rewards that come later",
        "an error is the fault of its own turn alone",
        "the grain blurs into the outcome",
        0.0,
        1.0,
    ),
}
_TOKEN_RETURN: Mapping[str, Setting] = {
    "token_discount": Setting(
        0.0,
        "per sampled token, of the token rewards that come later; what the agent is shown passes no time",
        "a fault is blamed on its own token alone",
        "on all that was said before it too",
        0.0,
        1.0,
    ),
}
_MIXTURE: Mapping[str, Setting] = {
    **_GRAINS,
    **_TOKEN_RETURN,
    "objective": Setting(
        "explanation",
        "what the grain weights are trained on: explain the teacher's decisions, align with the outcome, or regress it",
        choices=("explanation", "alignment", "regression"),
    ),
    "grain_learning_rate": Setting(1e-3, "Adam's, of the grain network", "the mixture stays even", "it follows noise"),
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
_CRITIC: Mapping[str, Setting] = {
    "critic_steps": Setting(
        0,
        "steps by which the critic learns each batch's siblings after it has weighed them",
        "0 keeps the critic of the warm start's siblings, which the policy leaves behind",
        "fits one batch's luck",
    ),
    "critic_learning_rate": Setting(3e-4, "Adam's, of the critic", "stale", "follows noise"),
    "critic_decay": Setting(
        0.9,
        "what the queried copy of the critic keeps of itself per iteration",
        "0 queries the critic itself, which has just seen its own batch",
        "1 never moves",
        0.0,
        1.0,
    ),
}
_PAST_SELF: Mapping[str, Setting] = {
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
_PRIVILEGED: Mapping[str, Setting] = {
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
_SIBLINGS: Mapping[str, Setting] = {
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


def _but(settings: Mapping[str, Setting], **defaults: Value) -> dict[str, Setting]:
    """Return settings with other defaults."""
    changed = {name: Setting(**{**vars(settings[name]), "default": value}) for name, value in defaults.items()}
    return {**settings, **changed}


METHODS: Mapping[str, Method] = {
    "grpo": Method(
        "baseline",
        "reward minus the group's mean, over its deviation; every token of the batch counts alike",
        "arXiv:2402.03300, its mean over tokens arXiv:2503.14476",
    ),
    "grpo_rows": Method(
        "baseline",
        "GRPO as printed: the mean over each trajectory's tokens, then over trajectories; favours short successes",
        "arXiv:2402.03300",
    ),
    "dr_grpo": Method("baseline", "GRPO without the deviation, constant denominator", "arXiv:2503.20783"),
    "rloo": Method("baseline", "reward minus the mean of the other siblings", "arXiv:2402.14740"),
    "dapo": Method(
        "baseline",
        "GRPO with refilled batches and a soft penalty on length; set clip_high above clip_low, and no KL",
        "arXiv:2503.14476",
        {
            "refills": Setting(2, "further rounds of episodes when groups are flat", "small batches", "time", 0, 20),
            "overlong_share": Setting(
                0.2,
                "last share of the context over which reward falls by up to 1",
                "length is free",
                "long answers are lost",
                0.0,
                1.0,
            ),
        },
    ),
    "ppo": Method(
        "baseline",
        "generalised advantage per turn, from a value head on the frozen warm start's hidden states",
        "arXiv:1707.06347, arXiv:1506.02438",
        {
            "discount": Setting(1.0, "per turn", "far rewards vanish", "variance", 0.0, 1.0),
            "trace": Setting(
                0.95,
                "lambda: 0 trusts the value head, 1 the outcome",
                "bias: an early value head misleads",
                "variance",
                0.0,
                1.0,
            ),
            "value_learning_rate": Setting(1e-3, "Adam's, of the value head", "stale values", "follows noise"),
        },
    ),
    "gigpo": Method(
        "baseline",
        "GRPO plus the advantage of a turn among all siblings' turns in the same state",
        "arXiv:2505.10978",
        {
            "discount": Setting(0.95, "per turn, of the return that turns are compared by", "late", "flat", 0.0, 1.0),
            "step_weight": Setting(1.0, "omega: weight of the turn's advantage", "0 is GRPO", "turns outvote outcomes"),
        },
    ),
    "gear_a": Method(
        "credit",
        "three grains (outcome, step rewards, token rewards) mixed by a network that learns to explain a teacher",
        "an article on GEAR, repaired",
        {**_MIXTURE, **_STEP_RETURN},
    ),
    "gear_a_sgcd": Method(
        "credit", "gear_a with the sibling critic as the step grain", "ours: a composition", {**_MIXTURE, **_CRITIC}
    ),
    "gear_b": Method(
        "credit",
        "weighs a turn by how far the policy has moved from a snapshot of itself, less in coarse states",
        "another article on GEAR, repaired",
        _PAST_SELF,
    ),
    "gear_p": Method(
        "credit",
        "weighs tokens by how much the policy disagrees with itself once told the answer, over adaptive segments",
        "arXiv:2605.11853",
        _PRIVILEGED,
    ),
    "sgcd_s": Method(
        "credit",
        "weighs turns by a critic of sibling contrasts",
        "an article on SGCD, repaired",
        {**_GRAINS, **_CRITIC},
    ),
    "sgcd_p": Method(
        "credit",
        "weighs tokens by where a teacher that has read the siblings would act differently",
        "arXiv:2606.12634",
        _SIBLINGS,
    ),
    "fixed_weights": Method(
        "control",
        "gear_a's grains in an even mixture that never learns",
        "ours",
        {**_GRAINS, **_STEP_RETURN, **_TOKEN_RETURN},
    ),
    "single_grain": Method("control", "the step grain alone", "ours", {**_GRAINS, **_STEP_RETURN}),
    "gear_p_calls": Method(
        "control",
        "gear_p with tool calls for segments",
        "arXiv:2605.11853, an ablation",
        _but(_PRIVILEGED, boundaries="calls"),
    ),
    "gear_p_raw": Method(
        "control", "gear_p as printed: W is not normalised", "arXiv:2605.11853", _but(_PRIVILEGED, normalise=False)
    ),
    "sgcd_p_raw": Method(
        "control",
        "sgcd_p as printed: 1 <= W, which also lengthens the step",
        "arXiv:2606.12634",
        _but(_SIBLINGS, normalise=False),
    ),
    "direct_distillation": Method(
        "control",
        "no policy gradient: match the policy that has been told the answer. A negative control: it may unlearn tools",
        "arXiv:2606.12634, a control",
        {
            "distil": Setting(1.0, "weight of the divergence", "nothing is learned", "tools are forgotten"),
            "distil_direction": Setting("reverse", "of the divergence", choices=("reverse", "forward", "jsd")),
            "top": Setting(
                20, "teacher's likeliest tokens in the divergence", "differences fall into the tail", "memory", 1
            ),
        },
        rewarded=False,
    ),
}


def unknown_method(name: str) -> str | None:
    """Return why there is no such row, with the nearest name; None if there is."""
    if name in METHODS:
        return None
    near = get_close_matches(name, METHODS, n=1)
    return f"no method {name!r}" + (f"; did you mean {near[0]!r}?" if near else f", there is {', '.join(METHODS)}")


def setting_problems(method: str, given: Mapping[str, object]) -> list[str]:
    """Return one line per setting that the method does not have or that is impossible."""
    known = METHODS[method].settings
    problems = []
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            has = f"it has {', '.join(known)}" if known else "it has none"
            problems.append(f"{name}: no setting of {method}; " + (f"did you mean {near[0]!r}?" if near else has))
        elif (reason := known[name].problem(value)) is not None:
            problems.append(f"{name} {reason}")
    return problems


def settings_of(method: str, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return every setting of a method: its defaults, and what is given instead. Raises KeyError, ValueError."""
    problems = setting_problems(method, given)
    if problems:
        raise ValueError("; ".join(problems))
    return {name: setting.default for name, setting in METHODS[method].settings.items()} | dict(given)
