"""A new model's planted circuit copies text it has never seen, over a whole context, at every size it is built in."""

import pytest
import torch

from geartrain.config import TinyModel
from geartrain.models.backbone import build_policy, load_policy, save_policy
from geartrain.models.induction import code_width
from geartrain.models.tokenizer import train_tokenizer

TEXTS = [f"user assistant tool system {n} {n * 7919 % 5003} word{n % 97}" for n in range(2000)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocabulary=1500)


def build(tokenizer, *, induction: bool, hidden: int = 128, heads: int = 2, layers: int = 2, seed: int = 0):
    section = TinyModel(vocabulary=1500, hidden=hidden, heads=heads, layers=layers, context=2048, induction=induction)
    return build_policy(tokenizer, section, seed)


def repeated(model, *, length: int, distance: int) -> torch.Tensor:
    """A random passage without repetition, other tokens up to `distance`, then the passage again."""
    generator = torch.Generator().manual_seed(length)
    ids = torch.randperm(model.config.vocab_size, generator=generator)
    return torch.cat([ids[:distance], ids[:length]])[None]


@torch.no_grad()
def share_copied(model, *, length: int, distance: int) -> float:
    """Return how often the likeliest next token, the current one apart, is the one that came next before."""
    ids = repeated(model, length=length, distance=distance)
    logits = model(ids).logits[0]
    logits.scatter_(1, ids[0][:, None], float("-inf"))
    return float((logits[distance:-1].argmax(-1) == ids[0, distance + 1 :]).float().mean())


@pytest.mark.parametrize(("hidden", "heads", "least"), [(128, 2, 0.9), (128, 4, 0.5), (64, 2, 0.5), (256, 4, 0.9)])
def test_copies_a_passage_it_has_never_seen(tokenizer, hidden, heads, least):
    planted = build(tokenizer, induction=True, hidden=hidden, heads=heads).model
    plain = build(tokenizer, induction=False, hidden=hidden, heads=heads).model
    assert share_copied(planted, length=100, distance=200) > least
    assert share_copied(plain, length=100, distance=200) < 0.05


def test_reaches_over_a_thousand_tokens(tokenizer):
    assert share_copied(build(tokenizer, induction=True).model, length=100, distance=1000) > 0.9


def test_heads_look_where_they_should(tokenizer):
    model = build(tokenizer, induction=True, layers=3).model
    model.set_attn_implementation("eager")
    with torch.no_grad():
        seen = model(repeated(model, length=150, distance=150), output_attentions=True).attentions
    previous, induction = seen[0][0, 0], seen[1][0, 0]
    assert previous.diagonal(-1)[5:].mean() > 0.8
    assert torch.stack([induction[t, t - 149] for t in range(151, 299)]).mean() > 0.8


def test_seed_fixes_it_and_it_survives_a_save(tokenizer, tmp_path):
    policy, again, other = (build(tokenizer, induction=True, seed=seed) for seed in (0, 0, 1))
    save_policy(policy, tmp_path / "model")
    loaded = load_policy(tmp_path / "model", context=2048).model
    weights = [model.state_dict()["model.layers.1.self_attn.q_proj.weight"] for model in (policy.model, again.model)]
    assert torch.equal(*weights)
    assert not torch.equal(weights[0], other.model.state_dict()["model.layers.1.self_attn.q_proj.weight"])
    assert share_copied(loaded, length=100, distance=200) == share_copied(policy.model, length=100, distance=200)


def test_one_layer_is_refused():
    with pytest.raises(ValueError, match="needs 2 layers"):
        TinyModel(layers=1, induction=True)


def test_code_fits_every_size():
    for hidden, heads in ((16, 1), (32, 2), (64, 2), (128, 4), (512, 8)):
        width = code_width(hidden=hidden, heads=heads)
        assert width % 2 == 0
        assert 0 < width <= min(hidden // heads // 2, hidden // 4)
