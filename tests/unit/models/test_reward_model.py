import pytest
import torch

from geartrain.errors import UserError
from geartrain.models.reward_model import Calibration, RewardModel, TextTooLongError
from tests.fakes.tiny_bert import make_encoder

TEXTS = [
    ("report revenue", "query a ; query b", "report = a ; done"),
    ("report revenue", "", "lost"),
    ("report orders january", "query a ; error ; query b ; query c ; query d ; query e", "report = good ; done"),
]


def build(*, max_tokens: int = 32, pad_is_sep: bool = False) -> RewardModel:
    model = RewardModel.new(*make_encoder(pad_is_sep=pad_is_sep), max_tokens=max_tokens)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        torch.nn.init.normal_(model.head.weight)
    model.calibration = Calibration(0.25, 2.0)
    return model


@pytest.mark.parametrize("pad_is_sep", [False, True])
def test_a_text_scores_the_same_alone_and_in_a_batch_of_other_lengths(pad_is_sep: bool) -> None:
    model = build(pad_is_sep=pad_is_sep)
    texts = [model.tokens(*text) for text in TEXTS]
    together = model.score(texts)
    assert together == pytest.approx([model.score([text])[0] for text in texts], abs=1e-5)
    assert len(set(together)) == len(TEXTS)
    assert model.score(texts[::-1]) == pytest.approx(together[::-1], abs=1e-5)


@pytest.mark.parametrize("pad_is_sep", [False, True])
def test_padding_on_the_left_changes_nothing(pad_is_sep: bool) -> None:
    model = build(pad_is_sep=pad_is_sep)
    texts = [model.tokens(*text) for text in TEXTS]
    with torch.inference_mode():
        right_B, left_B = (model.upper(*model.lower(texts, 1, left_padding=left), 1) for left in (False, True))
    torch.testing.assert_close(left_B, right_B, atol=1e-5, rtol=1e-5)


def test_the_cut_into_lower_and_upper_layers_does_not_matter() -> None:
    model = build()
    texts = [model.tokens(*text) for text in TEXTS]
    with torch.inference_mode():
        raw = [model.upper(*model.lower(texts, cut), cut) for cut in range(4)]
        attention_BT = torch.ones(1, len(texts[0]), dtype=torch.long)
        inputs = {"input_ids": torch.tensor([texts[0].ids]), "token_type_ids": torch.tensor([texts[0].segments])}
        whole = model.encoder(**inputs, attention_mask=attention_BT).last_hidden_state.mean(1)
        as_the_library_does = 16.0 * (whole @ model.head.weight.T)[:, 0]
    for raw_B in raw[1:]:
        torch.testing.assert_close(raw_B, raw[0])
    torch.testing.assert_close(raw[0][:1], as_the_library_does)


def test_steps_are_cut_from_the_left_and_task_and_answer_never() -> None:
    model = build(max_tokens=16)
    task, steps, answer = "report orders january", "a b c d e f g h", "report = good ; done"
    tokens = model.tokens(task, steps, answer)
    assert len(tokens) == 16
    words = model.tokenizer.convert_ids_to_tokens(list(tokens.ids))
    assert words == ["[CLS]", *task.split(), "[SEP]", "d", "e", "f", "g", "h", *answer.split(), "[SEP]"]
    assert tokens.segments == (0,) * 5 + (1,) * 11


def test_a_text_whose_answer_would_be_cut_is_refused() -> None:
    model = build(max_tokens=16)
    assert len(model.tokens("a b c", "", " ".join("d" * 10))) == 16
    with pytest.raises(TextTooLongError, match="17 of 16"):
        model.tokens("a b c", "", " ".join("d" * 11))


def test_a_new_model_has_one_output_and_two_constructions_are_equal() -> None:
    first, second = (RewardModel.new(*make_encoder(), max_tokens=32) for _ in range(2))
    assert first.head.out_features == 1
    assert torch.equal(first.head.weight, second.head.weight)


def test_loading_gives_back_the_same_scores_and_the_same_bytes(tmp_path) -> None:
    model = build()
    model.trusted = True
    texts = [model.tokens(*text) for text in TEXTS]
    model.save(tmp_path / "first")
    loaded = RewardModel.load(tmp_path / "first")
    assert loaded.score([loaded.tokens(*text) for text in TEXTS]) == model.score(texts)
    assert (loaded.trusted, loaded.max_tokens, loaded.calibration) == (True, 32, model.calibration)
    loaded.save(tmp_path / "second")
    for path in (tmp_path / "first").rglob("*.*"):
        again = tmp_path / "second" / path.relative_to(tmp_path / "first")
        assert again.read_bytes() == path.read_bytes(), path.name
        assert str(tmp_path).encode() not in path.read_bytes(), f"{path.name} names a folder of this machine"


@pytest.mark.parametrize("damage", ["reward_model.json", "head.safetensors", "encoder/config.json"])
def test_an_incomplete_folder_is_an_error_for_people(tmp_path, damage: str) -> None:
    build().save(tmp_path)
    (tmp_path / damage).unlink()
    with pytest.raises(UserError):
        RewardModel.load(tmp_path)


def test_a_longer_limit_than_the_encoder_reads_is_refused() -> None:
    with pytest.raises(UserError, match="64 tokens"):
        RewardModel.new(*make_encoder(positions=64), max_tokens=65)
    with pytest.raises(UserError, match="BERT layout"):
        RewardModel.new(torch.nn.Linear(2, 2), None, max_tokens=8)
