"""Our group advantages are those of verl 0.9.1's `core_algos`, on ragged masked rows of groups of 2, 3 and 4.

Compared: `compute_grpo_outcome_advantage`, `compute_rloo_outcome_advantage` and the vectorised form of each; both
sides divide by the standard deviation with n - 1, plus 1e-6. And `compute_gae_advantage_return`, before it whitens: its
time passes by sampled tokens, ours by turns, so turns of one token are what both know.

Deviations, each with its test; verl's value and the exact one are both asserted:

- a group of one: its raw reward is its advantage (0 in vectorised RLOO); ours raises;
- a group of equal rewards: float32 leaves a rounding that is divided by 1e-6; ours is exactly 0;
- a reward of NaN makes its whole group NaN; ours leaves it out and counts it;
- vectorised GRPO reads group ids as numbers: "7" and "07" are one group.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from geartrain.algorithms.advantage import GroupAdvantage, group_relative, leave_one_out
from geartrain.algorithms.recipe import without_scale
from geartrain.algorithms.returns import generalised_advantage

GROUPS = ["a", "b", "a", "c", "b", "c", "c", "b", "c"]
REWARDS = [1.0, 0.0, 0.25, 1.5, 0.0, -0.5, 0.3, 1.0, 0.3]
MASK_NT = torch.tensor(
    [
        [1, 1, 1, 1, 1, 1],
        [1, 1, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 1, 1],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0],
    ]
)
"""Ragged rows, two of them with turns of a tool, one fully masked: it counts in its group all the same."""
PAIRS = {
    "grpo": (group_relative, "compute_grpo_outcome_advantage", {}),
    "grpo-vectorised": (group_relative, "compute_grpo_vectorized_outcome_advantage", {}),
    "dr_grpo": (without_scale, "compute_grpo_outcome_advantage", {"norm_adv_by_std_in_grpo": False}),
    "dr_grpo-vectorised": (
        without_scale,
        "compute_grpo_vectorized_outcome_advantage",
        {"norm_adv_by_std_in_grpo": False},
    ),
    "rloo": (leave_one_out, "compute_rloo_outcome_advantage", {}),
    "rloo-vectorised": (leave_one_out, "compute_rloo_vectorized_outcome_advantage", {}),
}
EVERY_PAIR = pytest.mark.parametrize("name", PAIRS)


@pytest.fixture
def peer(core_algos: Any) -> Callable[..., Tensor]:
    """verl's advantages by the name of the pair, [N, T] or, without a mask, [N]."""

    def compute(name: str, rewards: list[float], groups: list[str], mask_NT: Tensor | None = None) -> Tensor:
        _, function, settings = PAIRS[name]
        whole_NT = torch.ones(len(rewards), 3, dtype=torch.int64) if mask_NT is None else mask_NT
        token_NT = torch.zeros(whole_NT.shape)
        token_NT[:, 0], token_NT[:, 1] = torch.tensor(rewards) - 0.5, 0.5  # verl sums what the tokens earned
        index = np.array(groups, dtype=object)
        advantage_NT, _ = getattr(core_algos, function)(token_NT, whole_NT, index, **settings)
        return advantage_NT[:, 0] if mask_NT is None else advantage_NT

    return compute


@EVERY_PAIR
def test_advantages(name, peer):
    ours: GroupAdvantage = PAIRS[name][0](REWARDS, GROUPS)
    assert ours.excluded == 0
    expected_NT = ours.advantage_N[:, None] * MASK_NT
    assert expected_NT.abs().max() > 0.5
    torch.testing.assert_close(expected_NT, peer(name, REWARDS, GROUPS, MASK_NT), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("discount", "trace"), [(1.0, 1.0), (0.9, 0.95), (0.99, 0.0)])
def test_generalised_advantages(discount, trace, core_algos):
    generator = torch.Generator().manual_seed(8)
    reward_NT, value_NT = torch.randn(2, *MASK_NT.shape, generator=generator)
    reward_NT = reward_NT * MASK_NT
    _, returns_NT = core_algos.compute_gae_advantage_return(reward_NT, value_NT, MASK_NT, discount, trace)
    for reward_T, value_T, mask_T, returns_T in zip(reward_NT, value_NT, MASK_NT.bool(), returns_NT, strict=True):
        rewards, values = reward_T[mask_T].tolist(), value_T[mask_T].tolist()
        ours = generalised_advantage(rewards, values, discount=discount, trace=trace)
        torch.testing.assert_close(ours, (returns_T - value_T)[mask_T], rtol=1e-5, atol=1e-6)


@EVERY_PAIR
def test_a_group_of_one_gets_its_raw_reward_there_and_is_refused_here(name, peer):
    """There is nothing to compare with: the exact answer is no advantage, or none at all."""
    rewards, groups = [0.7, 0.25, 1.0], ["alone", "a", "a"]
    with pytest.raises(ValueError, match="has one member"):
        PAIRS[name][0](rewards, groups)
    expected = 0.0 if name == "rloo-vectorised" else 0.7
    assert peer(name, rewards, groups)[0].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["grpo", "grpo-vectorised"])
def test_equal_rewards_are_an_advantage_of_rounding_there_and_none_here(name, peer):
    """Three rewards of 0.9 in float32: their mean is 6e-8 below, their deviation 7e-8, and 1e-6 hides neither."""
    rewards, groups = [0.9, 0.9, 0.9], ["a", "a", "a"]
    assert peer(name, rewards, groups).tolist() == pytest.approx([0.0555495] * 3, rel=1e-4)
    assert group_relative(rewards, groups).advantage_N.tolist() == [0.0, 0.0, 0.0]


@EVERY_PAIR
def test_a_nan_takes_its_whole_group_there_and_is_left_out_here(name, peer):
    rewards, groups = [math.nan, 0.2, 0.9, 1.0, 0.0], ["a", "a", "a", "b", "b"]
    theirs = peer(name, rewards, groups)
    assert theirs[:3].isnan().all()
    ours: GroupAdvantage = PAIRS[name][0](rewards, groups)
    assert ours.excluded == 1
    rest = peer(name, rewards[1:], groups[1:])  # what verl says of the same group without the failure
    assert ours.advantage_N.tolist() == pytest.approx([0.0, *rest.tolist()], rel=1e-5)


def test_group_ids_that_look_like_numbers_are_merged_there(peer):
    """Four rollouts of two tasks named "7" and "07": vectorised GRPO compares all four with one another."""
    rewards, groups = [1.0, 0.0, 0.0, 0.0], ["7", "7", "07", "07"]
    theirs = partial(peer, rewards=rewards, groups=groups)
    assert theirs("dr_grpo-vectorised").tolist() == pytest.approx([0.75, -0.25, -0.25, -0.25])
    assert theirs("dr_grpo").tolist() == pytest.approx([0.5, -0.5, 0.0, 0.0])
    assert without_scale(rewards, groups).advantage_N.tolist() == pytest.approx([0.5, -0.5, 0.0, 0.0])
