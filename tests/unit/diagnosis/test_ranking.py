"""Which cause comes first, and what is said of it, on histories made for the purpose."""

from dataclasses import replace

import pytest

from geartrain.algorithms import validity
from geartrain.config import Config
from geartrain.diagnosis.causes import CAUSES
from geartrain.diagnosis.ranking import SIGNS, diagnose
from geartrain.diagnosis.records import Records

ITERATIONS = 12


def records(recipe="grpo", length=ITERATIONS, settings=None, outcome="complete", reason="", **changes):
    """A run that learns, but for what is changed: a name -> its value, or a function of the iteration."""
    usual = {
        "success": lambda i: 0.3 + 0.03 * i,
        "successes": 20,
        "zero_tool_share": 0.0,
        "reward": lambda i: 0.4 + 0.02 * i,
        "reward_low": 0.0,
        "reward_high": 1.0,
        "reward_outcome": 0.95,
        "advantage_reward": 0.97,
        "advantage_spread": 0.9,
        "groups": 10,
        "filtered_groups": 3,
        "groups_of_one_outcome": 4,
        "trained_trajectories": 40,
        "unscored": 0,
        "episodes": 60,
        "turns": 6.0,
        "tokens": 200.0,
        "invalid_calls": 0.1,
        "entropy": lambda i: 0.5 - 0.01 * i,
        "kl": lambda i: 0.005 * i,
        "clip_fraction": 0.01,
        "update_kl": 0.002,
        "followed": 0.01,
        "gradient_norm": 0.4,
        "learning_rate": 3e-4,
        "model_distance": lambda i: 0.002 * (i + 1),
        "model_distance_rms": lambda i: 2e-4 * (i + 1),
        "trained_share": 1.0,
        "mismatch": 1e-6,
        "skipped_steps": 0,
        "families": {name: {"tasks": 50, "held_out": 10, "episodes": 20, "success": 0.4} for name in "abc"},
    }
    usual |= {name: value for name, value in changes.items() if name not in ("policy",)}
    history = []
    for i in range(length):
        record = {"iteration": i}
        for name, value in usual.items():
            told = value(i) if callable(value) else value
            record |= {} if told is None else {name: told}
        if (i + 1) % 3 == 0 and "val" not in changes:
            record |= {"val_greedy": 0.3 + 0.03 * i, "val_sampled": 0.3 + 0.03 * i}
        history.append(record)
    if history:
        history[0] |= {"start_val_greedy": 0.3, "start_val_sampled": 0.3}
    section = {"recipe": recipe, "iterations": ITERATIONS, "minibatches": 2, "learning_rate": 3e-4}
    section |= {"gradient_clip": 0.5, "kl_coefficient": 0.1, "clip_low": 0.2, "clip_high": 0.28, **(settings or {})}
    return Records(history, {"policy": section}, outcome, reason)


def first(given):
    found = diagnose(given)
    return found.causes[0].name if found.causes else ""


def test_a_run_that_learns_is_healthy_and_says_what_was_looked_for():
    found = diagnose(records())
    assert found.healthy
    assert found.unchecked == {}
    assert SIGNS["far_steps"].means in found.checked


SICK = {
    "learning_rate_high": {
        "update_kl": lambda i: 0.8 if i > 1 else 0.01, "clip_fraction": 0.3, "kl": lambda i: 0.4 * i,
    },
    "no_kl": {
        "settings": {"kl_coefficient": 0.0}, "kl": None, "kl_unpaid": lambda i: 0.1 * i,
        "success": lambda i: 0.4 - 0.03 * i, "reward": 0.3,
    },
    "reward_scale": {"reward": 500.0, "reward_high": 1000.0},
    "masked_actions": {"trained_share": 0.4},
    "inverted_advantage": {"advantage_reward": -0.97, "success": lambda i: 0.4 - 0.03 * i},
    "equal_rewards": {"filtered_groups": 10, "trained_trajectories": 0, "advantage_reward": None, "length": 5,
                      "outcome": "failed", "reason": "5 iterations in a row without a group whose siblings differ"},
    "no_signal": {"filtered_groups": 10, "groups_of_one_outcome": 10, "success": 0.0, "length": 5},
    "reward_hacking": {"reward_outcome": 0.1, "reward": lambda i: 0.4 + 0.1 * i, "success": 0.3},
    "clipped_away": {"gradient_norm": 0.4, "settings": {"gradient_clip": 1e-7}, "model_distance_rms": 1e-9},
    "entropy_collapse": {"entropy": lambda i: 0.5 if i < 4 else 0.01},
    "failing_scorer": {"unscored": 30, "scoring_failures": {"verified.progress_out_of_range": 30}},
    "zero_tool_collapse": {"zero_tool_share": lambda i: 0.0 if i < 6 else 0.9},
    "sampler_mismatch": {"mismatch": 0.2},
    "plateau": {"success": 0.3, "reward": 0.4, "val": None},
    "tasks_solved": {"success": 0.97, "filtered_groups": 10, "groups_of_one_outcome": 10},
}  # fmt: skip


