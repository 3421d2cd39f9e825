"""Supervised training: which sequences come when, and that a killed run ends as one that was not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from geartrain.training.batch import make_sequence
from geartrain.training.supervised import Plan, train_supervised


def model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        bos_token_id=None,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config)


SEQUENCES = [make_sequence([2, 3 + i % 8, 4, 5 + i % 5, 1], [False, True, True, True, True]) for i in range(12)]


class KilledError(Exception):
    pass


def train(net: Any, work: Path, *, matrices: float | None, stop_at: int | None = None) -> list[dict[str, float]]:
    def on_step(record: dict[str, float]) -> None:
        if record["step"] == stop_at:
            raise KilledError

    return train_supervised(
        net,
        SEQUENCES,
        Plan.make([5] * 12, epochs=2.0, batch_tokens=15, seed=3),
        learning_rate=1e-2,
        matrix_learning_rate=matrices,
        warmup=0.1,
        precision="float32",
        microbatch_tokens=10,
        checkpoint_every=2,
        work=work,
        on_step=on_step,
    )


def test_a_plan_covers_each_epoch_once_and_differs_between_epochs() -> None:
    plan = Plan.make([5] * 12, epochs=2.0, batch_tokens=15, seed=3)
    epochs = [[index for step in plan.steps[i : i + 4] for index in step] for i in (0, 4)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(12))] * 2
    assert epochs[0] != epochs[1]
    assert plan == Plan.make([5] * 12, epochs=2.0, batch_tokens=15, seed=3)


def test_a_part_of_an_epoch_is_allowed_and_none_is_nothing() -> None:
    assert len(Plan.make([5] * 12, epochs=0.5, batch_tokens=15, seed=3).steps) == 2
    assert Plan.make([5] * 12, epochs=0.0, batch_tokens=15, seed=3).steps == []


@pytest.mark.parametrize("matrices", [None, 2e-2], ids=["adamw", "muon"])
def test_two_kills_leave_no_trace(tmp_path: Path, matrices: float | None) -> None:
    whole = model()
    history = train(whole, tmp_path / "whole", matrices=matrices)
    for stop in (3, 6):
        with pytest.raises(KilledError):
            train(model(), tmp_path / "killed", matrices=matrices, stop_at=stop)
    resumed = model()
    assert train(resumed, tmp_path / "killed", matrices=matrices) == history
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    assert history[-1]["loss"] < history[0]["loss"]
