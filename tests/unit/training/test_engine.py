import math

import pytest
import torch

from geartrain.errors import UserError
from geartrain.training.engine import Engine, learning_rate_at


def _engine(parameter, **settings):
    return Engine([parameter], **{"learning_rate": 0.1, "total_steps": 10, **settings})


def test_micro_batches_add_up_to_the_whole_batch():
    x_B = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    results = []
    for size in (8, 2, 1):
        parameter = torch.nn.Parameter(torch.tensor(0.3))
        report = _engine(parameter).update(((parameter * part_B).square() / 8).sum() for part_B in x_B.split(size))
        results.append((report.gradient_norm, report.loss, parameter.item()))
    assert results[1] == pytest.approx(results[0], rel=1e-6)
    assert results[2] == pytest.approx(results[0], rel=1e-6)


def test_the_gradient_is_clipped_and_its_norm_is_reported_unclipped():
    parameter = torch.nn.Parameter(torch.zeros(4))
    engine = _engine(parameter, gradient_clip=1.0)
    engine.backward((parameter * 10).sum())
    engine.step()
    engine.backward((parameter * 10).sum())
    assert engine.step().gradient_norm == pytest.approx(20.0)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_leaves_weights_and_moments_alone(broken):
    parameter = torch.nn.Parameter(torch.tensor(1.0))
    engine = _engine(parameter)
    report = engine.update([parameter * 1.0, parameter * broken, parameter * 1.0])
    assert report.skipped
    assert math.isnan(report.gradient_norm)
    assert parameter.item() == 1.0
    assert engine.skipped == 1
    report = engine.update([parameter * 1.0])
    assert not report.skipped
    assert report.gradient_norm == pytest.approx(1.0)  # nothing was left of the broken step
    assert engine.skipped_in_a_row == 0


def test_a_gradient_that_is_not_finite_is_skipped_too():
    parameter = torch.nn.Parameter(torch.tensor(0.0))
    assert _engine(parameter).update([parameter.sqrt()]).skipped  # value 0, slope infinite
    assert parameter.item() == 0.0


def test_three_broken_steps_in_a_row_stop_the_run():
    parameter = torch.nn.Parameter(torch.tensor(1.0))
    engine = _engine(parameter)
    engine.update([parameter * math.nan])
    engine.update([parameter * math.nan])
    with pytest.raises(UserError, match="learning_rate"):
        engine.update([parameter * math.nan])


def test_the_graph_of_a_micro_batch_is_freed_before_the_next():
    import gc
    import weakref

    parameter = torch.nn.Parameter(torch.ones(3))
    alive = []

    def losses():
        for _ in range(3):
            activation = parameter.exp()
            alive.append(weakref.ref(activation))
            yield activation.sum()
            del activation
            gc.collect()
            # the engine still names the loss of this round, but not what it was computed from
        assert [ref() for ref in alive[:-1]] == [None] * (len(alive) - 1)

    _engine(parameter).update(losses())


def test_schedule():
    rates = [learning_rate_at(s, peak=1.0, total_steps=6, warmup_steps=1, schedule="constant") for s in range(6)]
    assert rates == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    cosine = [learning_rate_at(s, peak=1.0, total_steps=5, warmup_steps=1, schedule="cosine") for s in range(6)]
    assert cosine == pytest.approx([0.5, 1.0, 0.8535534, 0.5, 0.1464466, 0.0])
