"""Equal values have equal hashes whatever type, batch or slice holds them; different values, different ones."""

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.differences.hashing import combine, hash_column, numeric_values

TEXT = pa.string()
SCALARS = st.none() | st.integers(-(2**63), 2**63 - 1)
KINDS: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), SCALARS),
    (pa.float64(), st.none() | st.floats(allow_nan=False)),
    (pa.bool_(), st.none() | st.booleans()),
    (pa.string(), st.none() | st.text(max_size=3)),
    (pa.list_(pa.int32()), st.none() | st.lists(st.none() | st.integers(-3, 3), max_size=3)),
    (pa.list_(pa.list_(pa.string())), st.none() | st.lists(st.lists(st.text(max_size=2), max_size=2), max_size=2)),
    (
        pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]),
        st.none() | st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.lists(st.sampled_from("xy"), max_size=2)}),
    ),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=[str(kind) for kind, _ in KINDS])
def test_hashes_are_equal_where_values_are(kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @settings(deadline=None, derandomize=True, database=None)
    @given(st.lists(values, max_size=12))
    def check(column: list[Any]) -> None:
        hashes = hash_column(pa.array(column, kind))
        assert len(hashes) == len(column)
        for i, left in enumerate(column):
            for j, right in enumerate(column):
                assert (hashes[i] == hashes[j]) == (left == right)

    check()


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=[str(kind) for kind, _ in KINDS])
def test_a_slice_hashes_as_the_whole_does(kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @settings(deadline=None, derandomize=True, database=None)
    @given(st.lists(values, min_size=2, max_size=9), st.data())
    def check(column: list[Any], data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(column)))
        stop = data.draw(st.integers(start, len(column)))
        array = pa.array(column, kind)
        assert hash_column(array.slice(start, stop - start)).tolist() == hash_column(array)[start:stop].tolist()

    check()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1, -7, None]), pa.array([1.0, -7.0, None])),
        (pa.array([1, 2], pa.uint8()), pa.array([1, 2], pa.int32())),
        (pa.array([0.5, math.nan], pa.float32()), pa.array([0.5, math.nan], pa.float64())),
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array(["a", "b", None]), pa.array(["a", "b", None]).dictionary_encode()),
        (pa.array(["a"]), pa.array(["a"], pa.large_string())),
        (pa.array([[1, 2]], pa.list_(pa.int64())), pa.array([[1, 2]], pa.list_(pa.int8(), 2))),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), pa.array([[("k", 1)]], pa.map_(TEXT, pa.int8()))),
        (pa.array([{"a": 1}]), pa.array([{"a": 1, "new": None}], pa.struct([("a", pa.int64()), ("new", pa.string())]))),
        (pa.nulls(2), pa.array([None, None], pa.string())),
    ],
)  # fmt: skip
def test_the_type_that_holds_a_value_means_nothing(left: pa.Array, right: pa.Array) -> None:
    assert hash_column(left).tolist() == hash_column(right).tolist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, None, 1]),
        pa.array([math.nan, None, 0.0, math.inf]),
        pa.array([[], None, [None], [0], [0, 0]], pa.list_(pa.int64())),
        pa.array([[1, 2], [2, 1], [1], [1, 2, 0]]),
        pa.array([2**53, 2**53 + 1]),
        pa.array(["", None, "a"]),
        pa.array([datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)]),
        pa.array([b"", b"\x00", b"\x00\x00"]),
    ],
)
def test_neighbours_differ(column: pa.Array) -> None:
    assert len(set(hash_column(column).tolist())) == len(column)


def test_no_row_is_a_column_too() -> None:
    for kind in (pa.int64(), pa.string(), pa.list_(pa.string()), pa.struct([("a", pa.int8())])):
        assert hash_column(pa.array([], kind)).tolist() == []


def test_combined_columns_keep_or_forget_their_order() -> None:
    first, second = hash_column(pa.array(["a", "b"])), hash_column(pa.array(["b", "a"]))
    ordered, unordered = combine([first, second]), combine([first, second], ordered=False)
    assert ordered[0] != ordered[1]
    assert unordered[0] == unordered[1]


def test_what_counts_as_a_number() -> None:
    assert numeric_values(pa.array([True, None]))[0] == 1.0  # type: ignore[index]
    lengths = numeric_values(pa.array([[1, 2], [], None]))
    assert lengths is not None
    assert lengths[:2].tolist() == [2.0, 0.0]
    assert np.isnan(lengths[2])
    assert numeric_values(pa.array(["käse"])) == [4.0]
    assert numeric_values(pa.array([{"a": 1}])) is None
