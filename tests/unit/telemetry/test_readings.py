"""What lines become as numbers."""

import threading

import pytest

from geartrain.telemetry import METRICS
from geartrain.telemetry.readings import Readings
from tests.fakes.lines import RUN, begin, end, iteration


def told(*lines, stage="policy", **options):
    readings = Readings(**options)
    for line in lines:
        readings.tell(stage, line)
    return readings


def value(readings, name, *labels, stage="policy"):
    found = {sample.labels: sample.value for sample in readings.samples().get(f"geartrain_{name}", ())}
    return found.get((stage, *labels))


def test_counters_add_up_and_gauges_are_of_the_last_iteration():
    readings = told(begin(), iteration(0, reward=0.25, unscored=2), iteration(1, reward=0.75, unscored=3))
    assert value(readings, "train_iterations_total") == 2
    assert value(readings, "train_iteration") == 2
    assert value(readings, "train_planned_iterations") == 9
    assert value(readings, "train_unscored_total") == 5
    assert value(readings, "train_tokens_total") == 200
    assert value(readings, "train_reward_mean") == 0.75
    assert value(readings, "rollout_tokens_per_second") == 200.0


def test_what_an_iteration_does_not_know_is_not_told():
    readings = told(begin(), iteration(0, kl=0.5, zero_tool_share=0.5), iteration(1, kl=None))
    assert value(readings, "train_kl_nats") is None
    assert value(readings, "rollout_zero_tool_successes_ratio") is None
    assert value(readings, "train_gradient_norm") is None


def test_counters_without_labels_and_alarms_begin_at_zero():
    readings = told(begin())
    names = [m.name for m in METRICS.values() if m.kind == "counter" and not m.labels and m.of in ("policy", "*")]
    assert len(names) >= 10
    assert {name: value(readings, name.removeprefix("geartrain_")) for name in names} == dict.fromkeys(names, 0.0)
    assert value(readings, "train_alarm", "entropy") == 0.0


def test_labels_are_what_a_path_matches():
    families = {"mail": {"episodes": 6, "success": 0.5}, "join": {"episodes": 2, "success": None}}
    channels = {"verified": {"values": 8, "mean": 0.4, "spread": 0.1, "families": {"mail": 0.5}}}
    weights = {"weight_min": 0.5, "weight_p95": 1.5, "weight_spread": 0.2, "weight_advantage": 0.1}
    record = {"families": families, "channels": channels, **weights, "grain_token": 0.3, "value_loss": 2.0}
    readings = told(begin(), iteration(0, **record), iteration(1, **record))
    assert value(readings, "rollout_episodes_total", "mail") == 12
    assert value(readings, "rollout_success_ratio", "mail") == 0.5
    assert value(readings, "rollout_success_ratio", "join") is None
    assert value(readings, "reward_raw_mean", "verified") == 0.4
    assert value(readings, "reward_family_raw_mean", "verified", "mail") == 0.5
    assert [s.labels[1] for s in readings.samples()["geartrain_credit_weight"]] == ["min", "p95"]
    assert value(readings, "credit_weight_stddev") == 0.2
    assert value(readings, "credit_correlation", "advantage") == 0.1
    assert value(readings, "credit_grain_weight_ratio", "token") == 0.3
    assert value(readings, "credit_loss", "value") == 2.0


def test_labels_are_bounded_whatever_comes():
    families = {f"family-{number:02d}": {"episodes": 1, "success": number % 2} for number in range(40)}
    failures = {"verified.raised_KeyError": 2, "verified.raised_OSError": 1, "verified.new": 4, "spy.raised_X": 1}
    readings = told(begin(), iteration(0, families=families, scoring_failures={**failures, "n/a learned.tied": 7}))
    episodes = readings.samples()["geartrain_rollout_episodes_total"]
    assert len(episodes) == 13
    assert value(readings, "rollout_episodes_total", "other") == 28
    assert value(readings, "rollout_success_ratio", "other") == 0.5
    assert value(readings, "reward_failures_total", "verified", "raised") == 3
    assert value(readings, "reward_failures_total", "verified", "other") == 4
    assert value(readings, "reward_failures_total", "other", "raised") == 1
    assert value(readings, "reward_no_opinion_total", "learned", "tied") == 7


def test_an_alarm_is_raised_and_falls():
    raised, calm = iteration(0, alarms=["entropy: 0.001 nats"]), iteration(1, alarms=[])
    assert value(told(begin(), raised), "train_alarm", "entropy") == 1
    assert value(told(begin(), raised), "train_alarm", "zero_tool") == 0
    assert value(told(begin(), raised, calm), "train_alarm", "entropy") == 0


