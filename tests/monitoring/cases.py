"""For each alert: what its series look like when it has to fire and when it must not, and what it then says.

A series is a function of the step, in steps of `step` seconds; None is no sample. Names are without `geartrain_`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Value = Callable[[int], float | None]
POD = {
    "job": "geartrain-training",
    "instance": "10.0.0.7:9464",
    "namespace": "geartrain",
    "pod": "policy-0",
    "stage": "policy",
}
HOUR = 3600.0


def always(value: float) -> Value:
    return lambda step: value


def until(last: int, seconds: float = 60.0) -> Value:
    """A timestamp that keeps up until a step, and stays there."""
    return lambda step: seconds * min(step, last)


def rises(slope: float) -> Value:
    return lambda step: slope * step


def jumps(at: int, value: float) -> Value:
    return lambda step: value if step >= at else 0.0


@dataclass(frozen=True)
class Case:
    """One alert, ill and well."""

    alert: str
    ill: Mapping[str, Value]
    well: Mapping[str, Value]
    after: int
    """Step at which it fires when ill from the start; it does not one step earlier."""
    summary: str
    description: str
    recovers: int = 2
    """Steps that it may take until it is silent again."""
    ends: int = 2
    """The same after the stage came to a good end; 10000 for what is no matter of a stage that runs."""
    gone: int = 1
    """The same after its process was gone."""
    cured: Mapping[str, Value] = field(default_factory=dict)
    """What well looks like once it was ill, where that differs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the alert, where they are not those of the stage."""
    step: float = 60.0


IN = "policy (policy-0)"
RUN = "Run r42. "
ITERATIONS = {"train_iteration_seconds_sum": rises(60.0), "train_iteration_seconds_count": rises(2.0)}
GPU = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",Hostname="n1",exported_namespace="geartrain",exported_pod="policy-0",'
GPU += 'job="dcgm",instance="10.0.0.3:9400",namespace="gpu-operator",pod="dcgm-x"}'
CASES = (
    Case(
        "NonFinite",
        {"train_skipped_steps_total": jumps(3, 2.0), "train_nonfinite_total": always(0.0)},
        {"train_skipped_steps_total": always(0.0), "train_nonfinite_total": always(0.0)},
        3,
        f"{IN}: losses or gradients are not finite",
        f"{RUN}2 steps or tokens within 15m were NaN or infinite; such steps are skipped, and three in a row end the "
        "run. "
        "First: look at the gradient norm and the importance ratio just before. If they grew, resume from the last "
        "checkpoint with half the policy.learning_rate.",
        recovers=15,
        cured={"train_skipped_steps_total": always(2.0)},
    ),
    Case(
        "KLBlowUp",
        {"train_kl_nats": always(1.5)},
        {"train_kl_nats": always(0.9)},
        1,
        f"{IN}: the policy is 1.5 nats a token from its warm start",
        f"{RUN}The KL to the warm start is 1.5 nats per token, the limit 1. First: read what it writes now (run page, "
        "trajectories). Then raise policy.kl_coefficient or halve policy.learning_rate, and go back to the best "
        "checkpoint.",
    ),
    Case(
        "LogProbMismatch",
        {"train_mismatch_nats": always(0.004), "train_mismatch_limit_nats": always(0.001)},
        {"train_mismatch_nats": always(0.0009), "train_mismatch_limit_nats": always(0.001)},
        0,
        f"{IN}: sampler and trainer disagree about the same weights",
        f"{RUN}The log-probs of one token differ by 0.004 nats; in float32 0.001 are allowed. Every ratio of the loss "
        "is wrong "
        "by that much. First: check that nothing changed the trajectories after they were sampled, that both use one "
        "temperature, and that a cache was cleared with the weights.",
    ),
    Case(
        "FilterStarvesBatch",
        {"train_filtered_groups_ratio": always(0.9), "train_success_ratio": always(0.05)},
        {"train_filtered_groups_ratio": always(0.9), "train_success_ratio": always(0.95)},  # it has solved them
        5,
        f"{IN}: 90% of the groups teach nothing",
        f"{RUN}All siblings of 90% of the groups have one reward (limit 80%); 5 iterations without any signal end the "
        "run. "
        "First: look at the success by family. Too hard: more warm_start.demonstrations, policy.task_sampling: "
        "headroom. "
        "Too alike: more policy.siblings, a higher policy.sampling.temperature.",
    ),
    Case(
        "EntropyCollapse",
        {
            "train_entropy_nats": always(0.02),
            "train_entropy_start_nats": always(0.5),
            'train_alarm{alarm="entropy"}': always(1.0),
        },
        {
            "train_entropy_nats": always(0.2),
            "train_entropy_start_nats": always(0.5),
            'train_alarm{alarm="entropy"}': always(0.0),
        },
        1,
        f"{IN}: entropy has collapsed to 0.02 nats a token",
        f"{RUN}That is less than 10% of what it was at the start; siblings that all do the same teach nothing. First: "
        "compare "
        "with the success on held-out tasks. If that stands still, resume from before the fall with "
        "policy.entropy_coefficient 0.001 to 0.01, a higher policy.clip_high or a lower policy.learning_rate.",
    ),
    Case(
        "ZeroToolCollapse",
        {"rollout_zero_tool_successes_ratio": always(0.4), 'train_alarm{alarm="zero_tool"}': always(1.0)},
        {"rollout_zero_tool_successes_ratio": always(0.4), 'train_alarm{alarm="zero_tool"}': always(0.0)},  # as ever
        1,
        f"{IN}: 40% of the successes use no tool",
        f"{RUN}It was at least 20 points less at the start; the gate refuses more than promotion.max_zero_tool_share. "
        "The "
        "policy guesses, or has found a way around the work. First: read three such successes. Then weaken what pulls "
        "towards the answer (distil of the method, its privileged teacher), or make the tasks harder to guess.",
    ),
    Case(
        "PolicyDrifts",
        {'train_alarm{alarm="turns"}': always(1.0)},
        {'train_alarm{alarm="turns"}': always(0.0)},
        1,
        f"{IN}: alarm turns of the run's own watch",
        f"{RUN}The watch compares the last 3 iterations with the first 3; the history and the report say by how much. "
        "First: "
        "open the run's dashboard and find when the curve began to part from its start.",
        labels={**POD, "alarm": "turns"},
    ),
    Case(
        "WeightsInert",
        {"credit_inert_iterations": always(3.0)},
        {"credit_inert_iterations": always(2.0)},
        0,
        f"{IN}: the credit weights have said nothing in 3 iterations",
        f"{RUN}In 3 iterations in a row W, the mixture of grains or the granularity told no token from another: this "
        "is "
        "plain GRPO at a higher price. 5 iterations with inert W end the run. First: look at the teacher's ratio and "
        "the "
        "critic's reliability, which the weights are made of.",
    ),
    Case(
        "CriticUseless",
        {"credit_critic_reliability_ratio": always(0.03)},
        {"credit_critic_reliability_ratio": always(0.3)},
        5,
        f"{IN}: the sibling critic's scores mean nothing on held-out tasks",
        f"{RUN}Its correlation with their labels is 0.03, the limit 0.1; its grain weighs by that. Recipes that use "
        "it: "
        "gear_a_sgcd, sgcd_s. First: compare with the control of shuffled labels in the critic's metrics. Then collect "
        "more siblings (collect.siblings, collect.tasks) or more critic.epochs.",
    ),
    Case(
        "RewardHacking",
        {"train_reward_mean": always(0.75), 'train_alarm{alarm="hacking"}': always(1.0)},
        {"train_reward_mean": always(0.75), 'train_alarm{alarm="hacking"}': always(0.0)},
        1,
        f"{IN}: the reward rises while held-out success falls",
        f"{RUN}The mean reward is 0.75, at least 0.1 above the start, and success on held-out tasks has fallen by 10 "
        "points "
        "or more. First: stop trusting the reward; read the episodes that it likes best. Then lower "
        "policy.reward_model_weight, set policy.learned_in_ties: false, and add what fools it to the forgeries of the "
        "reward model.",
    ),
    Case(
        "JudgeOverBudget",
        {"reward_judge_seconds_total": rises(24.0), 'train_phase_seconds_total{phase="play"}': rises(60.0)},
        {"reward_judge_seconds_total": rises(6.0), 'train_phase_seconds_total{phase="play"}': rises(60.0)},
        11,
        f"{IN}: the learned reward takes 40% of the time",
        f"{RUN}Its budget is 25% of a run's time. First: look at its failures by kind and at the length of episodes, "
        "which "
        "it reads whole. Then lower reward_model.max_tokens or set policy.reward_model_weight: 0 where it is not "
        "trusted "
        "anyway.",
        cured={"reward_judge_seconds_total": always(0.0)},  # a process that began anew
    ),
    Case(
        "TrainingStalled",
        {"stage_last_progress_timestamp_seconds": until(3), **ITERATIONS},
        {"stage_last_progress_timestamp_seconds": lambda step: 60.0 * (step - step % 9), **ITERATIONS},
        15,
        f"{IN}: no sign of life for 12m 0s",
        f"{RUN}Its process still answers, and has told nothing for 12m 0s: longer than 5 iterations take. First: see "
        "what it "
        "does (py-spy dump, or the pod's log); on several ranks one that died leaves the others waiting. The last "
        "checkpoint is intact: ending it costs what came after.",
    ),
    Case(
        "CheckpointStale",
        {"train_last_checkpoint_timestamp_seconds": until(2), **ITERATIONS},
        {"train_last_checkpoint_timestamp_seconds": lambda step: 60.0 * (step - step % 55), **ITERATIONS},
        64,
        f"{IN}: 1h 2m 0s of work would be lost by a kill",
        f"{RUN}The last checkpoint is 1h 2m 0s old. First: is the disk or the volume full or slow (df, the phase "
        "`save` of "
        "the iterations)? If not, lower policy.checkpoint_every.",
    ),
    Case(
        "StageFailed",
        {"stage_last_failure_timestamp_seconds": lambda step: 120.0 if step >= 2 else None},
        {"stage_last_failure_timestamp_seconds": always(-2 * HOUR)},
        2,
        f"{IN}: failed 0s ago",
        f"{RUN}The stage ended by itself; nothing repeats it but a retry. First: the last line of its log says what "
        "was "
        "wrong, where, and how to mend it; `geartrain diagnose` reads its record. Exit code 75 is disk or network: "
        "retry.",
        cured={"stage_last_failure_timestamp_seconds": always(120.0)},
        recovers=30,
        ends=30,
        gone=30,
    ),
    Case(
        "GPUIdle",
        {GPU: always(0.01)},
        {GPU: always(0.7)},
        15,
        f"{IN}: its GPUs are busy 1% of the time",
        f"{RUN}It holds GPUs that others queue for. First: which part of the iterations takes the time (dashboard of "
        "the "
        "run, phases)? Playing: fewer, larger batches (policy.sampling.rows). Nothing: see TrainingStalled. A run that "
        "needs no GPU should not ask for one.",
    ),
    Case(
        "QueueTooLong",
        {"job_queue_seconds": rises(60.0)},
        {"job_queue_seconds": lambda step: 60.0 * min(step, 50)},
        62,
        "policy: a job has waited 1h 2m 0s for its place",
        f"{RUN}The launcher gives up after 4h (exit code 76). First: `geartrain status RUN` says what the queue is "
        "short of. "
        "Then end what need not run, or ask for fewer nodes or GPUs.",
    ),
    Case(
        "RetrainOverdue",
        {'stage_last_success_timestamp_seconds{stage="promotion"}': always(0.0)},
        {'stage_last_success_timestamp_seconds{stage="promotion"}': lambda step: HOUR * (step - step % 24)},
        194,
        "no pipeline has come to its end for 8d 2h 0m 0s",
        "A run was due at least every 8d (namespace geartrain). First: `geartrain schedule list` says when the next "
        "is due "
        "and how the last one ended; `geartrain schedule plan` whether the server is as git says.",
        labels={name: POD[name] for name in ("job", "namespace")},
        step=HOUR,
        ends=10_000,
    ),
    Case(
        "LineageFailing",
        {"lineage_failures_total": jumps(3, 4.0)},
        {"lineage_failures_total": always(0.0)},
        3,
        f"{IN}: lineage events are being lost on their way",
        f"{RUN}4 events within 30m were not copied to where $GEARTRAIN_LINEAGE points. They still lie in the journal "
        "of the "
        "stage. First: is that place reachable and writable? Then `geartrain lineage verify`, which says what is "
        "missing.",
        recovers=30,
        ends=30,
        gone=30,
        cured={"lineage_failures_total": always(4.0)},
    ),
)
"""In the order of the rules."""
