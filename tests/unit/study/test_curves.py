"""Learning curves against values worked out by hand."""

import pytest

from geartrain.study.curves import Curve, area, band, learning_curve, median_steps, steps_to, value_at

HISTORY = [
    {"start_val_sampled": 0.2, "environment_steps": 100, "success": 0.25},
    {"environment_steps": 80, "success": 0.3, "val_sampled": 0.4},
    {"environment_steps": 20, "success": 0.5},
    {"environment_steps": 100, "success": 0.6, "val_sampled": 0.6},
]


def test_validation_belongs_to_the_policy_after_the_update_and_training_to_the_one_before() -> None:
    assert learning_curve(HISTORY, "val_sampled") == Curve((0.0, 180.0, 300.0), (0.2, 0.4, 0.6))
    assert learning_curve(HISTORY, "success") == Curve((0.0, 100.0, 180.0, 200.0), (0.25, 0.3, 0.5, 0.6))
    assert learning_curve(HISTORY, "val_greedy") is None
    phases = [{"environment_steps": 10, "plan_success": 0.25}, {"environment_steps": 10}]
    assert learning_curve([*phases, *phases], "plan_success") == Curve((0.0, 20.0), (0.25, 0.25))


CURVE = Curve((0.0, 100.0, 300.0), (0.2, 0.4, 0.8))


@pytest.mark.parametrize(("x", "y"), [(0, 0.2), (50, 0.3), (100, 0.4), (200, 0.6), (300, 0.8)])
def test_a_curve_is_read_between_its_points(x: float, y: float) -> None:
    assert value_at(CURVE, x) == pytest.approx(y)


def test_a_curve_is_not_continued() -> None:
    with pytest.raises(ValueError, match="301 environment steps are outside 0 to 300"):
        value_at(CURVE, 301)


@pytest.mark.parametrize(("until", "height"), [(0, 0.2), (100, 0.3), (200, 0.4), (300, 0.5)])
def test_area_is_the_mean_height_so_far(until: float, height: float) -> None:
    # to 100: mean of .2 and .4; to 200 half of it at .3, half at .5; to 300 a third at .3, two at .6
    assert area(CURVE, until) == pytest.approx(height)


@pytest.mark.parametrize(("level", "steps"), [(0.1, 0.0), (0.2, 0.0), (0.3, 50.0), (0.4, 100.0), (0.7, 250.0)])
def test_steps_to_a_level_are_those_of_the_first_crossing(level: float, steps: float) -> None:
    assert steps_to(CURVE, level) == pytest.approx(steps)
    assert steps_to(Curve((0, 10, 20, 30), (0.0, 0.5, 0.1, 0.9)), 0.5) == 10


def test_a_level_that_was_not_reached_is_censored() -> None:
    assert steps_to(CURVE, 0.81) is None


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        ([3.0, None, 1.0], 3.0),
        ([None, None, 1.0], None),
        ([1.0, 2.0], 2.0),
        ([1.0, None], None),
        ([5.0], 5.0),
        ([], None),
    ],
)
def test_the_median_counts_censored_seeds_as_above_all_others(
    reached: list[float | None], expected: float | None
) -> None:
    assert median_steps(reached) == expected


def test_a_band_spans_the_seeds_to_where_the_first_ends() -> None:
    found = band([CURVE, Curve((0.0, 200.0), (0.4, 0.4))], points=3)
    assert found.x == (0.0, 100.0, 200.0)
    assert found.mean == pytest.approx((0.3, 0.4, 0.5))
    assert (found.low, found.high) == (pytest.approx((0.2, 0.4, 0.4)), pytest.approx((0.4, 0.4, 0.6)))
    assert found.deviation == pytest.approx((0.2**2 / 2) ** 0.5 * 2 / 3, abs=1e-6)
    assert band([CURVE]).deviation == 0.0
    assert band([Curve((0.0,), (0.5,))]).mean == (0.5,)
