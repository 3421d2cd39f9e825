"""Drawing tokens: the right distribution, the right log-prob, the right generator."""

import numpy as np
import pytest
import torch

from geartrain.rollouts.sampler import Sampler, draw, trajectory_uniforms


def test_frequencies_match_the_tempered_distribution():
    logit_V = torch.tensor([2.0, 0.0, -1.0, 1.0, -torch.inf])
    count = 20_000
    uniform_S = torch.from_numpy((np.arange(count) + 0.5) / count)
    id_S, logprob_S, entropy_S = draw(logit_V.expand(count, 5), uniform_S, 0.7)
    expected_V = (logit_V / 0.7).softmax(-1)
    torch.testing.assert_close(id_S.bincount(minlength=5) / count, expected_V, atol=1e-4, rtol=0)
    torch.testing.assert_close(logprob_S, expected_V.log()[id_S])
    torch.testing.assert_close(entropy_S, torch.distributions.Categorical(expected_V[:4]).entropy().expand(count))


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1.0 - 2**-53])
def test_impossible_tokens_are_never_drawn(uniform):
    logit_SV = torch.full((1, 50), -torch.inf)
    logit_SV[0, [17, 23]] = 0.0
    id_S, logprob_S, entropy_S = draw(logit_SV, torch.tensor([uniform], dtype=torch.float64), 1.0)
    assert id_S.item() in (17, 23)
    assert logprob_S.item() == pytest.approx(np.log(0.5))
    assert entropy_S.item() == pytest.approx(np.log(2))


def test_greedy_takes_the_likeliest_and_reports_the_sampling_temperature():
    logit_SV = torch.tensor([[0.0, 3.0, 1.0]]).expand(2, 3)
    id_S, logprob_S, entropy_S = draw(logit_SV, torch.zeros(2, dtype=torch.float64), 2.0, torch.tensor([True, False]))
    assert id_S.tolist() == [1, 0]
    torch.testing.assert_close(logprob_S, (logit_SV / 2).log_softmax(-1)[[0, 1], [1, 0]])
    assert entropy_S[0] == entropy_S[1] > 0


def test_uniforms_depend_on_every_name_and_on_nothing_else():
    first = trajectory_uniforms(1, "g", "t", 0, 64)
    assert (trajectory_uniforms(1, "g", "t", 0, 32) == first[:32]).all()
    others = [(2, "g", "t", 0), (1, "h", "t", 0), (1, "g", "u", 0), (1, "g", "t", 1), (1, "gt", "", 0)]
    streams = [first, *(trajectory_uniforms(*names, 64) for names in others)]
    assert len({stream.tobytes() for stream in streams}) == len(streams)
    assert first.min() >= 0
    assert first.max() < 1


def test_ids_are_kept_as_sampled_where_another_spelling_decodes_equally(llama, monkeypatch):
    tokenizer, chat = llama.tokenizer, llama.chat
    merged = next(
        (text, ids)
        for text in (" total", "count", " and", " number")
        if len(ids := tokenizer.encode(text, add_special_tokens=False)) == 1
    )
    spelled = [tokenizer.convert_tokens_to_ids(c) for c in tokenizer.convert_ids_to_tokens(merged[1])[0]]
    assert len(spelled) > 1
    forced = iter([*spelled, chat.end_id])
    monkeypatch.setattr(
        "geartrain.rollouts.sampler.draw",
        lambda *_, **__: (torch.tensor([next(forced)]), torch.tensor([-1.0]), torch.tensor([0.5])),
    )
    sampler = Sampler(llama, temperature=1.0, max_new_tokens=20, rows=1, context=64, packed=True)
    sampler.begin([0], sampler.prefill([(0, [5, 6])]))
    while sampler.active.any():
        sampler.step()
    ids, *_ = sampler.message(0)
    assert ids == [*spelled, chat.end_id]
    assert chat.action_text(ids) == merged[0]
    observation = chat.observation_ids("x")
    found = sampler.prefill([(0, observation)])[0]
    with torch.inference_mode():
        wanted = llama.model(torch.tensor([[5, 6, *ids, *observation]])).logits[0, -1]
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-5)


def test_a_message_ends_at_its_end_token_at_the_limit_and_at_the_context(llama):
    sampler = Sampler(llama, temperature=1.0, max_new_tokens=6, rows=40, context=30, packed=True)
    lengths = [5 if row < 30 else 27 for row in range(40)]
    for row in range(40):
        sampler.seat(row, trajectory_uniforms(0, "g", "t", row, 30))
    ended = set(sampler.begin(range(40), sampler.prefill([(r, [7] * n) for r, n in enumerate(lengths)])).tolist())
    while sampler.active.any():
        ended |= set(sampler.step().tolist())
    assert ended == set(range(40))
    kinds = set()
    for row, length in enumerate(lengths):
        ids, logprobs, entropies = sampler.message(row)
        assert len(ids) == len(logprobs) == len(entropies)
        assert sampler.total(row) == length + len(ids) <= 30
        assert sampler.end_id not in ids[:-1]
        kinds.add("end" if ids[-1] == sampler.end_id else "limit" if len(ids) == 6 else "context")
        assert ids[-1] == sampler.end_id or len(ids) == 6 or length + len(ids) == 30
    assert kinds == {"end", "limit", "context"}
