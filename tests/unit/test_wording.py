"""Numbers as people read them."""

import pytest

from geartrain.wording import compact, duration, p_value, points, rate


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (918784, "918,784"), (-3.0, "-3"), (0.4127, "0.413"), (0.00812, "0.0081"), (1e-7, "1e-07")],
)
def test_compact_keeps_what_matters(value, shown):
    assert compact(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.44, "0.4 s"), (99.9, "99.9 s"), (100, "1 min 40 s"), (3661, "61 min 01 s")]
)
def test_durations(seconds, shown):
    assert duration(seconds) == shown


def test_rates_gains_and_p_values():
    record = {"estimate": 0.125, "low": -0.05, "high": 0.3}
    assert rate(record) == "12.5 % [-5.0, 30.0]"
    assert points(record) == "+12.5 points [-5.0, +30.0]"
    assert [p_value(0.0004), p_value(0.0312)] == ["p < 0.001", "p = 0.031"]
