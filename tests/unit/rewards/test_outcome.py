import math

import pytest

from geartrain.rewards.outcome import Failed, NotApplicable, Value, count_missing, measured, raw


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_a_failure_and_never_a_zero(number: float) -> None:
    assert measured(number) == Failed("not_finite", str(number))
    assert raw(measured(number)) is None
    with pytest.raises(ValueError, match="finite"):
        Value(number)


@pytest.mark.parametrize("thing", [None, "high", [1.0], 10**400])
def test_what_is_no_number_is_a_failure(thing: object) -> None:
    outcome = measured(thing)  # type: ignore[arg-type]
    assert isinstance(outcome, Failed)
    assert outcome.reason == "not_a_number"


def test_a_measured_zero_stays_a_value() -> None:
    assert raw(measured(0)) == 0.0


def test_missing_values_are_counted_by_channel_and_kind() -> None:
    counts = count_missing(
        {
            "learned": [Failed("too_long", "a"), Failed("too_long", "b"), NotApplicable("not_trusted"), Value(0.0)],
            "verified": [Value(1.0), Failed("not_finite")],
        }
    )
    assert counts == {"learned.too_long": 2, "n/a learned.not_trusted": 1, "verified.not_finite": 1}
