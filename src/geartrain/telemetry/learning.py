"""Metrics of an iteration of the policy: training, rollouts, credit."""

from geartrain.telemetry.declaration import PREFIX, Metric, counter, gauge
from geartrain.telemetry.labels import ALARM, DECODING, FAMILY, GRAIN, LEARNER, PARTNER, PHASE, POINT, PROGRESS

_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)

TRAINING = (
    counter("train_iterations_total", "line: iterations", "Iterations done; one that a resumed run repeats counts."),
    gauge("train_iteration", "line: iteration", "Number of the last iteration, from 1."),
    gauge("train_planned_iterations", "line: planned", "Iterations that the run is to have."),
    Metric(
        PREFIX + "train_iteration_seconds",
        "histogram",
        "Time of an iteration without its checkpoint.",
        "line: iteration_seconds",
        buckets=_SECONDS,
    ),
    counter("train_phase_seconds_total", "line: phase_seconds", "Time spent in a part of the iterations.", PHASE),
    gauge("train_last_iteration_timestamp_seconds", "line: iteration_time", "When the last iteration was done."),
    gauge("train_last_checkpoint_timestamp_seconds", "line: checkpoint_time", "When the last checkpoint was written."),
    counter("train_tokens_total", "tokens.trained", "Sampled tokens that were trained on."),
    gauge("train_tokens_per_second", "tokens.trained / seconds.train", "Trained tokens per second of training."),
    gauge("train_success_ratio", "record.success", "Share of training episodes that succeed."),
    gauge("train_reward_mean", "record.reward", "Mean total reward of the training episodes."),
    gauge("train_reward_start_mean", "start: record.reward", "The same in the first iterations."),
    gauge("train_advantage_stddev", "record.advantage_spread", "Standard deviation of the advantages trained on."),
    gauge(
        "train_advantage_reward_correlation",
        "record.advantage_reward",
        "Advantages with the rewards that they are made of, within groups; below 0 a sign is wrong.",
    ),
    gauge("train_groups", "record.groups", "Groups of siblings played, refills included."),
    gauge(
        "train_filtered_groups_ratio",
        "record.filtered_groups / record.groups",
        "Share of groups without an advantage: all siblings have one reward.",
    ),
    gauge(
        "train_single_outcome_groups_ratio",
        "record.groups_of_one_outcome / record.groups",
        "Share of groups whose siblings all succeed, or all fail.",
    ),
    gauge("train_trajectories", "record.trained_trajectories", "Trajectories trained on in the last iteration."),
    gauge("train_empty_iterations", "record.empty_in_a_row", "Iterations in a row without a group to learn from."),
    gauge("train_kl_nats", "line: kl", "KL divergence from the warm start per token."),
    gauge("train_update_kl_nats", "record.update_kl", "How far an iteration's steps move the policy, per token."),
    gauge("train_kl_coefficient", "record.kl_coefficient", "Weight of the KL penalty."),
    gauge("train_entropy_nats", "record.entropy", "Entropy of the policy per sampled token."),
    gauge("train_entropy_start_nats", "start: record.entropy", "The same in the first iterations."),
    gauge("train_clipped_tokens_ratio", "record.clip_fraction", "Share of tokens whose ratio left the trust region."),
    gauge(
        "train_importance_ratio_mean", "record.ratio_mean", "Mean ratio of the policy's to the sampler's probability."
    ),
    gauge(
        "train_importance_ratio_max", "record.ratio_max", "Largest ratio of the policy's to the sampler's probability."
    ),
    gauge(
        "train_gradient_norm", "record.gradient_norm", "Mean gradient norm before clipping; none if all were skipped."
    ),
    gauge("train_learning_rate", "record.learning_rate", "Learning rate of the last step."),
    counter("train_skipped_steps_total", "line: skipped", "Steps skipped: loss or gradient was not finite.", of="*"),
    counter("train_nonfinite_total", "record.nonfinite", "Trained tokens whose log-prob or advantage was not finite."),
    gauge(
        "train_trained_tokens_ratio",
        "record.trained_share",
        "Share of the sampled tokens of the trained sequences that the loss counts: the mask.",
    ),
    gauge(
        "train_mismatch_nats",
        "line: mismatch",
        "Largest difference of sampler's and trainer's log-prob of one token, for the same weights.",
    ),
    gauge("train_mismatch_limit_nats", "record.mismatch_limit", "What it may be; none where numbers are coarser."),
    gauge(
        "train_staleness_updates", "record.staleness", "Iterations between the weights trained and the oldest sampled."
    ),
    counter("train_unscored_total", "record.unscored", "Trajectories left out for want of a reward."),
    counter("train_cut_short_total", "record.cut_short", "Trajectories left out because a limit cut them short."),
    gauge(
        "train_validation_success_ratio",
        "line: validation",
        "Success on tasks that are not trained on, when it was last measured.",
        DECODING,
    ),
    gauge(
        "train_validation_start_success_ratio",
        "line: validation_start",
        "The same before the first update.",
        DECODING,
    ),
    gauge("train_alarm", "line: alarms", "1 if the run's own watch raised this alarm in the last iteration.", ALARM),
)
ROLLOUTS = (
    counter("rollout_tokens_total", "tokens.played", "Tokens sampled by the policy."),
    gauge("rollout_tokens_per_second", "tokens.played / seconds.play", "Sampled tokens per second of playing."),
    counter("rollout_episodes_total", "record.families.*.episodes", "Episodes played, by task family.", FAMILY),
    counter("rollout_steps_total", "record.environment_steps", "Agent turns played."),
    gauge("rollout_success_ratio", "record.families.*.success", "Share of episodes that succeed, by family.", FAMILY),
    gauge("rollout_progress_ratio", "record.progress", "Mean share of sub-goals reached."),
    gauge("rollout_turns_mean", "record.turns", "Turns per episode."),
    gauge("rollout_tokens_mean", "record.tokens", "Tokens per episode, prompts and answers included."),
    gauge("rollout_invalid_calls_ratio", "record.invalid_calls", "Share of turns that were answered by an error."),
    gauge("rollout_redundant_calls_ratio", "record.redundant_calls", "Share of turns that repeat a call."),
    gauge("rollout_truncated_ratio", "record.truncated", "Share of episodes that a limit ended."),
    gauge(
        "rollout_zero_tool_successes_ratio", "record.zero_tool_share", "Share of successes without a working tool call."
    ),
    gauge("rollout_entropy_nats", "record.entropy_*", "Entropy per sampled token, by progress.", PROGRESS),
)
CREDIT = (
    gauge("credit_weight_stddev", "record.weight_spread", "Standard deviation of W over tokens; 0 is plain GRPO."),
    gauge("credit_weight_within_stddev", "record.weight_spread_within", "The same within trajectories."),
    gauge("credit_weight", "record.weight_*", "Distribution of W over tokens.", POINT),
    gauge(
        "credit_inert_iterations",
        "record.inert_iterations",
        "Trained iterations in a row in which W had to tell tokens apart and did not.",
    ),
    gauge("credit_grain_weight_ratio", "record.grain_*", "Mean weight of a grain in the mixture.", GRAIN),
    gauge(
        "credit_mixture_stddev", "record.mixture_spread", "Distance of the grains' weights from even, root mean square."
    ),
    gauge("credit_granularity_mean", "record.granularity", "Mean granularity of the trained tokens; 1 is coarsest."),
    gauge("credit_granularity_stddev", "record.granularity_spread", "Standard deviation of granularity over tokens."),
    gauge(
        "credit_correlation",
        "line: credit_correlation",
        "Rank correlation over turns of credit, or of W, with something.",
        PARTNER,
    ),
    gauge("credit_teacher_ratio_mean", "record.teacher_ratio", "Policy's over teacher's probability, mean over turns."),
    gauge(
        "credit_teacher_ratio_stddev", "record.teacher_ratio_spread", "Its spread; below 0.1 a teacher says nothing."
    ),
    gauge(
        "credit_teacher_distance_ratio", "record.teacher_distance", "Weights' distance from the past self, relative."
    ),
    gauge("credit_critic_reliability_ratio", "record.critic_reliability", "Trust in the sibling critic, 0 to 1."),
    gauge("credit_critic_stddev", "record.critic_spread", "Spread of the sibling critic's scores over turns."),
    gauge(
        "credit_critic_batch_correlation", "record.critic_correlation", "The critic's scores with the batch's labels."
    ),
    gauge("credit_loss", "record.*_loss", "Loss of what learns credit, before it learned.", LEARNER),
    gauge(
        "credit_critic_correlation",
        "metrics.correlation",
        "The trained critic's scores with the labels of held-out tasks.",
        of="critic",
    ),
    gauge(
        "credit_critic_shuffled_correlation",
        "metrics.correlation_shuffled",
        "The same of a critic that was trained on shuffled labels: a control.",
        of="critic",
    ),
)
