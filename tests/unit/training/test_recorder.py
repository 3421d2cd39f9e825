"""What a run has played is there to be looked at: whole, with its credit, at a bounded price, also after a kill."""

import os
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from geartrain import credit_table
from geartrain.algorithms.recipe import RECIPES
from geartrain.methods import settings_of
from geartrain.models.heads import CriticHead
from geartrain.rewards.mix import RewardMix
from geartrain.stages.policy import TaskWorld
from geartrain.training.credit import CreditAssigner, Critic
from geartrain.training.in_flight import InFlight
from geartrain.training.lesson import Lesson, Pooled
from geartrain.training.policy import PolicyTrainer
from geartrain.training.recorder import Recorder, _least_wanted
from tests.fakes.parity import Parity, ParityPlayers, make_config, make_policy, make_tasks
from tests.fakes.synthetic import REWARDS, episodes, lesson_of


class Killed(BaseException):
    pass


class FragileWorld(TaskWorld):
    """Dies when it is asked to validate after some iterations: what they played has been trained on by then."""

    deaths: tuple[int, ...] = ()
    played: Counter

    def play(self, policy, iteration, refill=0):
        self.played[iteration] += 1
        return super().play(policy, iteration, refill)

    def validate(self, policy):
        if max(self.played, default=-1) in self.deaths:
            raise Killed
        return super().validate(policy)


def _trainer(work, folder, recipe="gear_a", deaths=(), megabytes=10, **policy):
    config, model = make_config(iterations=3, validate_every=1, **policy), make_policy()
    torch.manual_seed(11)
    assigner = CreditAssigner(
        RECIPES[recipe],
        settings_of(recipe, {}),
        critic=Critic(CriticHead(model.model.config.hidden_size, hidden=8).eval(), 0.7, None),
        width=model.model.config.hidden_size,
        iterations=3,
        seed=0,
    )
    rewards = RewardMix(model.tokenizer, model_weight=0.0, invalid_call_reward=-0.1, learned=None)
    world = FragileWorld(
        ParityPlayers(config), make_tasks(7), make_tasks(4, "val"), rewards, config, Parity(), model.chat
    )
    object.__setattr__(world, "deaths", deaths)
    object.__setattr__(world, "played", Counter())
    recorder = Recorder(folder, megabytes=megabytes, grains=tuple(RECIPES[recipe].grains))
    return PolicyTrainer(model, assigner, world, config.policy, context=256, seed=0, work=work, recorder=recorder)


@pytest.mark.parametrize("recipe", ["grpo", "gear_a"])
def test_every_episode_is_there_with_the_credit_that_it_was_trained_by(tmp_path, recipe):
    folder = tmp_path / "episodes"
    history = _trainer(tmp_path / "work", folder, recipe).run()
    assert credit_table.recorded(folder) == [0, 1, 2]
    for record in history:
        rows = pq.read_table(credit_table.credit_path(folder, record["iteration"])).to_pylist()
        assert len(rows) == record["episodes"] == 12
        assert sum(row["advantage"] is not None for row in rows) == record["trained_trajectories"]
        assert sum(row["reward"] for row in rows) / len(rows) == pytest.approx(record["reward"])
        for place, row in enumerate(rows):
            opened = credit_table.open_episode(folder, record["iteration"], place)
            assert opened.trajectory.task_id == row["task_id"]
            assert opened.trajectory.sibling == row["sibling"]
            assert opened.row["rewards"] == {"verified": pytest.approx(row["reward"])}
            assert len(opened.trajectory.turns) == len(row["steps"]) == row["turns"]
            for step in row["steps"]:
                if row["advantage"] is None:
                    assert step["weight"] is None
                    continue
                assert step["credit"] == pytest.approx(row["advantage"] * step["weight"], rel=1e-4)
                assert (step["weight"] == 1.0) or recipe != "grpo"
                assert (step["grains"] is None) is (not RECIPES[recipe].grains)
        assert opened.grains == list(RECIPES[recipe].grains)