@pytest.mark.parametrize("cause", SICK)
def test_a_cause_is_known_by_its_signs(cause):
    assert first(records(**SICK[cause])) == cause


TEACHERS = {
    "same_teacher": ("gear_a", {"teacher_distance": 0.0}),
    "stale_teacher": ("gear_a", {"teacher_distance": lambda i: 0.002 * i}),
    "frozen_critic": ("sgcd_s", {"critic_distance": 0.0, "settings": {"settings": {"sgcd_s": {"critic_steps": 4}}}}),
    "useless_critic": ("sgcd_s", {"critic_correlation": 0.01, "critic_spread": 0.3}),
    "inert_weights": ("single_grain", {"weight_spread_within": 0.0}),
    "collapsed_mixture": ("gear_a", {"grain_step": 0.99, "teacher_distance": 0.001}),
    "even_mixture": ("gear_a", {"mixture_spread": 0.0, "teacher_distance": 0.001}),
    "flat_granularity": ("gear_b", {"granularity_spread": 0.0, "teacher_distance": 0.001}),
}


@pytest.mark.parametrize("cause", TEACHERS)
def test_credit_has_causes_of_its_own(cause):
    recipe, changes = TEACHERS[cause]
    assert first(records(recipe, **changes)) == cause


def test_a_family_that_is_not_played_is_named_with_its_share():
    families = {
        "a": {"tasks": 50, "held_out": 10, "episodes": 29, "success": 0.4},
        "b": {"tasks": 50, "held_out": 10, "episodes": 30, "success": 0.4},
        "lost": {"tasks": 1, "held_out": 10, "episodes": 1, "success": 0.0},
    }
    cause = diagnose(records(families=families)).causes[0]
    assert cause.name == "starved_family"
    assert "family lost: 1.7% of the episodes, 33% of the held-out tasks" in cause.evidence[0].text


def test_what_few_tasks_leave_to_chance_is_nobodys_fault():
    """The profile smoke has four tasks to train on and two to measure; its siblings all fail on those."""
    families = {
        "a": {"tasks": 4, "held_out": 1, "episodes": 60, "success": 0.4},
        "lost": {"tasks": 0, "held_out": 1, "episodes": 0, "success": None},
    }
    alike = [{"advantage": 0.0, "turns": EVEN}] * 6
    assert first(replace(records("gear_b", families=families), credit={"after": alike})) == ""


def test_a_step_that_goes_too_far_explains_the_distance_and_not_the_other_way_round():
    sick = records(
        settings={"kl_coefficient": 0.0}, kl=None, kl_unpaid=lambda i: 0.3 * i,
        update_kl=lambda i: 0.5, success=lambda i: 0.4 - 0.03 * i, reward=0.4,
    )  # fmt: skip
    found = {cause.name: cause for cause in diagnose(sick).causes}
    assert next(iter(found)) == "learning_rate_high"
    assert found["no_kl"].follows_from == "learning_rate_high"
    calm = replace(sick, history=[{**record, "update_kl": 0.002} for record in sick.history])
    assert first(calm) == "no_kl"


def test_what_came_before_is_no_effect():
    """The success is gone from iteration 3 on, the steps grow too long at 9: they are not why."""
    sick = records(success=lambda i: 0.5 if i < 2 else 0.0, update_kl=lambda i: 0.2 if i >= 9 else 0.001)
    cause = next(cause for cause in diagnose(sick).causes if cause.name == "learning_rate_high")
    assert not any("success" in sign.text for sign in cause.evidence)
    late = records(success=lambda i: 0.5 if i < 10 else 0.0, update_kl=lambda i: 0.2 if i >= 9 else 0.001)
    cause = next(cause for cause in diagnose(late).causes if cause.name == "learning_rate_high")
    assert any("success" in sign.text for sign in cause.evidence)


