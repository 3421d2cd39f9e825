"""What the wrapper answers is what a join by hand answers, on ten thousand cases made to be awkward."""

from datetime import UTC, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from geartrain.features.tables import EVENT
from tests.unit.features.conftest import at, row

CASES = 10_000
ROWS, ASKS = 5, 4
ZONES = (UTC, timezone(timedelta(hours=9)), timezone(-timedelta(hours=3, minutes=30)))


def read_case(code):
    """Return the rows [(key, event, created, known)] and questions [(key, tick)] that 24 bytes stand for.

    Ticks are few, so that times are equal often; a row may be known late (a correction), or before it happened (a clock
    that is ahead); its value may be missing; keys repeat, and one of those asked for has no rows.
    """
    rows = [
        (code[i] % 2, code[i + 1] % 6, code[i + 2] % 8, code[i] % 16 > 1)
        for i in range(0, 3 * (code[-1] % ROWS + 1), 3)
    ]
    asks = [(code[i] % 3, code[i] // 3 % 9) for i in range(3 * ROWS, 3 * ROWS + ASKS)]
    return rows, asks


def value_of(key, event, created, known):
    """A value that says which row it is of; equal rows are one row."""
    return 1000 + 100 * key + 10 * event + created if known else None


def join_by_hand(rows, ask):
    """Return the value that was known: of all whose both times are past the latest event, then the latest known."""
    key, tick = ask
    past = [r for r in rows if r[0] == key and r[1] <= tick and r[2] <= tick]
    return value_of(*max(past, key=lambda r: (r[1], r[2]))) if past else None


def consistent(rows):
    """Drop rows that contradict another of the same key and times: such a table is refused, see test_tables."""
    first = {}
    for r in rows:
        first.setdefault(r[:3], r)
    return [r for r in rows if first[r[:3]] == r]


@pytest.mark.slow
def test_every_answer_is_that_of_a_join_by_hand(store_of):
    cases = []

    @settings(
        max_examples=CASES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=24, max_size=24))
    def collect(code):
        rows, asks = read_case(code)
        cases.append((consistent(rows), asks))

    collect()
    assert len(cases) >= CASES
    table = [
        row("task_history", f"{case}/{key}", event, created, attempts=value_of(key, event, created, known))
        for case, (rows, _) in enumerate(cases)
        for key, event, created, known in rows
    ]
    for number, line in enumerate(table):  # one instant, written in one zone or another
        for name in (EVENT, "created_timestamp"):
            line[name] = line[name].astimezone(ZONES[number % 3])
    questions = [(case, ask) for case, (_, asks) in enumerate(cases) for ask in asks]
    labels = [(7919 * number) % 5 for number in range(len(questions))]
    spine = pa.table(
        {
            "label": labels,
            "task_id": [f"{case}/{key}" for case, (key, _) in questions],
            "family": ["f"] * len(questions),
            "siblings": [6] * len(questions),
            EVENT: pa.array([at(tick) for _, (_, tick) in questions], pa.timestamp("ns", tz="Asia/Tokyo")),
        }
    )
    answer = store_of({"task_history": table}).as_of("sampler_v1", spine)
    assert answer.column("label").to_pylist() == labels  # every row, in order, none twice
    assert answer.select(["task_id", "family", "siblings"]) == spine.select(["task_id", "family", "siblings"])
    expected = [join_by_hand(cases[case][0], ask) for case, ask in questions]
    found = answer.column("attempts").to_pylist()
    wrong = [
        (cases[case], ask, got, want)
        for (case, ask), got, want in zip(questions, found, expected, strict=True)
        if got != want
    ]
    assert wrong[:3] == []
    kinds = [sum(want is None for want in expected), len(set(questions)) < len(questions)]
    assert 0 < kinds[0] < len(expected)
    assert kinds[1]  # the same key and time, asked twice
