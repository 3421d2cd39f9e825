"""Tables over episodes: rows are tasks, columns are samples, and nothing may be missing."""

import pytest

from geartrain.rollouts.comparison import (
    compare_families,
    compare_models,
    count_subgoals,
    describe_model,
    outcome_table,
)
from tests.fakes.errand import Errand, make_tasks, play_one

OPTIONS = {"confidence": 0.95, "resamples": 300, "seed": 0}
TASKS = make_tasks(24)


def episodes(skill, siblings=2, tasks=TASKS):
    return [play_one(Errand(), skill, task, sibling) for task in tasks for sibling in range(siblings)]


def test_outcomes_are_found_whatever_the_order_of_the_episodes():
    played = episodes(0.7)
    table = outcome_table(list(reversed(played)), TASKS)
    assert table.tolist() == outcome_table(played, TASKS).tolist()
    assert table.shape == (24, 2)
    assert table[3, 1] == next(t.success for t in played if (t.task_id, t.sibling) == (TASKS[3].task_id, 1))


@pytest.mark.parametrize("spoil", [lambda e: e[1:], lambda e: [*e, e[0]], lambda e: e[:-1]])
def test_missing_and_repeated_episodes_are_refused(spoil):
    with pytest.raises(ValueError, match=r"comes twice|same siblings"):
        outcome_table(spoil(episodes(0.7)), TASKS)


def test_episode_of_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="unknown"):
        outcome_table(episodes(0.7), TASKS[:-1])


def test_description_holds_rate_interval_and_both_pass_estimates():
    played = episodes(0.7)
    found = describe_model(played, TASKS, count_subgoals(Errand(), TASKS, seed=0), **OPTIONS)
    mean = sum(t.success for t in played) / len(played)
    assert found["success"]["estimate"] == pytest.approx(mean, abs=1e-6)
    assert found["pass_at_k"]["1"] == found["pass_hat_k"]["1"] == pytest.approx(mean, abs=1e-6)
    assert found["pass_at_k"]["2"] > mean > found["pass_hat_k"]["2"]
    assert (found["tasks"], found["episodes"]) == (24, 48)


def test_better_player_shows_a_gain_and_noise_does_not():
    better = compare_models(episodes(0.3), episodes(0.95), TASKS, **OPTIONS)
    assert better["low"] > 0
    assert better["p_value"] < 0.01
    assert "mcnemar_p_value" not in better
    same = compare_models(episodes(0.6), episodes(0.6), TASKS, **OPTIONS)
    assert same["low"] < 0 < same["high"]
    assert same["p_value"] == 1.0


def test_one_episode_per_task_gets_the_exact_test_too():
    found = compare_models(episodes(0.2, 1), episodes(0.99, 1), TASKS, **OPTIONS)
    assert found["mcnemar_p_value"] < 0.01


def test_families_are_counted_apart():
    rows = compare_families(episodes(0.5), episodes(1.0), TASKS, **OPTIONS)
    assert [(row["family"], row["tasks"], row["after"]["estimate"]) for row in rows] == [
        ("long", 12, 1.0),
        ("short", 12, 1.0),
    ]
    assert rows[0]["before"]["estimate"] < 1.0


def test_subgoals_are_counted_by_the_verifier_and_episodes_closed():
    environment = Errand()
    assert set(count_subgoals(environment, TASKS, seed=0).values()) == {2, 3}
    assert all(episode.closed for episode in environment.opened)
