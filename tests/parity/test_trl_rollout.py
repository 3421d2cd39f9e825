"""From scripted completions to the gradient of every weight: our advantages and our loss are those of TRL 1.16.0.

Nothing of TRL is replaced: its GRPOTrainer, never run, is handed the completions by its own `rollout_func`, scores
them in `_generate_and_score_completions` and computes its loss with its own forward pass.

Deviations, each with its test; TRL's value and the exact one are both asserted:

- 1e-4 is added to the standard deviation, ours adds 1e-6: TRL's advantages are up to 0.03 % smaller here;
- a group of equal rewards is compared in float32: what is left is rounding over 1e-4, where ours is exactly 0.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from geartrain.algorithms.advantage import GroupAdvantage, group_relative
from geartrain.algorithms.masked import row_share
from geartrain.algorithms.recipe import by_constant, by_rows, by_tokens, without_scale
from geartrain.algorithms.surrogate import clipped_surrogate
from geartrain.models.scoring import token_logprobs

# TRL 1.16 asks transformers 5.24 by a name that the latter has replaced
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")

REWARDS = [1.0, 0.0, 0.0, 0.3, 0.9, 0.1]
GROUPS = ["a", "a", "a", "b", "b", "b"]
PROMPTS = [[2, 3], [2, 3], [2, 3], [4, 5, 6, 7], [4, 5, 6, 7], [4, 5, 6, 7]]
"""Of two lengths, so that TRL pads on the left."""
COMPLETIONS = [[8, 9, 10, 11, 12, 13, 1], [14, 15, 1], [1], [16, 17, 18, 19, 1], [20, 21, 22, 1], [23, 24, 25, 26, 27]]
TOOLS = [[1, 1, 0, 0, 1, 1, 1], [1, 1, 1], [1], [1, 0, 1, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1, 1]]
"""0 where a tool spoke; the last row ends without end of sequence."""
TOKENS, LIMIT, TEMPERATURE = 21, 16, 0.7


def _rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    return {"prompt_ids": PROMPTS, "completion_ids": COMPLETIONS, "logprobs": None, "env_mask": TOOLS}


def _scored(make_trainer: Callable[..., Any], rewards: list[float | None], **settings: Any) -> tuple[Any, Any]:
    """A trainer, and what it makes of the completions."""
    trainer = make_trainer(rewards=lambda completions, **rest: rewards, rollout=_rollout, **settings)
    return trainer, trainer._generate_and_score_completions([{"prompt": "w2"} for _ in rewards])


def _standard_deviation(rewards: list[float]) -> Tensor:
    """Of each row's group, with n - 1."""
    return torch.tensor(rewards, dtype=torch.float64).reshape(2, 3).std(1).repeat_interleave(3)


def test_advantages_without_scale(make_trainer):
    _, output = _scored(make_trainer, REWARDS, scale_rewards="none")
    torch.testing.assert_close(without_scale(REWARDS, GROUPS).advantage_N, output["advantages"], rtol=1e-5, atol=1e-7)


def test_advantages_with_scale_differ_by_what_is_added_to_the_deviation(make_trainer):
    _, output = _scored(make_trainer, REWARDS)
    ours, deviation = group_relative(REWARDS, GROUPS).advantage_N.double(), _standard_deviation(REWARDS)
    centred = without_scale(REWARDS, GROUPS).advantage_N.double()
    torch.testing.assert_close(ours, centred / (deviation + 1e-6), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(output["advantages"].double(), centred / (deviation + 1e-4), rtol=1e-5, atol=1e-7)
    relative = (ours / output["advantages"].double() - 1).max().item()
    assert relative == pytest.approx(2.378e-4, rel=0.01)


@pytest.mark.parametrize("rewards", [[1.0, None, 0.0, 0.3, 0.9, 0.1], [0.7, None, None, 0.3, 0.9, 0.1]])
def test_a_failed_measurement_is_left_out_and_gets_nothing(rewards, make_trainer):
    _, output = _scored(make_trainer, rewards, scale_rewards="none")
    ours: GroupAdvantage = without_scale(rewards, GROUPS)
    assert ours.excluded == rewards.count(None)
    torch.testing.assert_close(ours.advantage_N, output["advantages"], rtol=1e-5, atol=1e-7)


def test_a_group_of_equal_rewards_is_rounding_there_and_nothing_here(make_trainer):
    """Exact is 0: three rewards of 0.9 say nothing."""
    rewards = [0.9, 0.9, 0.9, 0.3, 0.9, 0.1]
    _, output = _scored(make_trainer, rewards)
    ours = group_relative(rewards, GROUPS)
    assert ours.advantage_N[:3].tolist() == [0.0, 0.0, 0.0]
    assert ours.flat == {"a"}
    assert output["advantages"][:3].tolist() == pytest.approx([5.956e-4] * 3, rel=1e-3)


def test_the_tokens_of_a_step_are_the_trained_ones(make_trainer):
    _, output = _scored(make_trainer, REWARDS)
    assert output["num_items_in_batch"].item() == sum(sum(row) for row in TOOLS) == TOKENS


@pytest.mark.parametrize(
    ("kind", "denominator"), [("grpo", by_rows), ("bnpo", by_tokens), ("dapo", by_tokens), ("dr_grpo", by_constant)]
)
def test_the_gradient_of_every_weight(kind, denominator, make_trainer):
    """TRL pads prompts on the left and keeps the completions' logits; ours pads on the right. Temperature 0.7."""
    trainer, output = _scored(make_trainer, REWARDS, loss_type=kind, temperature=TEMPERATURE, scale_rewards="none")
    theirs = trainer.compute_loss(trainer.model, output)
    expected = torch.autograd.grad(theirs, list(trainer.model.parameters()))
    ours = _loss(trainer.model, kind, denominator(TOKENS, len(REWARDS), LIMIT))
    found = torch.autograd.grad(ours, list(trainer.model.parameters()))
    assert ours.item() == pytest.approx(
        theirs.item(), rel=1e-5, abs=1e-7
    )  # on policy grpo's value is 0: the advantages' sum
    assert len(found) == 12
    for mine, other in zip(found, expected, strict=True):
        assert mine.abs().max() > 0
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=2e-7)  # float32 through a model, in another order


def _loss(model: Any, kind: str, denominator: float) -> Tensor:
    length = max(len(prompt) + len(completion) for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True))
    ids_BT = torch.zeros(len(REWARDS), length, dtype=torch.int64)
    attention_BT, mask_BT = torch.zeros_like(ids_BT).bool(), torch.zeros_like(ids_BT).bool()
    for row, (prompt, completion, tool) in enumerate(zip(PROMPTS, COMPLETIONS, TOOLS, strict=True)):
        end = len(prompt) + len(completion)
        ids_BT[row, :end] = torch.tensor(prompt + completion)
        attention_BT[row, :end] = True
        mask_BT[row, len(prompt) : end] = torch.tensor(tool).bool()
    scored = token_logprobs(model, ids_BT, attention_BT, temperature=TEMPERATURE, where_BT=mask_BT)
    advantage_BT = without_scale(REWARDS, GROUPS).advantage_N[:, None].expand(mask_BT.shape)
    if kind == "grpo":
        advantage_BT = advantage_BT * row_share(mask_BT)
    return clipped_surrogate(
        scored.logprob_BT,
        scored.logprob_BT,  # detached inside: the sampler is the policy
        advantage_BT,
        mask_BT,
        denominator=denominator,
        clip_low=0.2,
        clip_high=0.28,
    )
