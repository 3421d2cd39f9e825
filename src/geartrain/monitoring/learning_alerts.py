"""Alerts about what is learned: a run that dies, or that becomes worthless while it lives.

A limit that the trainer knows is the trainer's own (`algorithms.validity`). Where a rule needs the history of a run,
the alert goes by `geartrain_train_alarm`, which tells what the run's own watch says. So report, run page, diagnosis
and alert never disagree.
"""

from geartrain.algorithms import validity
from geartrain.algorithms.recipe import RECIPES
from geartrain.monitoring.alert import RUN, WHERE, Alert, Pace, alarmed, recent, while_it_runs
from geartrain.monitoring.recordings import JUDGING

EARLY = 2
"""Iterations before inert weights end a run, at which the alert comes."""
STARVED = 0.8
"""Share of groups without an advantage above which most of what is played teaches nothing."""
JUDGE_BUDGET = 0.25
"""Share of a run's time that the learned reward may take."""
MEMORY_SECONDS = 900.0
"""How long a thing that happens once is told of."""
_STUCK = ("mixture", "granularity")
_WITH_RULES_OF_THEIR_OWN = {"zero_tool", "hacking", "entropy", "kl", *_STUCK}
"""Alarms of the run's own watch that another alert than PolicyDrifts tells of."""


def learning(pace: Pace) -> tuple[Alert, ...]:
    """Return the alerts, at a pace."""
    return (*_optimisation(pace), *_policy(pace), *_credit(pace), *_reward(pace))


def _optimisation(pace: Pace) -> tuple[Alert, ...]:
    memory, minute = pace.span(MEMORY_SECONDS), pace.span(60.0)
    counters = ("geartrain_train_skipped_steps_total", "geartrain_train_nonfinite_total")
    pair = ("geartrain_train_mismatch_nats", "geartrain_train_mismatch_limit_nats")
    either = "\n  or ".join(f"({recent(counter, memory)})" for counter in counters)
    return (
        Alert(
            "NonFinite",
            while_it_runs(either, pace, MEMORY_SECONDS),
            "0s",
            "critical",
            "training",
            f"{WHERE}: losses or gradients are not finite",
            f"{RUN}{{{{ $value }}}} steps or tokens within {memory} were NaN or infinite; such steps are skipped, and "
            "three in a row end the run. First: look at the gradient norm and the importance ratio just before. If "
            "they grew, resume from the last checkpoint with half the policy.learning_rate.",
        ),
        Alert(
            "KLBlowUp",
            f"geartrain_train_kl_nats > {validity.FAR:g}",
            minute,
            "critical",
            "training",
            f"{WHERE}: the policy is {{{{ printf `%.3g` $value }}}} nats a token from its warm start",
            f"{RUN}The KL to the warm start is {{{{ printf `%.3g` $value }}}} nats per token, the limit "
            f"{validity.FAR:g}. First: read what it writes now (run page, trajectories). Then raise "
            "policy.kl_coefficient or halve policy.learning_rate, and go back to the best checkpoint.",
        ),
        Alert(
            "LogProbMismatch",
            while_it_runs(" > ".join(f"last_over_time({name}[{memory}])" for name in pair), pace, MEMORY_SECONDS),
            "0s",
            "critical",
            "training",
            f"{WHERE}: sampler and trainer disagree about the same weights",
            f"{RUN}The log-probs of one token differ by {{{{ printf `%.3g` $value }}}} nats; in float32 "
            f"{validity.MAX_MISMATCH:g} are allowed. Every ratio of the loss is wrong by that much. First: check that "
            "nothing changed the trajectories after they were sampled, that both use one temperature, and that a "
            "cache was cleared with the weights.",
        ),
        Alert(
            "FilterStarvesBatch",
            f"geartrain_train_filtered_groups_ratio > {STARVED:g} and geartrain_train_success_ratio < "
            f"{validity.SOLVED:g}",
            pace.span(300.0),
            "warning",
            "training",
            f"{WHERE}: {{{{ $value | humanizePercentage }}}} of the groups teach nothing",
            f"{RUN}All siblings of {{{{ $value | humanizePercentage }}}} of the groups have one reward (limit "
            f"{STARVED:.0%}); {validity.MAX_EMPTY_IN_A_ROW} iterations without any signal end the run. First: look at "
            "the success by family. Too hard: more warm_start.demonstrations, policy.task_sampling: headroom. Too "
            "alike: more policy.siblings, a higher policy.sampling.temperature.",
        ),
    )