def test_an_iteration_that_is_done_again_replaces_its_files_and_costs_no_second_play(tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    _trainer(tmp_path / "a", whole).run()
    with pytest.raises(Killed):
        _trainer(tmp_path / "b", folder, deaths=(1,)).run()
    assert credit_table.recorded(folder) == [0, 1], "what it died in is there"
    resumed = _trainer(tmp_path / "b", folder)
    resumed.run()
    assert resumed.world.played == {2: 1}
    assert _contents(folder) == _contents(whole)


def test_a_run_that_dies_in_its_training_leaves_what_it_died_of(tmp_path):
    trainer = _trainer(tmp_path / "work", tmp_path / "episodes")

    def diverge(*arguments, **options):
        raise ArithmeticError("not finite")

    trainer._step = SimpleNamespace(run=diverge)
    with pytest.raises(ArithmeticError):
        trainer.run()
    (row, *_) = [row for row in _rows(tmp_path / "episodes", 0) if row["advantage"] is not None]
    assert row["steps"][0]["weight"] is not None


def test_rounds_that_were_played_to_refill_a_batch_are_told_apart(tmp_path):
    played = episodes()
    flight = InFlight(tmp_path / "work")
    flight.write(3, 0, played[:4])
    flight.write(3, 1, played[4:])
    lesson = lesson_of("grpo", played)
    recorder = Recorder(tmp_path / "episodes", megabytes=1)
    recorder.write(3, flight.rounds(3), Pooled(REWARDS, played, Counter()), lesson)
    flight.forget(but=4)
    assert [(row["round"], row["row"]) for row in _rows(tmp_path / "episodes", 3)] == [
        (number, row) for number in (0, 1) for row in range(4)
    ]
    opened = credit_table.open_episode(tmp_path / "episodes", 3, 5)
    assert opened.trajectory.turns[0].action_ids == played[5].turns[0].action_ids
    assert credit_table.open_episode(tmp_path / "episodes", 3, 8) is None


def test_what_was_not_trained_on_has_no_credit(tmp_path):
    played = episodes()
    flight = InFlight(tmp_path / "work")
    flight.write(0, 0, played)
    empty = Lesson([], torch.zeros(0), torch.zeros(0), 2, 0)
    Recorder(tmp_path / "e", megabytes=1).write(0, flight.rounds(0), Pooled(REWARDS, played, Counter()), empty)
    assert {row["advantage"] for row in _rows(tmp_path / "e", 0)} == {None}


def test_past_its_room_every_second_iteration_goes_the_oldest_first(tmp_path):
    folder, flight = tmp_path / "episodes", InFlight(tmp_path / "work")
    played = episodes()
    recorder = Recorder(folder, megabytes=1)
    size = None
    for iteration in range(24):
        flight.write(iteration, 0, played)
        recorder._room = recorder._room if size is None else 8 * size
        recorder.write(
            iteration, flight.rounds(iteration), Pooled(REWARDS, played, Counter()), lesson_of("grpo", played)
        )
        size = size or sum(path.stat().st_size for path in folder.iterdir())
        left = credit_table.recorded(folder)
        assert iteration in left
        assert len(left) <= 9
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 8 * size
    assert {path.name[:9] for path in folder.iterdir()} == {f"{iteration:09d}" for iteration in left}
    assert left[0] == 0
    gaps = [second - first for first, second in pairwise(left)]
    assert gaps == sorted(gaps, reverse=True), "the newest lie closest together"


def test_what_earlier_runs_have_recorded_goes_before_anything_of_this_one(tmp_path):
    earlier = []
    for age, name in enumerate(("older", "old")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "000000000.credit.parquet").write_bytes(b"0" * 600_000)
        os.utime(folder, (1e9 + age, 1e9 + age))
        earlier.insert(0, folder)
    flight, played = InFlight(tmp_path / "work"), episodes()
    flight.write(0, 0, played)
    recorder = Recorder(tmp_path / "own", megabytes=1, earlier=earlier)
    recorder.write(0, flight.rounds(0), Pooled(REWARDS, played, Counter()), lesson_of("grpo", played))
    assert [folder.exists() for folder in earlier] == [True, False]
    assert credit_table.recorded(tmp_path / "own") == [0]


def test_all_iterations_may_go_at_last():
    assert list(_least_wanted([0, 1, 2, 3, 4, 5], newest=5)) == [1, 3, 2, 4, 0]
    assert list(_least_wanted([7], newest=7)) == []


def test_a_record_that_cannot_be_written_is_no_reason_to_stop(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    history = _trainer(tmp_path / "work", tmp_path / "file" / "episodes").run()
    assert len(history) == 3
    assert capsys.readouterr().err.count("episodes are not recorded any more") == 1


def test_none_is_written_where_none_is_wanted(tmp_path):
    _trainer(tmp_path / "work", tmp_path / "episodes", megabytes=0).run()
    assert not (tmp_path / "episodes").exists()


def test_a_credit_file_that_was_cut_short_is_no_episode(tmp_path):
    path = credit_table.credit_path(tmp_path, 0)
    credit_table.write_credit(tmp_path, 0, [], [])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises((OSError, pa.ArrowInvalid)):
        credit_table.open_episode(tmp_path, 0, 0)


def _rows(folder, iteration):
    return pq.read_table(credit_table.credit_path(folder, iteration)).to_pylist()


def _contents(folder):
    return {path.name: pq.read_table(path).to_pylist() for path in folder.iterdir()}
