import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from geartrain.models.backbone import load_encoder
from geartrain.models.reward_model import RewardModel, has_fast_bfloat16
from geartrain.preferences.pairs import Pair
from geartrain.training.reward_metrics import calibrate, is_trusted, length_baseline, resistance, summarise
from geartrain.training.reward_model import Prepared, Settings, Trainer, prepare
from tests.fakes.tiny_bert import make_encoder, make_pairs

SETTINGS = Settings(
    epochs=6.0,
    learning_rate=1e-2,
    batch_pairs=4,
    train_layers=1,
    patience=100,
    margin_weight=0.0,
    seed=0,
    bfloat16=False,
)


def make_trainer(pairs: list[Pair] | None = None, **options: Any) -> tuple[RewardModel, Trainer]:
    model = RewardModel.new(*make_encoder(), max_tokens=32)
    prepared = prepare(model, make_pairs() if pairs is None else pairs)
    return model, Trainer(model, prepared, Settings(**{**vars(SETTINGS), **options}))


def weights(model: RewardModel) -> dict[str, torch.Tensor]:
    return {**model.head.state_dict(), **model.encoder.state_dict()}


def nothing(record: dict[str, float]) -> None:
    pass


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it, nothing is cleaned up."""


def kill_at(step: int) -> Callable[[dict[str, float]], None]:
    def on_step(record: dict[str, float]) -> None:
        if record["step"] == step:
            raise Killed

    return on_step


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_it_learns_what_tells_the_pairs_apart(tmp_path: Path) -> None:
    _, trainer = make_trainer()
    history = trainer.run(tmp_path, nothing)
    raw_P2 = trainer.raw("validation")
    assert (raw_P2[:, 0] > raw_P2[:, 1]).all()
    assert history[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)  # the head starts at zero
    assert history[-1]["loss"] < 0.2


def test_scores_after_training_are_those_it_was_trained_on(tmp_path: Path) -> None:
    """Chosen longer than rejected, batches of unequal lengths: what the trainer saw is what scoring says."""
    model, trainer = make_trainer()
    trainer.run(tmp_path, nothing)
    prepared = prepare(model, make_pairs())
    alone = [model.score([text])[0] for text in prepared.texts]
    expected = [[alone[e.chosen], alone[e.rejected]] for e in prepared.examples["train"]]
    torch.testing.assert_close(trainer.raw("train"), torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_only_the_head_and_the_topmost_layers_move(tmp_path: Path) -> None:
    model, trainer = make_trainer(train_layers=1)
    before = {name: value.clone() for name, value in weights(model).items()}
    trainer.run(tmp_path, nothing)
    moved = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    assert "weight" in moved
    assert {name for name in moved if name != "weight"}
    assert all(name == "weight" or name.startswith("encoder.layer.2.") for name in moved)


def test_pairs_of_weight_zero_teach_nothing(tmp_path: Path) -> None:
    pairs = make_pairs()
    lies = [Pair(**{**vars(p), "chosen": p.rejected, "rejected": p.chosen}) for p in pairs if p.split == "train"]
    model = RewardModel.new(*make_encoder(), max_tokens=32)
    prepared = prepare(model, [*pairs, *lies], [1.0] * len(pairs) + [0.0] * len(lies))
    trainer = Trainer(model, prepared, SETTINGS)
    trainer.run(tmp_path, nothing)
    raw_P2 = trainer.raw("validation")
    assert (raw_P2[:, 0] > raw_P2[:, 1]).all()


def test_with_no_layer_the_head_alone_learns(tmp_path: Path) -> None:
    model, trainer = make_trainer(train_layers=0)
    before = {name: value.clone() for name, value in weights(model).items()}
    trainer.run(tmp_path, nothing)
    assert {name for name, value in weights(model).items() if not torch.equal(value, before[name])} == {"weight"}


def test_two_runs_of_one_seed_are_equal_and_another_seed_is_another_order(tmp_path: Path) -> None:
    results = []
    for index, seed in enumerate((0, 0, 1)):
        model, trainer = make_trainer(seed=seed)
        trainer.run(tmp_path / str(index), nothing)
        results.append(weights(model)["weight"])
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize("kills", [[3], [5, 20], [0, 11, 12]])
def test_a_killed_run_goes_on_and_ends_with_the_same_bits(tmp_path: Path, kills: list[int]) -> None:
    expected_model, trainer = make_trainer()
    expected = trainer.run(tmp_path / "whole", nothing)
    for step in kills:
        _, trainer = make_trainer()
        with pytest.raises(Killed):
            trainer.run(tmp_path / "killed", kill_at(step))
    model, trainer = make_trainer()
    assert trainer.run(tmp_path / "killed", nothing) == expected
    for name, value in weights(model).items():
        assert torch.equal(value, weights(expected_model)[name]), name


def test_a_resumed_run_does_not_repeat_what_a_checkpoint_holds(tmp_path: Path) -> None:
    _, trainer = make_trainer()
    with pytest.raises(Killed):
        trainer.run(tmp_path, kill_at(11))
    files = {path.name for path in tmp_path.glob("*.pt")}
    assert [name[:9] for name in files] == ["000000009"]  # three validations an epoch of six steps: at 9, not yet at 11
    seen: list[float] = []
    _, trainer = make_trainer()
    trainer.run(tmp_path, lambda record: seen.append(record["step"]))
    assert seen == [float(i) for i in range(36)]


def test_it_stops_when_validation_no_longer_improves_and_keeps_the_best(tmp_path: Path) -> None:
    pairs = make_pairs()
    contrary = [
        Pair(**{**vars(p), "chosen": p.rejected, "rejected": p.chosen}) if p.split == "validation" else p for p in pairs
    ]
    _, trainer = make_trainer(contrary, patience=2)
    history = trainer.run(tmp_path, nothing)
    losses = [record["validation_loss"] for record in history if "validation_loss" in record]
    assert len(history) < trainer.total
    assert losses[-1] > losses[-2] > min(losses)
    raw_P2 = trainer.raw("validation")
    best = torch.nn.functional.softplus(raw_P2[:, 1] - raw_P2[:, 0]).mean().item()
    assert best == pytest.approx(min(losses), abs=1e-5)


def test_without_held_out_pairs_it_trains_to_the_end_and_is_not_trusted(tmp_path: Path) -> None:
    _, trainer = make_trainer(make_pairs(train=3, validation=0))
    history = trainer.run(tmp_path, nothing)
    assert len(history) == trainer.total == 6
    empty_02 = trainer.raw("validation")
    assert empty_02.shape == (0, 2)
    assert not is_trusted([], empty_02)
    assert calibrate(trainer.raw("train"), empty_02).temperature == 1.0
    summary = summarise(make_pairs(3, 0), [], trainer.raw("train"), empty_02)
    assert summary["validation_accuracy"] is None
    assert summary["few_pairs"] is True


def test_pairs_that_do_not_fit_or_become_equal_are_left_out_and_counted() -> None:
    model = RewardModel.new(*make_encoder(), max_tokens=16)
    (pair,) = make_pairs(train=1, validation=0)
    long_answer = Pair(**{**vars(pair), "chosen": "good\n" + "done " * 20})
    equal_once_cut = Pair(
        **{**vars(pair), "chosen": "good " + "a " * 20 + "\nx", "rejected": "bad " + "a " * 20 + "\nx"}
    )
    prepared = prepare(model, [pair, long_answer, equal_once_cut])
    assert isinstance(prepared, Prepared)
    assert (len(prepared.examples["train"]), prepared.too_long, prepared.equal_once_cut) == (1, 1, 1)


def test_both_texts_of_a_pair_begin_with_the_whole_prompt_however_much_of_either_is_cut() -> None:
    model = RewardModel.new(*make_encoder(), max_tokens=16)
    (pair,) = make_pairs(train=1, validation=0)
    unequal = Pair(**{**vars(pair), "chosen": "a " * 40 + "\ngood", "rejected": "b\nbad"})
    prepared = prepare(model, [unequal])
    (example,) = prepared.examples["train"]
    chosen, rejected = (model.tokenizer.convert_ids_to_tokens(list(tokens.ids)) for tokens in prepared.texts)
    start = ["[CLS]", *unequal.prompt.split(), "[SEP]"]
    assert chosen == [*start, *["a"] * (16 - len(start) - 2), "good", "[SEP]"]
    assert rejected == [*start, "b", "bad", "[SEP]"]
    assert (example.chosen, example.rejected) == (0, 1)


def test_each_text_is_prepared_once() -> None:
    model = RewardModel.new(*make_encoder(), max_tokens=32)
    (pair,) = make_pairs(train=1, validation=0)
    other = Pair(**{**vars(pair), "rejected": "query h ; bad\nlost"})
    assert len(prepare(model, [pair, other, pair]).texts) == 3


def test_a_margin_is_asked_for_in_proportion_to_its_weight(tmp_path: Path) -> None:
    _, trainer = make_trainer(margin_weight=4.0)
    history = trainer.run(tmp_path, nothing)
    assert history[0]["loss"] == pytest.approx(math.log(1 + math.exp(4.0)), abs=1e-5)  # zero head, margins of 1


def test_centred_rewards_have_mean_zero_and_calibration_fits_the_held_out_pairs() -> None:
    train_P2 = torch.tensor([[3.0, 1.0], [5.0, 3.0]])
    validation_P2 = torch.tensor([[4.0, 0.0]] * 9 + [[0.0, 4.0]])
    calibration = calibrate(train_P2, validation_P2)
    assert ((train_P2 - calibration.centre) / calibration.temperature).mean().item() == pytest.approx(0.0)
    assert torch.sigmoid(torch.tensor(4.0 / calibration.temperature)).item() < 0.95


@pytest.mark.parametrize(
    ("right", "wrong", "trusted"),
    [(3, 0, True), (2, 0, False), (5, 5, False), (6, 3, False), (36, 4, True), (0, 9, False)],
)
def test_trust_needs_evidence(right: int, wrong: int, trusted: bool) -> None:
    raw_P2 = torch.tensor([[1.0, 0.0]] * right + [[0.0, 1.0]] * wrong)
    assert is_trusted(make_pairs(0, right + wrong), raw_P2) is trusted


def test_many_pairs_of_one_task_are_the_evidence_of_one() -> None:
    (pair,) = make_pairs(0, 1)
    assert not is_trusted([pair] * 50, torch.tensor([[1.0, 0.0]] * 50))


def test_forged_pairs_of_held_out_tasks_are_probes_and_no_evidence(tmp_path: Path) -> None:
    forged = [replace(pair, origin="padded") for pair in make_pairs(2, 3)]
    model = RewardModel.new(*make_encoder(), max_tokens=32)
    prepared = prepare(model, [*make_pairs(4, 2), *forged])
    assert {part: len(examples) for part, examples in prepared.examples.items()} == {
        "train": 6,
        "validation": 2,
        "probes": 3,
        "files": 0,
    }
    _, trainer = make_trainer([*make_pairs(), *forged])
    trainer.run(tmp_path, nothing)
    found = resistance([e.pair for e in prepared.examples["probes"]], trainer.raw("probes"))
    assert found == {"padded": {"accuracy": 1.0, "pairs": 3}}


def test_the_length_baseline_takes_its_direction_from_training() -> None:
    def pair(chosen: str, rejected: str) -> Pair:
        return Pair("t", "f", "train", "p", chosen, rejected, 1.0, "x", "y")

    shorter, longer = pair("a", "bbb"), pair("aaa", "b")
    assert length_baseline([shorter] * 3 + [longer], [shorter, shorter, longer, pair("a", "b")]) == 0.625
    assert length_baseline([longer], [shorter]) == 0.0


def test_the_summary_says_how_many_and_for_whom() -> None:
    pairs = make_pairs(0, 4)
    raw_P2 = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    summary = summarise([], pairs, torch.empty(0, 2), raw_P2)
    assert summary["validation_accuracy"] == 0.75
    assert summary["pairs"] == {"train": 0, "forged": 0, "validation": 4}
    assert summary["validation_by_family"] == {"a": {"accuracy": 1.0, "pairs": 2}, "b": {"accuracy": 0.5, "pairs": 2}}
    assert summary["train_accuracy"] is None
    assert summary["length_baseline_accuracy"] is not None


@pytest.mark.slow
def test_the_shipped_encoder_learns_and_scores_alike_alone_and_in_bfloat16(tmp_path: Path) -> None:
    model = RewardModel.new(*load_encoder(None), max_tokens=64)
    pairs = make_pairs(16, 8)
    trainer = Trainer(model, prepare(model, pairs), Settings(**{**vars(SETTINGS), "learning_rate": 1e-4}))
    trainer.run(tmp_path / "work", nothing)
    raw_P2 = trainer.raw("validation")
    assert (raw_P2[:, 0] > raw_P2[:, 1]).all()
    model.save(tmp_path / "model")
    loaded = RewardModel.load(tmp_path / "model")
    texts = prepare(loaded, pairs).texts
    together = loaded.score(texts)
    assert together == pytest.approx([loaded.score([text])[0] for text in texts], abs=1e-4)
    if has_fast_bfloat16():
        spread = max(together) - min(together)
        assert loaded.score(texts, bfloat16=True) == pytest.approx(together, abs=0.1 * spread)