def test_a_validation_is_told_until_the_next_one():
    first = iteration(0, val_greedy=0.5, val_sampled=0.25, start_val_greedy=0.4, start_val_sampled=0.2)
    readings = told(begin(), first, iteration(1))
    assert value(readings, "train_validation_success_ratio", "greedy") == 0.5
    assert value(readings, "train_validation_start_success_ratio", "sampled") == 0.2


def test_a_start_is_known_after_three_iterations():
    lines = [iteration(index, reward=float(index)) for index in range(5)]
    assert value(told(begin(), *lines[:2]), "train_reward_start_mean") is None
    assert value(told(begin(), *lines), "train_reward_start_mean") == 1.0


def test_time_of_an_iteration_is_a_histogram_and_judging_is_a_part_of_playing():
    readings = told(begin(), iteration(0), {"kind": "checkpoint", "time": 111.0, "step": 1, "seconds": 0.25})
    (sample,) = readings.samples()["geartrain_train_iteration_seconds"]
    assert (sample.value, sample.counts[-1]) == (3.5, 1)
    assert sample.counts == (0, 0, 0, *[1] * 10)
    assert value(readings, "train_phase_seconds_total", "play") == 2.0
    assert value(readings, "train_phase_seconds_total", "save") == 0.25
    assert value(readings, "reward_judge_seconds_total") == 0.25
    assert value(readings, "train_last_checkpoint_timestamp_seconds") == 111.0


def test_when_a_stage_has_ended_only_what_it_leaves_is_told():
    readings = told(begin(), iteration(0, kl=0.1), end(time=160.0))
    assert value(readings, "train_kl_nats") is None
    assert value(readings, "train_last_iteration_timestamp_seconds") is None
    assert "geartrain_stage_info" not in {name for name, samples in readings.samples().items() if samples}
    assert value(readings, "train_iterations_total") == 1
    assert value(readings, "stage_running") == 0
    assert value(readings, "stage_duration_seconds") == 60.0
    assert value(readings, "stage_last_success_timestamp_seconds") == 160.0
    assert value(readings, "stage_ends_total", "complete") == 1
    assert readings.running() == []


@pytest.mark.parametrize(
    ("error", "blame"), [("UserError", "user"), ("InfrastructureError", "infrastructure"), ("ValueError", "bug")]
)
def test_a_failure_has_a_time_and_is_somebodys(error, blame):
    readings = told(begin(), end(outcome="failed", reason="x", error=error))
    assert value(readings, "stage_failures_total", blame) == 1
    assert value(readings, "stage_last_failure_timestamp_seconds") == 200.0
    assert value(readings, "stage_last_success_timestamp_seconds") is None


def test_who_was_asked_to_end_has_not_failed():
    readings = told(begin(), end(outcome="interrupted", error="PreemptedError"))
    assert value(readings, "stage_ends_total", "interrupted") == 1
    assert "geartrain_stage_failures_total" not in readings.samples()


def test_skipped_steps_and_mismatch_are_seen_before_a_run_dies_of_them():
    skipped, off = {"kind": "skipped", "time": 1.0, "step": 1}, {"kind": "mismatch", "time": 2.0, "nats": 0.5}
    readings = told(begin(), skipped, skipped, off)
    assert value(readings, "train_skipped_steps_total") == 2
    assert value(readings, "train_mismatch_nats") == 0.5


def test_a_stage_that_is_gone_leaves_nothing_of_its_process():
    readings = told(begin(), iteration(0, kl=0.1))
    readings.lose("policy")
    assert value(readings, "train_kl_nats") is None
    assert value(readings, "stage_running") == 0
    assert value(readings, "stage_ends_total", "killed") == 1


def test_who_begins_again_without_an_end_was_killed():
    readings = told(begin(), iteration(0, kl=0.1), begin(time=300.0))
    assert value(readings, "stage_ends_total", "killed") == 1
    assert value(readings, "stage_running") == 1
    readings = told(begin(), end(), begin(time=300.0))
    assert value(readings, "stage_ends_total", "killed") is None


def test_distance_from_the_warm_start_is_told_whether_it_is_paid_for_or_not():
    assert value(told(begin(), iteration(0, kl=0.1, kl_unpaid=0.3)), "train_kl_nats") == 0.1
    assert value(told(begin(), iteration(0, kl_unpaid=0.3)), "train_kl_nats") == 0.3
    assert value(told(begin(), iteration(0, kl=0.1), iteration(1)), "train_kl_nats") is None


