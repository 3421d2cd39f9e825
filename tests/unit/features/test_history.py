import random
from dataclasses import replace

import pyarrow as pa
import pytest
import torch

from geartrain.features import clock
from geartrain.features.history import History
from geartrain.features.statistics import MEMORY, Played
from geartrain.features.tables import CREATED, EVENT, TABLES, path_of, read_table
from tests.unit.features.conftest import ORIGIN

EPISODE = Played("t", "f", 0, False, 0.5, 0.25, 0.1, 0.1, None, 4, 100)


def group(*successes, **fields):
    return [
        replace(EPISODE, success=bool(won), progress=float(won), outcome=float(won), reward=float(won), **fields)
        for won in successes
    ]


def test_counts_add_up_and_what_is_recent_forgets():
    history = History()
    history.observe(0, group(1, 0, 0, 0))
    history.observe(3, group(1, 1))
    found = history.newest("task_history", "t")
    assert (found["attempts"], found["successes"], found["success_rate"]) == (6, 3, 0.5)
    assert found["progress"] == pytest.approx(0.5)
    assert found["recent_attempts"] == pytest.approx(MEMORY * 4 + 2)
    assert found["recent_successes"] == pytest.approx(MEMORY * 1 + 2)
    family = history.newest("prompt_history", "f")
    assert family == {f"prompt_{name}": value for name, value in found.items() if name != "progress"}


def test_rewards_have_mean_spread_and_drift():
    history = History()
    history.observe(0, group(1, 0))
    assert history.newest("task_rewards", "t") == {"reward_mean": 0.5, "reward_spread": 0.5, "reward_drift": None}
    history.observe(1, group(1, 1, policy_version=1))
    assert history.newest("task_rewards", "t") == {"reward_mean": 1.0, "reward_spread": 0.0, "reward_drift": 0.5}
    assert history.newest("policy_rewards", 1)["policy_reward_drift"] == 0.5
    history.observe(2, [replace(EPISODE, reward=None)])
    assert history.newest("task_rewards", "t")["reward_mean"] is None


def test_contrast_and_length_are_those_of_the_last_siblings():
    history = History()
    history.observe(0, group(1, 0, turns=3, tokens=30))
    assert history.newest("sibling_contrast", "t") == {"group_size": 2, "mixed": 1, "outcome_spread": 0.5}
    history.observe(1, group(1, 1, 1, turns=6, tokens=60))
    assert history.newest("sibling_contrast", "t") == {"group_size": 3, "mixed": 0, "outcome_spread": 0.0}
    assert history.newest("task_length", "t") == {"mean_turns": 6, "mean_tokens": 60}


def test_disagreement_counts_pairs_that_the_model_orders_against_the_verifier():
    judged = [(1.0, 2.0), (0.0, 1.0), (0.0, 3.0), (0.5, None)]  # pairs of the first: one right, one wrong
    history = History()
    history.observe(0, [replace(EPISODE, verified=v, learned=m) for v, m in judged])
    assert history.newest("judge_disagreement", "t") == {"comparisons": 2, "disagreement": 0.5}
    history.observe(1, group(1, 1))
    assert history.newest("judge_disagreement", "t")["comparisons"] == 2  # none compared, nothing new
    history.observe(2, [replace(EPISODE, verified=v, learned=0.0) for v in (0.0, 1.0)])
    assert history.newest("judge_disagreement", "t") == {"comparisons": 3, "disagreement": 0.5}  # a tie counts half


def test_the_order_of_episodes_changes_no_byte(tmp_path):
    episodes = [
        replace(e, task_id=f"t{i % 5}", family=f"f{i % 3}", reward=0.1 * i, progress=0.1 * (i % 7))
        for i, e in enumerate(group(*[1, 0, 1] * 10))
    ]
    for name in ("one", "other"):
        history = History()
        history.observe(0, episodes)
        history.write(tmp_path / name, ORIGIN)
        random.Random(3).shuffle(episodes)
    for table in TABLES:
        assert path_of(tmp_path / "one", table).read_bytes() == path_of(tmp_path / "other", table).read_bytes()


def test_times_are_those_of_the_clock_and_what_is_learned_is_known_at_once(tmp_path):
    history = History()
    history.observe(clock.COLLECTED, group(1, 0))
    history.observe(clock.after(0), group(1, 0))
    history.write(tmp_path, ORIGIN)
    table = read_table(path_of(tmp_path, "task_history"))
    assert table.column(EVENT).to_pylist() == [ORIGIN, ORIGIN + clock.TICK]
    assert table.column(CREATED) == table.column(EVENT)
    assert len(read_table(path_of(tmp_path, "source_history"))) == 0  # a table without rows is there too


def test_a_checkpoint_or_a_frame_goes_on_as_if_nothing_had_happened(tmp_path):
    whole, first = History(), History()
    for history in (whole, first):
        history.observe(0, group(1, 0, 0))
    torch.save(first.state_dict(), tmp_path / "state")
    resumed = History()
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    row = {"task_id": "t", "family": "f"} | first.newest("task_history", "t") | first.newest("prompt_history", "f")
    blank = {"task_id": "new", "family": "new"}
    framed = History.of_frame(pa.Table.from_pylist([row | first.newest("task_rewards", "t"), blank]))
    assert framed.newest("task_history", "new") is None
    for history in (whole, resumed, framed):
        history.observe(1, group(1, 1))
    for table, key in (("task_history", "t"), ("prompt_history", "f"), ("task_rewards", "t")):
        assert whole.newest(table, key) == resumed.newest(table, key) == framed.newest(table, key)
    tasks = [("t", "f"), ("other", "f"), ("new", "new")]
    assert whole.expected_success(tasks).tolist() == framed.expected_success(tasks).tolist()
    assert whole.expected_success(tasks)[2] == 0.5
