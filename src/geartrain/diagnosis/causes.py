"""What may be wrong with a run: by which signs it is known, which others it would show, what mends it.

A row of `CAUSES` says of a cause

    proofs    alternatives, each a set of signs of which all must be there; without one the cause is not named
    shows     signs that it would also have, and how surely (0 to 1): found, they speak for it, absent against it
    weight    how close the proof is to the cause itself: 4 is the cause seen directly (a mask that leaves tokens out),
              2 what a drift is put down to
    mend      what to change

`ranking` orders what is found. Sources: the troubleshooting of the articles, by the items of our list (RLAR-n: the
article on reward agents, arXiv:2603.00190; GEAR-n, SGCD-n: `docs/method-coverage.md`); else "ours".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from geartrain.diagnosis import mending
from geartrain.diagnosis.mending import Change, elsewhere
from geartrain.diagnosis.records import Records

Proof = tuple[str, ...]


@dataclass(frozen=True)
class Cause:
    """One row."""

    means: str
    source: str
    proofs: tuple[Proof, ...]
    mend: Callable[[Records], Sequence[Change]]
    shows: Mapping[str, float] = field(default_factory=dict)
    weight: float = 3.0
    applies: Callable[[Records], bool] = lambda records: True
    """What the settings must be for it; a KL that is paid is no missing one."""


def _unpaid(records: Records) -> bool:
    return not max(float(records.policy("kl_coefficient", 0.0) or 0.0), float(records.policy("kl_final") or 0.0))


def _distils(records: Records) -> bool:
    return records.policy("recipe") != "direct_distillation" and float(records.method("distil") or 0.0) > 0


def _held_hard(records: Records) -> bool:
    return float(records.policy("kl_coefficient", 0.0) or 0.0) >= 1.0


def _fix_code(text: str) -> Callable[[Records], Sequence[Change]]:
    def advise(records: Records) -> Sequence[Change]:
        return [elsewhere(text)]

    advise.__doc__ = f"No setting: {text}."
    return advise


HARM: Mapping[str, float] = {"success_fell": 0.5, "held_out_fell": 0.5, "errors": 0.3, "tested_worse": 0.1}
"""What a policy shows that is led astray."""

CAUSES: Mapping[str, Cause] = {
    "masked_actions": Cause(
        "The loss is on other tokens than those that the policy sampled.",
        "rl-faults B6, B18; ours",
        (("masked",),),
        _fix_code(
            "build the loss mask from the sampled ids alone: Trajectory.action_mask, training.features.sequence_of"
        ),
        weight=4.0,
    ),
    "inverted_advantage": Cause(
        "What is worse than its siblings is made more likely: a sign is wrong.",
        "GEAR-50",
        (("reversed",), ("backwards",)),
        _fix_code(
            "an advantage is reward minus the siblings' mean, and the surrogate is maximised: "
            "look for a minus sign in the recipe's advantage or in the loss"
        ),
        {**HARM, "reversed": 0.3, "backwards": 0.3},
        weight=4.0,
    ),
    "reward_scale": Cause(
        "Rewards are of another size than the loss is made for: every coefficient beside them loses its meaning.",
        "RLAR-69, GEAR-44; ours",
        (("reward_range",), ("advantage_range",)),
        mending.rescale,
        {"reward_range": 0.5, "advantage_range": 0.3},
        weight=4.0,
    ),
    "learning_rate_high": Cause(
        "The learning rate is too high: the steps of one iteration move the policy past what its samples vouch for.",
        "GEAR-45, GEAR-46, GEAR-48, RLAR-66",
        (("far_steps",),),
        mending.slower,
        {
            "clipped": 0.7,
            **HARM,
            "drifted": 0.3,
            "entropy_high": 0.1,
            "entropy_low": 0.1,
            "lengths": 0.1,
            "flat": 0.1,
            "hopeless": 0.1,
            "diverged": 0.1,
            "far_teacher": 0.1,
            "forgotten": 0.1,
            "no_gain": 0.1,
            "blind_critic": 0.1,
        },
    ),
    "no_kl": Cause(
        "Nothing holds the policy near the warm start, and it has drifted away from what worked.",
        "GEAR-55, RLAR-63, RLAR-65",
        (
            ("drifted", "success_fell"),
            ("drifted", "held_out_fell"),
            ("drifted", "errors"),
            ("drifted", "entropy_low"),
            ("drifted", "entropy_high"),
            ("drifted", "lengths"),
            ("drifted", "no_gain"),
        ),
        mending.hold,
        {
            "success_fell": 0.3,
            "held_out_fell": 0.4,
            "errors": 0.2,
            "entropy_low": 0.2,
            "entropy_high": 0.1,
            "lengths": 0.1,
            "no_gain": 0.1,
            "flat": 0.1,
            "far_teacher": 0.1,
        },
        weight=2.0,
        applies=_unpaid,
    ),
    "kl_weak": Cause(
        "The KL is paid, and too cheap to hold the policy.",
        "RLAR-63, RLAR-65",
        (("drifted", "held_out_fell"), ("drifted", "success_fell")),
        mending.hold,
        {"errors": 0.2, "entropy_low": 0.1, "lengths": 0.1},
        weight=1.5,
        applies=lambda records: not _unpaid(records),
    ),
    "kl_strong": Cause(
        "The KL holds the policy where it was.",
        "RLAR-65; ours",
        (("no_gain",),),
        mending.loosen,
        weight=1.5,
        applies=_held_hard,
    ),
    "clipped_away": Cause(
        "Clipping leaves nothing of the update.",
        "GEAR-46, GEAR-48, RLAR-66",
        (("narrow",), ("lost_gradient",)),
        mending.widen_clip,
        {"still": 0.4, "no_gain": 0.2, "clipped": 0.3},
        weight=4.0,
    ),
    "learning_rate_low": Cause(
        "The policy does not move within the budget.",
        "GEAR-39; ours",
        (("still", "no_gain"),),
        mending.faster,
        weight=1.5,
    ),
    "equal_rewards": Cause(
        "The scorer gives siblings one reward although some succeed and others fail.",
        "GEAR-49; ours",
        (("alike",),),
        _fix_code(
            "try the reward on one good and one bad episode by hand: rewards.verified.verified_score tells them apart"
        ),
        {"flat": 0.7, "no_gain": 0.2},
        weight=4.0,
    ),
    "no_signal": Cause(
        "Siblings hardly ever differ: the tasks are too hard, too easy, or the policy always does the same.",
        "GEAR-54, RLAR-74, RLAR-75",
        (("flat",),),
        mending.more_signal,
        {"hopeless": 0.3, "entropy_low": 0.3, "no_gain": 0.2},
        weight=2.0,
    ),
    "tasks_solved": Cause(
        "The tasks are solved, and there is nothing left to learn from them.",
        "GEAR-54, GEAR-56; ours",
        (("flat", "solved"),),
        mending.harder_tasks,
        weight=3.0,
    ),
    "reward_hacking": Cause(
        "Something else than the work is paid for: a judge that leaks, or a reward model with a loophole.",
        "RLAR-63, RLAR-64, RLAR-73",
        (("unrelated",), ("paid_without_success",)),
        mending.distrust,
        {
            "paid_without_success": 0.5,
            "unrelated": 0.5,
            "fooled": 0.1,
            "held_out_fell": 0.2,
            "success_fell": 0.3,
            "lengths": 0.2,
            "errors": 0.1,
            "zero_tool": 0.1,
            "no_gain": 0.2,
            "drifted": 0.1,
            "entropy_low": 0.1,
            "flat": 0.0,
        },
        weight=3.5,
    ),
    "starved_family": Cause(
        "A family of tasks is hardly ever played, and is measured all the same.",
        "RLAR-68, RLAR-71, RLAR-72",
        (("starved",),),
        mending.play_family,
        {"forgotten": 0.2, "gap": 0.2},
        weight=3.5,
    ),
    "forgetting": Cause(
        "A family of tasks is unlearned while the others gain.",
        "RLAR-68 to RLAR-72",
        (("forgotten",), ("tested_family",)),
        mending.remember_family,
        {"held_out_fell": 0.2},
        weight=2.0,
    ),
    "same_teacher": Cause(
        "The teacher is the student itself: it explains nothing.",
        "GEAR-43, GEAR-57, GEAR-94",
        (("same_teacher",),),
        mending.renew_teacher,
        {"even_mixture": 0.5, "inert": 0.2},
        weight=4.0,
    ),
    "stale_teacher": Cause(
        "The teacher is still the policy of the run's first iterations: what it says is of somebody else.",
        "GEAR-57, GEAR-94, GEAR-120",
        (("old_teacher",), ("far_teacher",)),
        mending.renew_teacher,
        {"old_teacher": 0.5, "far_teacher": 0.2},
        weight=3.5,
    ),
    "frozen_critic": Cause(
        "The critic should learn from each batch, and what is queried does not move.",
        "GEAR-120, SGCD-53",
        (("still_critic",),),
        mending.wake_critic,
        {"blind_critic": 0.3, "silent_critic": 0.1, "inert": 0.1},
        weight=4.0,
    ),
    "useless_critic": Cause(
        "The critic knows nothing of what this policy's siblings show.",
        "GEAR-120, SGCD-53",
        (("blind_critic",), ("silent_critic",), ("poor_critic", "inert")),
        mending.wake_critic,
        {"poor_critic": 0.5, "inert": 0.2, "silent_critic": 0.2},
    ),
    "inert_weights": Cause(
        "The method weighs nothing: the run is plain GRPO under another name.",
        "GEAR-51, GEAR-119; ours",
        (("inert",), ("even_credit",)),
        mending.strengthen,
        {"even_mixture": 0.2},
        weight=2.5,
    ),
    "collapsed_mixture": Cause(
        "One grain has taken the mixture; the others do not count.",
        "GEAR-53",
        (("one_grain",),),
        mending.keep_mixture,
        weight=2.0,
    ),
    "even_mixture": Cause(
        "The network that mixes the grains has learned nothing.",
        "GEAR-51, GEAR-52",
        (("even_mixture",),),
        mending.learn_mixture,
        weight=2.0,
    ),
    "flat_granularity": Cause(
        "All turns count as equally coarse: granularity weighs nothing.",
        "GEAR-111, GEAR-121; ours",
        (("flat_granularity",),),
        mending.other_granularity,
        weight=2.0,
    ),
    "strong_distillation": Cause(
        "The pull to the teacher holds the policy at its past self.",
        "GEAR-47",
        (("no_gain",),),
        mending.pull_less,
        {"still": 0.2},
        weight=2.0,
        applies=_distils,
    ),
    "entropy_collapse": Cause(
        "The policy is sure of itself and no longer explores.",
        "GEAR-123, RLAR-74",
        (("entropy_low",),),
        mending.explore,
        {"flat": 0.4, "no_gain": 0.2},
        weight=2.0,
    ),
    "entropy_explosion": Cause(
        "The policy has become random.",
        "GEAR-123; ours",
        (("entropy_high", "success_fell"), ("entropy_high", "errors"), ("entropy_high", "held_out_fell")),
        mending.decide,
        {"errors": 0.4, "lengths": 0.2},
        weight=2.0,
    ),
    "zero_tool_collapse": Cause(
        "It succeeds without its tools: it guesses, or has found a way around the work.",
        "SGCD, arXiv:2606.12634, section 3",
        (("zero_tool",), ("tested_zero_tool",)),
        mending.distrust,
        {"lengths": 0.3, "entropy_low": 0.1},
        weight=2.5,
    ),
    "failing_scorer": Cause(
        "Many episodes have no reward, and are left out.",
        "rl-faults C14; ours",
        (("unscored",),),
        _fix_code("see `scoring_failures` in history.jsonl for what fails, and mend that channel"),
        weight=3.5,
    ),
    "sampler_mismatch": Cause(
        "The trainer's log-probs are not those that the sampler kept.",
        "rl-faults B13, C8; ours",
        (("mismatch",),),
        mending.same_sampler,
        {**HARM},
        weight=4.0,
    ),
    "divergence": Cause(
        "Loss or gradient is not finite.",
        "GEAR-48; ours",
        (("diverged",),),
        mending.slower,
        {"success_fell": 0.2, "far_steps": 0.3},
        weight=2.5,
    ),
    "overfitting": Cause(
        "The training tasks are learned by heart.",
        "GEAR-55, GEAR-56, GEAR-58",
        (("gap",),),
        mending.stop_early,
        {"entropy_low": 0.1, "drifted": 0.2},
        weight=2.0,
    ),
    "harm": Cause(
        "Training does harm.",
        "RLAR-67; ours",
        (("held_out_fell",), ("success_fell",), ("tested_worse",)),
        mending.slow_and_hold,
        weight=0.5,
    ),
    "plateau": Cause(
        "Nothing is gained.",
        "RLAR-73, RLAR-74, RLAR-75, GEAR-54",
        (("no_gain",),),
        mending.seek,
        weight=0.5,
    ),
}
