"""Metrics of rewards, data and evaluation, and of the stages, ranks and the exporter themselves."""

from geartrain.telemetry.declaration import PREFIX, Label, Metric, counter, gauge
from geartrain.telemetry.labels import (
    ATTACK,
    BLAME,
    CHANNEL,
    CHECK,
    DECODING,
    DROP,
    FAILURE,
    FAMILY,
    LEFT_OUT,
    NO_OPINION,
    OUTCOME,
    PAIR_SPLIT,
    QUARANTINE,
    RANK,
    REFERENCE_FAILURE,
    ROLE,
    SPLIT,
)

REWARD = (
    gauge("reward_raw_mean", "record.channels.*.mean", "Mean of a channel's raw values.", CHANNEL),
    gauge("reward_raw_stddev", "record.channels.*.spread", "Standard deviation of a channel's raw values.", CHANNEL),
    gauge(
        "reward_family_raw_mean",
        "record.channels.*.families.*",
        "Mean of a channel's raw values, by family.",
        *(CHANNEL, FAMILY),
    ),
    counter("reward_values_total", "record.channels.*.values", "Values that a channel gave.", CHANNEL),
    counter("reward_failures_total", "line: failures", "Failures of a channel, by kind.", CHANNEL, FAILURE),
    counter("reward_no_opinion_total", "line: no_opinion", "Times a channel did not apply.", CHANNEL, NO_OPINION),
    gauge(
        "reward_disagreement_ratio",
        "record.disagreement",
        "Share of siblings that the reward model orders against the verifier; a tie is one half.",
    ),
    gauge(
        "reward_outcome_correlation",
        "record.reward_outcome",
        "Rewards with verified outcomes, within groups; near 0 something else is paid for.",
    ),
    counter("reward_judge_seconds_total", "seconds.judge", "Time spent in the learned reward: what judging costs."),
    counter(
        "reward_reference_failures_total",
        "record.reference_failures.*",
        "Failed answers of the reference server, by kind.",
        REFERENCE_FAILURE,
    ),
    gauge(
        "reward_model_accuracy_ratio",
        "metrics.validation_accuracy",
        "Share of held-out pairs that the reward model orders right.",
        of="reward_model",
    ),
    gauge(
        "reward_model_accuracy_low_ratio",
        "metrics.validation_accuracy_at_least",
        "Its one-sided lower bound of 90 %, over tasks.",
        of="reward_model",
    ),
    gauge(
        "reward_model_length_accuracy_ratio",
        "metrics.length_baseline_accuracy",
        "The same of length alone; no worse means that length is what was learned.",
        of="reward_model",
    ),
    gauge(
        "reward_model_calibration_error_ratio",
        "metrics.calibration_error_after",
        "Expected calibration error on held-out pairs, cross-fitted.",
        of="reward_model",
    ),
    gauge("reward_model_trusted", "metrics.trusted", "1 if it has a say.", of="reward_model"),
    gauge(
        "reward_canary_resistance_ratio",
        "metrics.resistance.*.accuracy",
        "Share of forged transcripts that score below the honest one, by attack.",
        ATTACK,
        of="reward_model",
    ),
    gauge(
        "reward_probe_successes",
        "metrics.probe_successes",
        "Tasks that a policy which does nothing passes; has to be 0.",
        of="evaluation",
    ),
)
DATA = (
    gauge(
        "data_reward_drift", "record.reward_drift", "Change of the mean reward since the version before, in spreads."
    ),
    gauge("data_records", "metrics.records", "Records read for preference pairs.", of="preferences"),
    gauge(
        "data_quarantined_records",
        "line: quarantined",
        "Records that cannot be used, by reason.",
        QUARANTINE,
        of="preferences",
    ),
    gauge(
        "data_dropped_pairs",
        "metrics.dropped_pairs.*",
        "Pairs of siblings that were not made into preferences, by reason.",
        DROP,
        of="preferences",
    ),
    gauge("data_pairs", "metrics.pairs_by_split.*", "Preference pairs.", PAIR_SPLIT, of="preferences"),
    gauge(
        "data_chosen_longer_ratio",
        "metrics.length.chosen_longer",
        "Share of pairs whose chosen side is longer; one half is no bias.",
        of="preferences",
    ),
    gauge(
        "data_left_out_pairs",
        "metrics.left_out.*",
        "Pairs that the reward model could not read, by reason.",
        LEFT_OUT,
        of="reward_model",
    ),
    gauge("data_collect_success_ratio", "metrics.success", "Success of the rollouts.", of="collect"),
    gauge(
        "data_mixed_groups_ratio",
        "metrics.mixed_groups / metrics.groups",
        "Share of groups of rollouts with both outcomes, from which credit is learned.",
        of="collect",
    ),
)
EVALUATION = (
    gauge(
        "eval_success_ratio",
        "line: eval_success",
        "Success on held-out tasks.",
        *(SPLIT, DECODING, ROLE),
        of="evaluation",
    ),
    gauge("eval_gain_ratio", "line: eval_gain", "Paired gain.", SPLIT, DECODING, of="evaluation"),
    gauge(
        "eval_gain_low_ratio",
        "line: eval_gain_low",
        "Lower end of the gain's interval.",
        *(SPLIT, DECODING),
        of="evaluation",
    ),
    gauge("gate_promoted", "metrics.promoted", "1 if the gate let the policy pass.", of="promotion"),
    gauge("gate_check_passed", "metrics.check_*", "1 if a check passed.", CHECK, of="promotion"),
)
_INFO = ("run_id", "dataset_digest", "image_digest", "git_commit", "recipe")
"""Labels of `geartrain_stage_info`: one series a stage, replaced with the run."""
PIPELINE = (
    Metric(
        PREFIX + "stage_info",
        "info",
        "Which run, data, image and code a stage belongs to; empty where not known.",
        "line: info",
        tuple(Label(name, "one series a stage", most=1) for name in _INFO),
        of="*",
        leader=False,
    ),
    gauge("stage_running", "line: running", "1 while the stage runs, 0 when it has ended.", of="*", lasting=True),
    gauge("stage_start_timestamp_seconds", "line: begin_time", "When the stage began.", of="*"),
    gauge("stage_last_progress_timestamp_seconds", "line: last_time", "When the stage last told anything.", of="*"),
    gauge("stage_progress_ratio", "line: progress", "How much of the last part of its work is done.", of="*"),
    gauge("stage_duration_seconds", "line: duration", "From begin to end, when last complete.", of="*", lasting=True),
    gauge(
        "stage_last_success_timestamp_seconds",
        "line: success_time",
        "When the stage was last complete; of `promotion`: when the pipeline was.",
        of="*",
        lasting=True,
    ),
    gauge("stage_last_failure_timestamp_seconds", "line: failure_time", "When it last failed.", of="*", lasting=True),
    counter("stage_failures_total", "line: blame", "Failures of the stage, by whose they are.", BLAME, of="*"),
    counter("stage_ends_total", "line: ends", "Ends of the stage, by outcome.", OUTCOME, of="*"),
    counter("lineage_failures_total", "line: lineage_failures", "Lineage events that were not copied.", of="*"),
    gauge(
        "job_queue_seconds",
        "line: queue",
        "How long the stage's training job has waited in the queue so far.",
        of="*",
    ),
)
PROCESS = (
    gauge("rank_memory_bytes", "ranks.memory_bytes", "Resident memory of a rank.", RANK, leader=False),
    counter("rank_cpu_seconds_total", "ranks.cpu_seconds", "CPU time of a rank's process.", RANK, leader=False),
    counter("rank_trained_tokens_total", "ranks.trained_tokens", "Tokens trained by a rank.", RANK, leader=False),
    gauge("gpu_memory_allocated_bytes", "ranks.gpu_allocated_bytes", "GPU memory in tensors.", RANK, leader=False),
    gauge("gpu_memory_reserved_bytes", "ranks.gpu_reserved_bytes", "GPU memory held by torch.", RANK, leader=False),
    gauge("gpu_memory_peak_bytes", "ranks.gpu_peak_bytes", "Most GPU memory in tensors so far.", RANK, leader=False),
)
EXPORTER = (
    counter("exporter_lines_total", "line: lines", "Lines told of.", of="", leader=False),
    counter("exporter_errors_total", "line: errors", "Lines that could not be read.", of="", leader=False),
    gauge("exporter_series", "line: series", "Series of the last scrape.", of="", leader=False),
)
