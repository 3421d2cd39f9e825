"""Log-probs: the same alone, in a batch, padded left or right, in chunks; with the right temperature and gradient."""

import copy

import pytest
import torch
import transformers

from geartrain.models.scoring import token_logprobs

V = 96


def llama(**options):
    settings = {"num_key_value_heads": 2, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=V, hidden_size=32, eos_token_id=2, bos_token_id=1, **settings, **options)
    )


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=2, bos_token_id=1
        )
    )


def capped():
    return transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(
            vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, final_logit_softcapping=0.5, attn_implementation="eager",
        )
    )  # fmt: skip


MODELS = {"llama": llama, "gpt2": gpt2, "soft-capped": capped}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(0)
    made = MODELS[request.param]().eval()
    with torch.no_grad():
        made.get_input_embeddings().weight.mul_(8)
    return made


def rows(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(V, (length,), generator=generator) for length in (11, 3, 17, 1)]


def batch(sequences: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, sequences)) + 2
    ids_BT, attention_BT = torch.randint(V, (len(sequences), width)), torch.zeros(len(sequences), width)
    for row, ids in enumerate(sequences):
        where = slice(0, len(ids)) if side == "right" else slice(width - len(ids), width)
        ids_BT[row, where], attention_BT[row, where] = ids, 1
    return ids_BT, attention_BT


def alone(model, ids_T: torch.Tensor, temperature: float) -> torch.Tensor:
    logprob_TV = torch.log_softmax(model(ids_T[None]).logits[0].float() / temperature, -1)
    scores_T = torch.zeros(len(ids_T))
    scores_T[1:] = logprob_TV[:-1].gather(-1, ids_T[1:, None])[:, 0]
    return scores_T


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
@torch.no_grad()
def test_padding_and_batch_change_nothing(model, side, temperature):
    ids_BT, attention_BT = batch(rows(), side)
    found_BT = token_logprobs(model, ids_BT, attention_BT, temperature=temperature).logprob_BT
    for row, ids_T in enumerate(rows()):
        seen = attention_BT[row].bool()
        torch.testing.assert_close(found_BT[row][seen], alone(model, ids_T, temperature), atol=1e-5, rtol=0)
        assert (found_BT[row][~seen] == 0).all()


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_values_are_never_read(model, side):
    ids_BT, attention_BT = batch(rows(), side)
    before = token_logprobs(model, ids_BT, attention_BT, temperature=1.0, want_hidden=True)
    other_BT = torch.where(attention_BT.bool(), ids_BT, (ids_BT + 7) % V)
    after = token_logprobs(model, other_BT, attention_BT, temperature=1.0, want_hidden=True)
    torch.testing.assert_close(before.logprob_BT, after.logprob_BT, atol=1e-6, rtol=0)
    torch.testing.assert_close(before.hidden_BTH[attention_BT.bool()], after.hidden_BTH[attention_BT.bool()])


def test_chunks_give_the_same_values_and_gradients(model):
    ids_BT, attention_BT = batch(rows(), "right")
    results = []
    for chunk in (None, 5, 1):
        model.zero_grad()
        scores = token_logprobs(model, ids_BT, attention_BT, temperature=0.8, chunk_tokens=chunk, want_entropy=True)
        scores.logprob_BT.square().sum().backward()
        grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        results.append((scores.logprob_BT.detach(), scores.entropy_BT, *grads))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_entropy_is_that_of_the_distribution_the_token_was_drawn_from(model):
    ids_BT, attention_BT = batch(rows(), "right")
    scores = token_logprobs(model, ids_BT, attention_BT, temperature=0.7, want_entropy=True)
    logit_TV = model(ids_BT[:1, :11]).logits[0].float() / 0.7
    expected_T = torch.distributions.Categorical(logits=logit_TV).entropy()
    torch.testing.assert_close(scores.entropy_BT[0, 1:11], expected_T[:-1], atol=1e-5, rtol=1e-5)
    assert scores.entropy_BT[0, 0] == 0


