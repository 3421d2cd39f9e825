"""Supervised training: which sequences come when, and that a killed run ends as one that was not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from geartrain.training.batch import collate, make_sequence
from geartrain.training.supervised import Plan, negative_log_likelihood, train_supervised


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


def train(
    net: Any, work: Path, *, matrices: float | None, stop_at: int | None = None, budget: int = 10
) -> list[dict[str, float]]:
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
        microbatch_tokens=budget,
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


def test_the_split_into_micro_batches_changes_nothing_but_rounding(tmp_path: Path) -> None:
    ways = [train(model(), tmp_path / str(budget), matrices=None, budget=budget) for budget in (5, 10, 1000)]
    for way in ways[1:]:
        assert [record["loss"] for record in way] == pytest.approx([record["loss"] for record in ways[0]], rel=1e-4)
        norms = [[record["gradient_norm"] for record in run] for run in (way, ways[0])]
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)


@torch.no_grad()
def test_a_trained_token_is_judged_by_the_logits_before_it_the_first_of_an_answer_too() -> None:
    net, ids = model(), [2, 7, 4, 9, 1]
    logprob_TV = torch.log_softmax(net(torch.tensor([ids])).logits[0], -1)
    for first in range(1, 5):
        mask = [index >= first for index in range(5)]
        loss = negative_log_likelihood(net, collate([make_sequence(ids, mask)]))
        expected = -sum(float(logprob_TV[index - 1, ids[index]]) for index in range(first, 5))
        assert float(loss) == pytest.approx(expected, rel=1e-5)


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
