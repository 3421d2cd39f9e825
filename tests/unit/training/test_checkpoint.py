import pickle
import random

import numpy as np
import pytest
import torch

from geartrain.training.checkpoint import load_checkpoint, restore_rng_state, rng_state, save_checkpoint
from geartrain.training.engine import Engine


def test_the_newest_checkpoint_replaces_the_older_one(tmp_path):
    assert load_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, {"step": 1, "weight": torch.ones(2)}, step=1)
    save_checkpoint(tmp_path, {"step": 2, "weight": torch.zeros(2)}, step=2)
    state = load_checkpoint(tmp_path)
    assert state is not None
    assert state["step"] == 2
    assert state["weight"].tolist() == [0.0, 0.0]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_torn_checkpoint_gives_way_to_the_one_before_it(tmp_path):
    first = save_checkpoint(tmp_path, {"step": 1}, step=1)
    kept = first.read_bytes()
    second = save_checkpoint(tmp_path, {"step": 2}, step=2)
    first.write_bytes(kept)  # as after a kill between the rename and the removal of the old one
    second.write_bytes(second.read_bytes()[:-7])
    state = load_checkpoint(tmp_path)
    assert state is not None
    assert state["step"] == 1


def test_a_half_written_file_is_ignored_and_swept_up(tmp_path):
    (tmp_path / ".000000009.77.tmp").write_bytes(b"half")
    assert load_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, {"step": 1}, step=1)
    assert [path.suffix for path in tmp_path.iterdir()] == [".pt"]


def test_generators_continue_where_they_were():
    state = rng_state()
    drawn = (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random())
    restore_rng_state(state)
    assert drawn == (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random())


class _Run:
    """Regression on drawn data; a class so that a run can be dropped and rebuilt like a killed process."""

    def __init__(self, folder):
        torch.manual_seed(0)
        self.folder = folder
        self.model = torch.nn.Linear(4, 1)
        self.engine = Engine(
            self.model.parameters(), learning_rate=0.05, total_steps=9, warmup_steps=3, schedule="cosine"
        )
        state = load_checkpoint(folder)
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.engine.load_state_dict(state["engine"])
            restore_rng_state(state["rng"])

    def play(self, until):
        history = []
        while self.engine.steps < until:
            x_BH = torch.rand(8, 4)
            history.append(self.engine.update([(self.model(x_BH) - x_BH.sum(-1, keepdim=True)).square().mean()]))
            state = {"model": self.model.state_dict(), "engine": self.engine.state_dict(), "rng": rng_state()}
            save_checkpoint(self.folder, state, step=self.engine.steps)
        return history


def test_two_interruptions_change_nothing(tmp_path):
    whole = _Run(tmp_path / "whole")
    expected = whole.play(9)
    parts = []
    for until in (2, 5, 9):
        interrupted = _Run(tmp_path / "parts")
        parts += interrupted.play(until)
    assert parts == expected
    assert torch.equal(interrupted.model.weight, whole.model.weight)


class _Payload:
    def __reduce__(self):
        return (open, ("owned", "w"))


def test_a_checkpoint_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_checkpoint(tmp_path / "checkpoints", {"step": _Payload()}, step=1)
    with pytest.raises(pickle.UnpicklingError):
        load_checkpoint(tmp_path / "checkpoints")
    assert not (tmp_path / "owned").exists()