def moved(model, spread=0.3):
    """A copy that says something else."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for index, weight in enumerate(other.parameters()):
            weight.add_(spread * torch.randn(weight.shape, generator=torch.Generator().manual_seed(index)))
    return other


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_divergence_from_a_reference_is_that_of_whole_distributions(model, side):
    reference = moved(model)
    ids_BT, attention_BT = batch(rows(), side)
    where_BT = torch.rand(ids_BT.shape) < 0.7
    scores = token_logprobs(
        model, ids_BT, attention_BT, temperature=0.7, where_BT=where_BT, reference=reference, chunk_tokens=3
    )
    total = 0.0
    for row, ids_T in enumerate(rows()):
        kept_T = where_BT[row][attention_BT[row].bool()]
        kept_T[0] = False
        own, other = (
            torch.distributions.Categorical(logits=m(ids_T[None]).logits[0] / 0.7) for m in (model, reference)
        )
        exact_T = torch.distributions.kl_divergence(own, other).roll(1)  # position t: what t was drawn from
        found_T = scores.kl_BT[row][attention_BT[row].bool()]
        torch.testing.assert_close(found_T[kept_T], exact_T[kept_T], atol=1e-5, rtol=1e-4)
        assert (found_T[~kept_T] == 0).all()
        total = total + exact_T[kept_T].sum()
    assert float(total.detach()) > 0.1
    weights = list(model.parameters())
    for found, expected in zip(
        torch.autograd.grad(scores.kl_BT.sum(), weights), torch.autograd.grad(total, weights), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_a_reference_changes_nothing_else_and_gets_no_gradient(model):
    reference = moved(model)
    ids_BT, attention_BT = batch(rows(), "right")
    alone_BT = token_logprobs(model, ids_BT, attention_BT, temperature=0.8)
    beside = token_logprobs(model, ids_BT, attention_BT, temperature=0.8, reference=reference)
    assert alone_BT.kl_BT is None
    assert torch.equal(alone_BT.logprob_BT, beside.logprob_BT)
    beside.kl_BT.sum().backward()
    assert all(weight.grad is None for weight in reference.parameters())
    itself = token_logprobs(model, ids_BT, attention_BT, temperature=0.8, reference=model).kl_BT
    assert itself.abs().max() < 1e-6


def test_only_asked_positions_are_scored_and_all_others_are_zero(model):
    ids_BT, attention_BT = batch(rows(), "right")
    where_BT = torch.rand(ids_BT.shape) < 0.4
    all_BT = token_logprobs(model, ids_BT, attention_BT, temperature=1.0).logprob_BT
    some_BT = token_logprobs(model, ids_BT, attention_BT, temperature=1.0, where_BT=where_BT).logprob_BT
    torch.testing.assert_close(some_BT, torch.where(where_BT, all_BT, 0.0))
    none_BT = token_logprobs(model, ids_BT, attention_BT, temperature=1.0, where_BT=torch.zeros_like(where_BT))
    none_BT.logprob_BT.sum().backward()
    assert (none_BT.logprob_BT == 0).all()


def test_hidden_state_carries_gradient(model):
    ids_BT, attention_BT = batch(rows(), "right")
    scores = token_logprobs(model, ids_BT, attention_BT, temperature=1.0, want_hidden=True)
    assert scores.hidden_BTH.shape == (*ids_BT.shape, 32)
    scores.hidden_BTH.sum().backward()
    assert model.get_input_embeddings().weight.grad.abs().sum() > 0


def test_changed_weights_change_log_probs(model):
    ids_BT, attention_BT = batch(rows(), "right")
    before = token_logprobs(model, ids_BT, attention_BT, temperature=1.0).logprob_BT.detach().clone()
    with torch.no_grad():
        model.get_input_embeddings().weight.add_(torch.randn_like(model.get_input_embeddings().weight))
    assert not torch.allclose(before, token_logprobs(model, ids_BT, attention_BT, temperature=1.0).logprob_BT)