def test_the_run_is_in_one_metric_and_replaced_with_the_next():
    other = "99999999-2222-3333-4444-555555555555"
    readings = told(begin(), begin(run=other))
    (sample,) = readings.samples()["geartrain_stage_info"]
    assert sample.labels == ("policy", other, "d" * 64, "", "c", "gear_a")
    found = [s.labels for name, part in told(begin()).samples().items() if name != "geartrain_stage_info" for s in part]
    assert RUN not in [label for labels in found for label in labels]


def test_results_of_other_stages_are_read_from_their_ends():
    readings = told(begin(stage="preferences"), stage="preferences")
    quarantined = {"malformed_KeyError": 1, "malformed_ValueError": 2, "no_turns": 3}
    metrics = {"quarantined": quarantined, "dropped_pairs": {"tie": 4}, "records": 9, "length": {"chosen_longer": 0.5}}
    readings.tell("preferences", end(metrics=metrics))
    assert value(readings, "data_quarantined_records", "malformed", stage="preferences") == 3
    assert value(readings, "data_dropped_pairs", "tie", stage="preferences") == 4
    assert value(readings, "data_chosen_longer_ratio", stage="preferences") == 0.5
    numbers = {"test_sampled_success_before": 0.3, "ood_greedy_success_after": 0.1, "test_sampled_gain_low": 0.2}
    readings.tell("evaluation", end(metrics={**numbers, "probe_successes": 0}))
    assert value(readings, "eval_success_ratio", "test", "sampled", "before", stage="evaluation") == 0.3
    assert value(readings, "eval_gain_low_ratio", "test", "sampled", stage="evaluation") == 0.2
    assert value(readings, "reward_probe_successes", stage="evaluation") == 0
    readings.tell("promotion", end(metrics={"promoted": 1, "check_gain_low": 0}))
    assert value(readings, "gate_check_passed", "gain_low", stage="promotion") == 0
    trusted = {"trusted": True, "resistance": {"padded": {"accuracy": 0.75, "pairs": 8}}}
    readings.tell("reward_model", end(metrics=trusted))
    assert value(readings, "reward_model_trusted", stage="reward_model") == 1
    assert value(readings, "reward_canary_resistance_ratio", "padded", stage="reward_model") == 0.75


def test_an_exporter_tells_of_the_ranks_of_its_node_alone():
    ranks = [{"rank": r, "node": "ab"[r // 2], "memory_bytes": 10 * r, "cpu_seconds": 1.0 + r} for r in range(4)]
    lines = begin(), iteration(0, ranks=ranks, kl=0.1)
    leader, other = told(*lines, node="a"), told(*lines, node="b", leader=False)
    assert [sample.labels[1] for sample in leader.samples()["geartrain_rank_memory_bytes"]] == ["0", "1"]
    assert value(other, "rank_memory_bytes", "3") == 30
    assert value(other, "train_kl_nats") is None
    assert value(other, "stage_info", RUN, "d" * 64, "", "c", "gear_a") == 1
    assert value(leader, "train_kl_nats") == 0.1
    follower = told(*lines)
    assert [sample.labels[1] for sample in follower.samples()["geartrain_rank_memory_bytes"]] == ["0", "1"]


def test_a_rank_that_is_gone_is_not_told_of():
    two = [{"rank": rank, "node": "a", "memory_bytes": 1.0} for rank in range(2)]
    readings = told(begin(), iteration(0, ranks=two), begin(), iteration(1, ranks=two[:1]))
    assert [sample.labels for sample in readings.samples()["geartrain_rank_memory_bytes"]] == [("policy", "0")]


def test_a_line_that_cannot_be_read_is_counted_and_costs_nothing_else():
    readings = told(begin(), iteration(0, unscored=1), {"kind": "iteration", "time": 1.0}, {"kind": "begin"}, {})
    samples = readings.samples()
    assert samples["geartrain_exporter_errors_total"][0].value == 3
    assert value(readings, "train_unscored_total") == 1


def test_reading_while_it_is_told_never_goes_back():
    readings, seen, done = told(begin()), [], threading.Event()

    def look():
        while not done.is_set():
            seen.append(value(readings, "train_iterations_total"))

    thread = threading.Thread(target=look)
    thread.start()
    for index in range(300):
        readings.tell("policy", iteration(index))
    done.set()
    thread.join()
    assert seen == sorted(seen)
    assert value(readings, "train_iterations_total") == 300
