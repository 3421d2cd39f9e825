"""The table of algorithms, as people read and configure it: source, settings, what a low or a high value does.

Pure data, so that `params.yaml` is checked and `geartrain methods` answers
without loading torch. The functions of each row are in
`geartrain.algorithms.recipe.RECIPES`; a test holds the two equal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from geartrain.method_settings import (
    CRITIC,
    GRAINS,
    MIXTURE,
    PAST_SELF,
    PRIVILEGED,
    SIBLINGS,
    STEP_RETURN,
    TOKEN_RETURN,
    Setting,
    Value,
    but,
)

NEUTRAL = ("strength", "kappa", "alpha", "gamma")
"""Settings that switch weighing off at 0."""


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
            "value_learning_rate": Setting(1e-3, "Adam's, of the value head", "stale values", "follows noise", 1e-9),
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
        {**MIXTURE, **STEP_RETURN},
    ),
    "gear_a_sgcd": Method(
        "credit", "gear_a with the sibling critic as the step grain", "ours: a composition", {**MIXTURE, **CRITIC}
    ),
    "gear_b": Method(
        "credit",
        "weighs a turn by how far the policy has moved from a snapshot of itself, less in coarse states",
        "another article on GEAR, repaired",
        PAST_SELF,
    ),
    "gear_p": Method(
        "credit",
        "weighs tokens by how much the policy disagrees with itself once told the answer, over adaptive segments",
        "arXiv:2605.11853",
        PRIVILEGED,
    ),
    "sgcd_s": Method(
        "credit",
        "weighs turns by a critic of sibling contrasts",
        "an article on SGCD, repaired",
        {**GRAINS, **CRITIC},
    ),
    "sgcd_p": Method(
        "credit",
        "weighs tokens by where a teacher that has read the siblings would act differently",
        "arXiv:2606.12634",
        SIBLINGS,
    ),
    "fixed_weights": Method(
        "control",
        "gear_a's grains in an even mixture that never learns",
        "ours",
        {**GRAINS, **STEP_RETURN, **TOKEN_RETURN},
    ),
    "single_grain": Method("control", "the step grain alone", "ours", {**GRAINS, **STEP_RETURN}),
    "gear_p_calls": Method(
        "control",
        "gear_p with tool calls for segments",
        "arXiv:2605.11853, an ablation",
        but(PRIVILEGED, boundaries="calls"),
    ),
    "gear_p_raw": Method(
        "control", "gear_p as printed: W is not normalised", "arXiv:2605.11853", but(PRIVILEGED, normalise=False)
    ),
    "sgcd_p_raw": Method(
        "control",
        "sgcd_p as printed: 1 <= W, which also lengthens the step",
        "arXiv:2606.12634",
        but(SIBLINGS, normalise=False),
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
