from dataclasses import replace

import pytest
import torch

from geartrain.errors import UserError
from geartrain.rollouts.collect import EpisodeRequest, Limits, play
from geartrain.schema import SamplingSection
from geartrain.training.features import TextEncoder, frozen_pass, sequence_of
from tests.fakes.parity import TURNS, Parity, make_policy, make_tasks
from tests.fakes.tiny_bert import save_encoder


@pytest.fixture(scope="module")
def policy():
    return make_policy()


@pytest.fixture(scope="module")
def trajectories(policy):
    return play(
        Parity(),
        policy,
        [EpisodeRequest(task, sibling, task.task_id) for task in make_tasks(2) for sibling in range(3)],
        sampling=SamplingSection(temperature=0.7, max_new_tokens=6, rows=4),
        limits=Limits(256, TURNS),
        seed=0,
        policy_version=0,
    )


@pytest.mark.parametrize("budget", [1, 100, 10_000])
def test_on_policy_the_pass_returns_the_samplers_log_probs_at_its_temperature(policy, trajectories, budget):
    sequences = [sequence_of(trajectory) for trajectory in trajectories]
    scores = frozen_pass(policy.model, trajectories, sequences, microbatch_tokens=budget)
    for score, sequence in zip(scores, sequences, strict=True):
        assert torch.allclose(score.logprob_T, sequence.values["behaviour"], atol=1e-5)
        assert score.logprob_T[~sequence.action_T].abs().max() == 0
        assert score.turns is None


def test_features_are_read_before_the_action_and_at_its_end(policy, trajectories):
    sequences = [sequence_of(trajectory) for trajectory in trajectories]
    scores = frozen_pass(
        policy.model, trajectories, sequences, microbatch_tokens=100, want_logprobs=False, want_turns=True
    )
    trajectory, score = trajectories[0], scores[0]
    hidden_TH = policy.model.base_model(input_ids=sequences[0].ids_T[None]).last_hidden_state[0]
    start, stop = trajectory.action_spans()[1]
    assert score.turns.state_SH.shape == (TURNS, 16)
    assert torch.allclose(score.turns.state_SH[1], hidden_TH[start - 1], atol=1e-5)
    assert torch.allclose(score.turns.action_SH[1], hidden_TH[stop - 1], atol=1e-5)
    assert score.logprob_T.abs().max() == 0  # no logits were asked for


def test_trajectories_of_two_temperatures_do_not_share_a_pass(policy, trajectories):
    mixed = [trajectories[0], replace(trajectories[1], temperature=1.0)]
    with pytest.raises(AssertionError, match="several temperatures"):
        frozen_pass(policy.model, mixed, [sequence_of(t) for t in mixed], microbatch_tokens=100)


@pytest.fixture
def encoder(tmp_path, policy):
    save_encoder(tmp_path)
    return TextEncoder(tmp_path, policy.tokenizer.decode, max_tokens=16)


def test_a_text_encoder_cuts_the_state_from_the_left_and_never_the_action(encoder):
    action = encoder._tokenizer.encode("good report", add_special_tokens=False)
    ids = encoder.pair_ids("bad " * 50 + "january revenue", "good report")
    assert len(ids) == 16
    assert ids[-1 - len(action) : -1] == action
    state = encoder._tokenizer.encode("january revenue", add_special_tokens=False)
    before = ids[1 : -2 - len(action)]
    assert before[-len(state) :] == state
    with pytest.raises(UserError, match="an action of"):
        encoder.pair_ids("", "good " * 30)


def test_a_text_encoder_gives_every_turn_a_pair(encoder, trajectories):
    features = encoder(trajectories)
    assert [len(feature.state_SH) for feature in features] == [TURNS] * len(trajectories)
    alone = encoder(trajectories[2:3])[0]
    assert torch.allclose(features[2].action_SH, alone.action_SH, atol=1e-5)
    assert not torch.equal(features[2].action_SH, features[2].state_SH)
