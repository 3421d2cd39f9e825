"""What is learned beside the policy: after use, on evidence alone, with no gradient to anything else."""

import copy

import pytest
import torch

from geartrain.algorithms.evidence import Evidence
from geartrain.algorithms.past_self import entropy_granularity, progress_granularity
from geartrain.methods import settings_of
from geartrain.training.learners import Granularity, Mixture, Values

TRAJECTORIES, TURNS, WIDTH = 8, 3, 16
SETTINGS = {"grain_learning_rate": 0.02, "grain_entropy": 0.0}


def _evidence():
    """Each turn is two tokens; its state's first feature is the share done, its second the entropy."""
    generator = torch.Generator().manual_seed(0)
    row = torch.arange(TRAJECTORIES).repeat_interleave(TURNS)
    turn_NT = torch.arange(TRAJECTORIES * TURNS).reshape(TRAJECTORIES, TURNS).repeat_interleave(2, dim=1)
    progress = (torch.arange(TURNS) / TURNS).repeat(TRAJECTORIES)
    entropy = torch.rand(TRAJECTORIES * TURNS, generator=generator)
    state_SH = torch.randn(TRAJECTORIES * TURNS, WIDTH, generator=generator)
    state_SH[:, 0], state_SH[:, 1] = progress, entropy
    reward = torch.tensor([1.0, 0.0] * (TRAJECTORIES // 2))
    state_SH[:, 2] = reward[row]
    zero_NT = torch.zeros(turn_NT.shape)
    evidence = Evidence(
        advantage_N=reward * 2 - 1,
        group_N=torch.arange(TRAJECTORIES) // 2,
        sibling_N=torch.arange(TRAJECTORIES) % 2,
        mask_NT=torch.ones(turn_NT.shape, dtype=torch.bool),
        step_NT=zero_NT,
        token_NT=zero_NT,
        turn_NT=turn_NT,
        logprob_NT=zero_NT,
        entropy_NT=entropy[turn_NT],
        progress_NT=progress[turn_NT],
        reward_N=reward,
        row_S=row,
    )
    return evidence, state_SH


def test_granularity_learns_its_two_proxies_and_stays_in_the_unit_interval():
    evidence, state_SH = _evidence()
    learner = Granularity(WIDTH, iterations=300, seed=0)
    first = learner.fit(state_SH, evidence)
    for _ in range(250):
        last = learner.fit(state_SH, evidence)
    assert last < 0.5 * first
    found_S = learner(state_SH)
    target_NT = progress_granularity(evidence.progress_NT)
    target_NT = 0.5 * (target_NT + entropy_granularity(evidence.entropy_NT, evidence.turn_NT))
    correlation = torch.corrcoef(torch.stack([evidence.spread(found_S).flatten(), target_NT.flatten()]))[0, 1]
    assert correlation > 0.8
    assert 0 <= found_S.min() <= found_S.max() <= 1
    assert not found_S.requires_grad


def test_values_learn_the_discounted_total_reward():
    evidence, state_SH = _evidence()
    learner = Values(WIDTH, settings_of("ppo", {"discount": 0.5, "value_learning_rate": 0.01}), iterations=300, seed=0)
    assert learner(state_SH).abs().max() == 0
    for _ in range(250):
        learner.fit(state_SH, evidence)
    assert learner(state_SH)[:6].tolist() == pytest.approx([0.25, 0.5, 1.0, 0.0, 0.0, 0.0], abs=0.1)


@pytest.mark.parametrize("objective", ["alignment", "regression"])
def test_outcome_objectives_look_at_every_second_sibling_alone(objective):
    evidence, state_SH = _evidence()
    grain_NTK = torch.randn(*evidence.turn_NT.shape, 3, generator=torch.Generator().manual_seed(1))
    learned = []
    for seen in (grain_NTK, torch.where(torch.arange(TRAJECTORIES)[:, None, None] % 2 == 0, grain_NTK, 99.0)):
        learner = Mixture(WIDTH, 3, settings_of("gear_a", {"objective": objective, **SETTINGS}), iterations=9, seed=0)
        learner.align(state_SH, seen, evidence)
        learned.append(learner(state_SH))
    assert torch.equal(*learned)
    assert (learned[0] - 1 / 3).abs().max() > 1e-3


def test_a_mixture_finds_the_grain_that_explains_and_rounding_explains_nothing():
    evidence, state_SH = _evidence()
    grain_NTK = torch.randn(*evidence.turn_NT.shape, 3, generator=torch.Generator().manual_seed(1))
    learner = Mixture(WIDTH, 3, settings_of("gear_a", SETTINGS), iterations=60, seed=0)
    rows = [0, 1, 4, 5]
    assert learner.explain(state_SH, grain_NTK, evidence, rows, [torch.full((6,), 1e-5)] * 4) is None
    assert torch.equal(learner(state_SH), torch.full((TRAJECTORIES * TURNS, 3), 1 / 3))
    gap = [grain_NTK[row, :, 2] for row in rows]
    for _ in range(40):
        learner.explain(state_SH, grain_NTK, evidence, rows, gap)
    assert learner(state_SH)[:6].mean(0).argmax() == 2


@pytest.mark.parametrize("seed", [0, 1])
def test_a_learner_starts_from_its_seed_and_continues_from_its_state(seed):
    evidence, state_SH = _evidence()
    torch.rand(seed + 3)
    learner, twin = (Granularity(WIDTH, iterations=9, seed=seed) for _ in range(2))
    assert torch.equal(learner(state_SH), twin(state_SH))
    learner.fit(state_SH, evidence)
    twin.load_state_dict(copy.deepcopy(learner.state_dict()))  # as a checkpoint does
    assert learner.fit(state_SH, evidence) == twin.fit(state_SH, evidence)
    assert torch.equal(learner(state_SH), twin(state_SH))