def test_what_is_not_recorded_is_told_and_not_guessed():
    found = diagnose(records(update_kl=None, trained_share=None))
    assert found.healthy
    assert found.unchecked == {
        SIGNS["far_steps"].means: ["update_kl"],
        SIGNS["narrow"].means: ["update_kl"],
        SIGNS["masked"].means: ["trained_share"],
    }


def test_a_record_of_nothing_is_no_exception():
    empty = Records([], {})
    assert diagnose(empty).healthy
    stopped = Records([], {}, "failed", "this run is not valid: 5 of 9 trained tokens were not sampled by the policy")
    assert first(stopped) == "masked_actions"


def test_a_setting_that_hurts_nobody_is_no_cause():
    """No KL, and a policy that is better for it: as DAPO trains."""
    assert diagnose(records(settings={"kl_coefficient": 0.0}, kl=None, kl_unpaid=lambda i: 0.1 * i)).healthy


EVERY = [*SICK.items(), *((name, {"recipe": recipe, **changes}) for name, (recipe, changes) in TEACHERS.items())]


@pytest.mark.parametrize(("cause", "changes"), EVERY, ids=[name for name, _ in EVERY])
def test_advice_is_a_key_that_exists_with_a_value_that_fits(cause, changes):
    given = records(**changes)
    advice = diagnose(given).causes[0].changes
    assert advice
    for change in advice:
        assert change.text()
        if change.key.startswith("policy."):
            Config.model_validate(_set(given.parameters, change.key.split("."), change.proposed))
            assert change.proposed != change.present


def _set(record, keys, value):
    if not keys:
        return value
    inner = record.get(keys[0], {}) if isinstance(record, dict) else {}
    return {**record, keys[0]: _set(inner, keys[1:], value)}


def test_the_learning_rate_is_divided_by_how_far_it_goes_too_far():
    change = diagnose(records(update_kl=1.0)).causes[0].changes[0]
    assert (change.key, change.present, change.proposed) == ("policy.learning_rate", 3e-4, 3e-5)


def test_every_sign_that_a_cause_names_is_one_and_every_sign_serves_a_cause():
    named = {sign for cause in CAUSES.values() for proof in cause.proofs for sign in proof}
    named |= {sign for cause in CAUSES.values() for sign in cause.shows}
    assert named == set(SIGNS)


def test_limits_that_raise_alarms_are_the_same_here():
    stopped = records(entropy=lambda i: 1.0 if i < 6 else 0.99 * validity.DECIDED)
    assert first(stopped) == "entropy_collapse"
    assert diagnose(records(entropy=lambda i: 1.0 if i < 6 else 1.01 * validity.DECIDED)).healthy


def tables_of(**sampled):
    return {"splits": {"test": {"sampled": sampled}}}


EVEN = [{"weight": 1.0}, {"weight": 1.0}]
MEASURED = {
    "harm": ("grpo", {"tables": tables_of(gain={"low": -0.2, "high": -0.05, "estimate": -0.12})}),
    "forgetting": (
        "grpo",
        {
            "tables": tables_of(
                gain={"low": 0.01, "high": 0.1, "estimate": 0.05},
                families=[{"family": "series", "before": {"low": 0.5}, "after": {"high": 0.3}}],
            )
        },
    ),
    "zero_tool_collapse": (
        "grpo",
        {"tables": tables_of(before={"zero_tool_successes": 0.0}, after={"zero_tool_successes": 0.6})},
    ),
    "inert_weights": ("gear_b", {"credit": {"after": [{"advantage": 0.5, "turns": EVEN}]}}),
}


@pytest.mark.parametrize("cause", MEASURED)
def test_what_a_finished_run_was_measured_to_be_counts(cause):
    recipe, known = MEASURED[cause]
    assert first(replace(records(recipe), **known)) == cause
    assert first(replace(records(recipe), tables={"splits": "damaged"}, credit={"after": [{"turns": 3}]})) == ""
