"""A suite plays everything once, with equal seeds, and resumes where it was killed."""

import pytest

from geartrain.config import EvaluationSection
from geartrain.errors import UserError
from geartrain.rollouts.collect import Limits
from geartrain.rollouts.suite import DECODINGS, Suite, play_suite, write_episodes
from geartrain.trajectory import read_trajectories
from tests.fakes.errand import Errand, Player, make_tasks


def make_suite(chunk=7, **counts):
    tasks = {split: make_tasks(count, split) for split, count in (counts or {"test": 5, "ood": 3}).items()}
    section = EvaluationSection(samples=2, chunk_episodes=chunk)
    return Suite(Errand(), tasks, section, limits=Limits(64, 9), seed=11)


def test_every_task_is_played_once_greedily_and_samples_times(tmp_path):
    suite = make_suite()
    seen = []
    episodes = play_suite(suite, lambda: 0.7, work=tmp_path, label="after", on_episode=seen.append, play=Player())
    assert set(episodes) == {(split, decoding) for split in ("test", "ood") for decoding in DECODINGS}
    assert [(t.task_id, t.sibling) for t in episodes["ood", "sampled"]] == [
        (f"ood-{i:03d}", sibling) for i in range(3) for sibling in range(2)
    ]
    assert len(episodes["test", "greedy"]) == 5
    assert sum(seen) == suite.episodes == 24


def test_both_models_get_the_same_requests_and_seed(tmp_path):
    suite, first, second = make_suite(), Player(), Player()
    before = play_suite(suite, lambda: 0.7, work=tmp_path, label="before", play=first)
    after = play_suite(suite, lambda: 0.7, work=tmp_path, label="after", play=second)
    assert first.calls == second.calls
    assert before == after


def test_long_tasks_start_first_so_that_rows_do_not_idle(tmp_path):
    player = Player()
    play_suite(make_suite(chunk=100), lambda: 0.7, work=tmp_path, label="x", play=player)
    assert [name for name, _, greedy in player.calls[0] if greedy] == [
        *("test-001", "test-003", "ood-001"),
        *("test-000", "test-002", "test-004", "ood-000", "ood-002"),
    ]


def test_a_killed_run_plays_only_the_unfinished_chunks_and_ends_equal(tmp_path):
    class Killed(Player):
        def __call__(self, *args, **options):
            if len(self.calls) == 2:
                raise KeyboardInterrupt
            return super().__call__(*args, **options)

    suite, again = make_suite(), Player()
    with pytest.raises(KeyboardInterrupt):
        play_suite(suite, lambda: 0.7, work=tmp_path / "killed", label="x", play=Killed())
    seen = []
    resumed = play_suite(suite, lambda: 0.7, work=tmp_path / "killed", label="x", on_episode=seen.append, play=again)
    whole = Player()
    assert resumed == play_suite(suite, lambda: 0.7, work=tmp_path / "whole", label="x", play=whole)
    assert again.calls == whole.calls[2:]
    assert sum(seen) == suite.episodes


def test_the_model_is_loaded_once_and_only_if_something_is_left(tmp_path):
    loads = []
    play_suite(make_suite(), lambda: loads.append(1) or 0.7, work=tmp_path, label="x", play=Player())
    play_suite(make_suite(), lambda: loads.append(2) or 0.7, work=tmp_path, label="x", play=Player())
    assert loads == [1]


def test_a_half_written_chunk_is_played_again(tmp_path):
    suite, player = make_suite(), Player()
    (tmp_path / "x-000000.1.half").write_bytes(b"torn")
    play_suite(suite, lambda: 0.7, work=tmp_path, label="x", play=player)
    assert len(player.calls) == 4
    assert len(list(tmp_path.glob("*.parquet"))) == 4


def test_an_id_in_two_splits_is_refused():
    tasks = make_tasks(2)
    with pytest.raises(UserError, match="'test-000' is in two splits"):
        Suite(Errand(), {"test": tasks, "ood": tasks[:1]}, EvaluationSection(), limits=Limits(64, 9), seed=0)


def test_episodes_are_written_by_split_and_decoding(tmp_path):
    episodes = play_suite(make_suite(), lambda: 0.7, work=tmp_path / "work", label="x", play=Player())
    write_episodes(tmp_path / "episodes", "after", episodes)
    names = sorted(path.name for path in (tmp_path / "episodes").iterdir())
    assert names == [f"after_{split}_{decoding}.parquet" for split in ("ood", "test") for decoding in DECODINGS]
    path = tmp_path / "episodes" / "after_test_sampled.parquet"
    assert list(read_trajectories(path)) == episodes["test", "sampled"]
