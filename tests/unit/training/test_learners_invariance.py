"""What is learned beside the policy: no order of rows and no padding changes its gradient (float64)."""

from dataclasses import fields, replace

import pytest
import torch

from geartrain.algorithms.grains import global_grain, step_grain, token_grain
from geartrain.methods import settings_of
from geartrain.training.evidence import gather
from geartrain.training.learners import Granularity, Mixture, Values
from tests.fakes.synthetic import REWARDS, GradientOnly, episodes, lesson_of

WIDTH, ROWS = 6, [4, 5, 6, 7]
ORDERS = [[*range(8)], [7, 4, 0, 5, 3, 6, 2, 1]]
LEARNERS = ["explanation", "alignment", "regression", "values", "granularity"]


def _double(evidence):
    found = {field.name: getattr(evidence, field.name) for field in fields(evidence)}
    tensors = {name: v for name, v in found.items() if torch.is_tensor(v) and v.is_floating_point()}
    return replace(evidence, **{name: value.double() for name, value in tensors.items()})


def _wider(evidence, grain_NTK, width):
    """Add masked positions, full of NaN."""

    def pad(value, fill):
        shape = (value.shape[0], width, *value.shape[2:])
        return torch.cat([value, torch.full(shape, fill, dtype=value.dtype)], dim=1)

    moved = {field.name: getattr(evidence, field.name) for field in fields(evidence) if field.name.endswith("_NT")}
    fills = {"mask_NT": False, "turn_NT": -1}
    padded = {name: pad(value, fills.get(name, torch.nan)) for name, value in moved.items() if value is not None}
    return replace(evidence, **padded), pad(grain_NTK, 0.0)


def _learner(kind):
    settings = {**settings_of("gear_a", {}), **settings_of("ppo", {})}
    if kind == "values":
        learner = Values(WIDTH, settings, iterations=4, seed=0)
    elif kind == "granularity":
        learner = Granularity(WIDTH, iterations=4, seed=0)
    else:
        learner = Mixture(WIDTH, 3, {**settings, "objective": kind}, iterations=4, seed=0)
    learner.network.double()
    with torch.no_grad():  # their last layers start at 0
        generator = torch.Generator().manual_seed(1)
        for weight in learner.network.parameters():
            weight.copy_(0.4 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    learner._engine = GradientOnly(learner.network)
    return learner


def _gradient(kind, order, padding=0):
    """Return the gradient and the loss of a learner on the episodes in an order."""
    played = episodes()
    generator = torch.Generator().manual_seed(7)
    states = [torch.randn(len(t.turns), WIDTH, generator=generator, dtype=torch.float64) for t in played]
    gaps = [torch.randn(len(t.token_ids()), generator=generator, dtype=torch.float64) for t in played]
    advantage_N = lesson_of("grpo", played).advantage_N
    evidence = _double(
        gather(
            [played[row] for row in order],
            advantage_N=advantage_N[order],
            reward_N=torch.tensor(REWARDS)[order],
            run_share=0.5,
        )
    )
    state_SH = torch.cat([states[row] for row in order])
    grain_NTK = torch.stack([grain(evidence) for grain in (global_grain, step_grain, token_grain)], dim=-1)
    evidence, grain_NTK = _wider(evidence, grain_NTK, padding)
    learner = _learner(kind)
    if kind in ("values", "granularity"):
        loss = learner.fit(state_SH, evidence)
    elif kind == "explanation":
        rows = [place for place, row in enumerate(order) if row in ROWS]
        loss = learner.explain(state_SH, grain_NTK, evidence, rows, [gaps[order[row]] for row in rows])
    else:
        loss = learner.align(state_SH, grain_NTK, evidence)
    return learner._engine.gradient, loss


@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize(("order", "padding"), [(ORDERS[0], 5), (ORDERS[1], 0), (ORDERS[1], 9)])
def test_order_and_padding_change_no_gradient(kind, order, padding):
    expected, loss = _gradient(kind, ORDERS[0])
    found, again = _gradient(kind, order, padding)
    assert expected.abs().max() > 1e-3
    assert (found - expected).abs().max() <= 1e-10
    assert again == pytest.approx(loss, abs=1e-10)
