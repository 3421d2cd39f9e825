"""Six fields, UTC; the next firings agree with trying every second."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.cluster.cron import parse_cron, to_argo
from geartrain.errors import UserError

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)  # a Monday


def upcoming(text: str, count: int = 3, after: datetime = NOW) -> list[str]:
    return [moment.strftime("%F %T") for moment in islice(parse_cron(text).firings(after), count)]


@pytest.mark.parametrize(
    ("text", "firings"),
    [
        ("0 0 2 * * *", ["2026-12-01 02:00:00", "2026-12-02 02:00:00", "2026-12-03 02:00:00"]),
        ("30 15 3 * * SUN", ["2026-12-06 03:15:30", "2026-12-13 03:15:30", "2026-12-20 03:15:30"]),
        ("0 0 9 ? * 1-5", ["2026-12-01 09:00:00", "2026-12-02 09:00:00", "2026-12-03 09:00:00"]),
        ("0 0 0 31 * *", ["2026-12-31 00:00:00", "2027-01-31 00:00:00", "2027-03-31 00:00:00"]),
        ("0 0 0 29 FEB ?", ["2028-02-29 00:00:00", "2032-02-29 00:00:00", "2036-02-29 00:00:00"]),
        ("0 5/20 12 * * *", ["2026-11-30 12:05:00", "2026-11-30 12:25:00", "2026-11-30 12:45:00"]),
        ("0 0 12 * * *", ["2026-12-01 12:00:00", "2026-12-02 12:00:00", "2026-12-03 12:00:00"]),
    ],
)
def test_next_firings(text: str, firings: list[str]) -> None:
    assert upcoming(text) == firings


def test_a_moment_of_another_time_zone_is_the_same_moment() -> None:
    karachi = datetime(2026, 11, 30, 17, 0, tzinfo=timezone(timedelta(hours=5)))
    assert upcoming("0 30 12 * * *", 1, karachi) == ["2026-11-30 12:30:00"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 2 * * *", r"You mean '0 0 2 \* \* \*'"),
        ("30 4 * * 7", r"You mean '0 30 4 \* \* 0'"),
        ("@daily", r"You mean '0 0 0 \* \* \*'"),
        ("0 0 2 * *  * 2026", "has 7 fields"),
        ("", "has 0 fields"),
        ("0 60 2 * * *", "minute '60': expected 0 to 59"),
        ("0 0 2 * * 7", "weekday '7': expected 0 to 6; Sunday is 0"),
        ("0 0 2 0 * *", "day '0': expected 1 to 31"),
        ("0 0 2 * JANUARY *", "month 'JANUARY': expected 1 to 12"),
        ("0 0 5-2 * * *", "a range goes up"),
        ("0 */0 2 * * *", "a step is 1 or more"),
        ("0 0 2 L * *", "day 'L'"),
        ("0 0 2 15W * *", "day '15W'"),
        ("0 0 ٣ * * *", "hour '٣'"),
        ("0 0 2 -1 * *", "expected a number"),
        ("0 0 2 1,, * *", "expected a number"),
        ("0 0 2 1 * MON", "systems disagree"),
        ("0 0 2 */2 * MON", "systems disagree"),
        ("0 0 2 31 FEB,APR *", "never fires"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_mend(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_cron(text, source="schedules/nightly.yaml")


def test_argo_gets_five_fields() -> None:
    assert to_argo(parse_cron("0 30 2 ? * MON-FRI")) == "30 2 * * MON-FRI"
    with pytest.raises(UserError, match="no seconds"):
        to_argo(parse_cron("30 0 2 * * *"))


def field(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    spans = st.tuples(value, value).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.tuples(st.one_of(st.just("*"), spans, value.map(str)), st.integers(1, 30)).map(
        lambda p: f"{p[0]}/{p[1]}"
    )
    return st.lists(st.one_of(st.just("*"), value.map(str), spans, steps), min_size=1, max_size=3).map(",".join)


def expected(word: str, low: int, high: int) -> set[int]:
    """The field's values, written once more and differently: each value is asked whether a part names it."""

    def named(part: str, value: int) -> bool:
        span, _, step = part.partition("/")
        start, _, end = (f"{low}-{high}" if span == "*" else span).partition("-")
        last = int(end) if end else high if step else int(start)
        return int(start) <= value <= last and (value - int(start)) % int(step or 1) == 0

    return {value for value in range(low, high + 1) if any(named(part, value) for part in word.split(","))}


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(second=field(0, 59), minute=field(0, 59), offset=st.integers(0, 86_400 * 400))
def test_firings_agree_with_trying_every_second(second: str, minute: str, offset: int) -> None:
    cron = parse_cron(f"{second} {minute} * * * *")
    after = NOW + timedelta(seconds=offset)
    wanted = expected(second, 0, 59), expected(minute, 0, 59)
    seconds = [after + timedelta(seconds=step) for step in range(1, 3601)]
    tried = [moment for moment in seconds if moment.second in wanted[0] and moment.minute in wanted[1]]
    assert list(islice(cron.firings(after), len(tried))) == tried
    assert all(cron.matches(moment) for moment in tried)
    assert sum(cron.matches(moment) for moment in seconds[:120]) == len([m for m in tried if m in set(seconds[:120])])


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(hour=field(0, 23), day=field(1, 31), month=field(1, 12), offset=st.integers(0, 86_400 * 800))
def test_hours_days_and_months_agree_with_trying_every_hour(hour: str, day: str, month: str, offset: int) -> None:
    try:
        cron = parse_cron(f"0 0 {hour} {day} {month} *")
    except UserError:
        days = expected(day, 1, 31)
        assert min(days) > 28  # 30 or 31 of months that have none
        return
    after = NOW + timedelta(seconds=offset)
    wanted = expected(hour, 0, 23), expected(day, 1, 31), expected(month, 1, 12)
    whole = after.replace(minute=0, second=0)
    hours = [whole + timedelta(hours=step) for step in range(1, 24 * 60)]
    tried = [m for m in hours if m.hour in wanted[0] and m.day in wanted[1] and m.month in wanted[2]]
    assert list(islice(cron.firings(after), len(tried))) == tried