def _policy(pace: Pace) -> tuple[Alert, ...]:
    minute = pace.span(60.0)
    drifts = "|".join(name for name in validity.ALARMS if name not in _WITH_RULES_OF_THEIR_OWN)
    return (
        Alert(
            "EntropyCollapse",
            alarmed("entropy", "geartrain_train_entropy_nats < geartrain_train_entropy_start_nats"),
            minute,
            "critical",
            "training",
            f"{WHERE}: entropy has collapsed to {{{{ printf `%.3g` $value }}}} nats a token",
            f"{RUN}That is less than {validity.DECIDED:.0%} of what it was at the start; siblings that all do the "
            "same teach nothing. First: compare with the success on held-out tasks. If that stands still, resume "
            "from before the fall with policy.entropy_coefficient 0.001 to 0.01, a higher policy.clip_high or a "
            "lower policy.learning_rate.",
        ),
        Alert(
            "ZeroToolCollapse",
            alarmed("zero_tool", "geartrain_rollout_zero_tool_successes_ratio"),
            minute,
            "critical",
            "credit",
            f"{WHERE}: {{{{ $value | humanizePercentage }}}} of the successes use no tool",
            f"{RUN}It was at least {100 * validity.ZERO_TOOL_RISE:g} points less at the start; the gate refuses more "
            "than promotion.max_zero_tool_share. The policy guesses, or has found a way around the work. First: read "
            "three such successes. Then weaken what pulls towards the answer (distil of the method, its privileged "
            "teacher), or make the tasks harder to guess.",
        ),
        Alert(
            "PolicyDrifts",
            f'(geartrain_train_alarm{{alarm=~"{drifts}"}} == 1)\nor\n'
            '((geartrain_train_alarm{alarm="entropy"} == 1)\n'
            "  and ignoring (alarm) (geartrain_train_entropy_nats > geartrain_train_entropy_start_nats))",
            minute,
            "warning",
            "training",
            f"{WHERE}: alarm {{{{ $labels.alarm }}}} of the run's own watch",
            f"{RUN}The watch compares the last {validity.WINDOW} iterations with the first {validity.WINDOW}; the "
            "history and the report say by how much. First: open the run's dashboard and find when the curve began "
            "to part from its start.",
        ),
    )


def _credit(pace: Pace) -> tuple[Alert, ...]:
    limit = validity.INERT_ITERATIONS - EARLY
    taught = "|".join(name for name, recipe in RECIPES.items() if recipe.needs_critic)
    return (
        Alert(
            "WeightsInert",
            f"(geartrain_credit_inert_iterations >= {limit})\nor\n{validity.INERT_ITERATIONS} * max without (alarm) "
            f'(geartrain_train_alarm{{alarm=~"{"|".join(_STUCK)}"}} == 1)',
            "0s",
            "warning",
            "credit",
            f"{WHERE}: the credit weights have said nothing in {{{{ $value }}}} iterations",
            f"{RUN}In {{{{ $value }}}} iterations in a row W, the mixture of grains or the granularity told no token "
            f"from another: this is plain GRPO at a higher price. {validity.INERT_ITERATIONS} iterations with inert W "
            "end the run. First: look at the teacher's ratio and the critic's reliability, which the weights are "
            "made of.",
        ),
        Alert(
            "CriticUseless",
            f"geartrain_credit_critic_reliability_ratio < {validity.USELESS_CRITIC:g}",
            pace.span(300.0),
            "warning",
            "credit",
            f"{WHERE}: the sibling critic's scores mean nothing on held-out tasks",
            f"{RUN}Its correlation with their labels is {{{{ printf `%.3g` $value }}}}, the limit "
            f"{validity.USELESS_CRITIC:g}; its grain weighs by that. Recipes that use it: "
            f"{taught.replace('|', ', ')}. First: compare with the control of shuffled labels in the critic's "
            "metrics. Then collect more siblings (collect.siblings, collect.tasks) or more critic.epochs.",
        ),
    )


def _reward(pace: Pace) -> tuple[Alert, ...]:
    return (
        Alert(
            "RewardHacking",
            alarmed("hacking", "geartrain_train_reward_mean"),
            pace.span(60.0),
            "critical",
            "reward",
            f"{WHERE}: the reward rises while held-out success falls",
            f"{RUN}The mean reward is {{{{ printf `%.3g` $value }}}}, at least {validity.HACKED_REWARD:g} above the "
            f"start, and success on held-out tasks has fallen by {100 * validity.LOST_SUCCESS_POINTS:g} points or "
            "more. First: stop trusting the reward; read the episodes that it likes best. Then lower "
            "policy.reward_model_weight, set policy.learned_in_ties: false, and add what fools it to the forgeries "
            "of the reward model.",
        ),
        Alert(
            "JudgeOverBudget",
            f"{JUDGING} > {JUDGE_BUDGET:g}\n  and on (job, instance, stage) (geartrain_stage_running == 1)",
            pace.span(600.0),
            "warning",
            "reward",
            f"{WHERE}: the learned reward takes {{{{ $value | humanizePercentage }}}} of the time",
            f"{RUN}Its budget is {JUDGE_BUDGET:.0%} of a run's time. First: look at its failures by kind and at the "
            "length of episodes, which it reads whole. Then lower reward_model.max_tokens or set "
            "policy.reward_model_weight: 0 where it is not trusted anyway.",
        ),
    )
